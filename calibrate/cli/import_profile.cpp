#include "calibrate/cli/import_profile.h"

#include <filesystem>

#include <fmt/core.h>

#include "calibrate/fit/fit.h"
#include "costmodel/base/shell_word.h"
#include "costmodel/base/utc_time.h"
#include "costmodel/terminal/commands.h"

namespace stepsim {

void write_imported_profile(const OptionParser& parser,
                            const SampleSet& samples,
                            const std::string& files) {
  const std::string out = parser.text("profile");
  FitOptions options;
  options.name = std::filesystem::path(out).stem().string();
  options.command = parser.command_line();
  options.date = utc_now();
  options.samples_file = files;
  if (parser.has("base")) {
    options.base = read_profile(parser.text("base"));
  }
  const FitResult result = fit_profile(samples, options);
  write_profile(out, result.profile);
  if (out != "-") {
    print_report(fmt::format("{}\nwrote {}\nnext: stepsim compare SCENARIO.toml --profile {}\n",
                             fit_report(result, output_screen()),
                             out,
                             shell_word(out)));
  }
}

}  // namespace stepsim
