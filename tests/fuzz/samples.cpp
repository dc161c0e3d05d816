// Files of samples: read and fitted; the profile made of them must be one that is read.

#include "calibrate/cli/cli.h"
#include "costmodel/records/profile.h"
#include "costmodel/terminal/commands.h"
#include "tests/fuzz/door.h"

namespace stepsim::fuzz {

void enter_samples(std::string_view input) {
  const std::string path = file_with("samples.jsonl", input);
  const std::string out = path_of("fitted.json");
  require(
      run_stepcal_command({"fit", path, "--out", out, "--report", path_of("plot.svg")}) == kDone,
      "not fitted");
  require(accepts([&] { (void)read_profile(out); }), "a fitted profile that is refused");
  const std::string base = source_path("scenarios/profiles/h100_8x_published.json");
  (void)run_stepcal_command({"fit", path, "--out", out, "--base", base});
}

}  // namespace stepsim::fuzz
