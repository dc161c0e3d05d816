// What PyTorch and NCCL write themselves: Flight Recorder's dumps, DDP's logger, NCCL Inspector;
// the profile made of the last must be one that is read.

#include "calibrate/cli/cli.h"
#include "costmodel/records/profile.h"
#include "costmodel/terminal/commands.h"
#include "tests/fuzz/door.h"

namespace stepsim::fuzz {

void enter_torch_records(std::string_view input) {
  const std::string path = file_with("rank0.json", input);
  const std::string json = path_of("torch_records.json");
  const std::string out = path_of("inspected.json");
  (void)run_stepcal_command({"import", "flight-recorder", path, "--json", json});
  (void)run_stepcal_command({"import", "ddp-logging", path, "--json", json});
  const int status = run_stepcal_command({"import",
                                          "nccl-inspector",
                                          path,
                                          "--json",
                                          json,
                                          "--profile",
                                          out,
                                          "--accept",
                                          "missing_ranks"});
  if (status == kDone) {
    require(accepts([&] { (void)read_profile(out); }), "an imported profile that is refused");
  }
}

}  // namespace stepsim::fuzz
