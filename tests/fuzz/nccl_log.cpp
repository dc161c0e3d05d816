// Logs of nccl-tests, as text and JSON; the profile made of them must be one that is read.

#include <filesystem>

#include "calibrate/cli/cli.h"
#include "costmodel/records/profile.h"
#include "costmodel/terminal/commands.h"
#include "tests/fuzz/door.h"

namespace stepsim::fuzz {

void enter_nccl_log(std::string_view input) {
  const std::string path = file_with("nccl.log", input);
  const std::string json = path_of("nccl.json");
  const std::string out = path_of("network.json");
  const std::string samples = path_of("collectives.jsonl");
  const std::string accepted = "wrong_values";
  std::filesystem::remove(samples);
  const int status = run_stepcal_command({"import",
                                          "nccl-tests",
                                          path,
                                          "--json",
                                          json,
                                          "--profile",
                                          out,
                                          "--out",
                                          samples,
                                          "--accept",
                                          "too_few_sizes",
                                          "--accept",
                                          "ends_small",
                                          "--accept",
                                          "damaged_rows",
                                          "--accept",
                                          accepted});
  if (status == kDone) {
    require(accepts([&] { (void)read_profile(out); }), "an imported profile that is refused");
    (void)run_stepcal_command({"fit", samples, "--out", out});
  }
}

}  // namespace stepsim::fuzz
