#include "calibrate/import/imported_profile.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/core.h>

#include "calibrate/fit/fit.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/same_file.h"
#include "costmodel/base/shell_word.h"
#include "costmodel/base/utc_time.h"

namespace stepsim {

std::string import_text(const ImportedProfile& imported,
                        const std::string& written,
                        const Screen& screen) {
  return fmt::format("{}\nwrote {}\nnext: {}\n", imported.report(screen), written, imported.next);
}

std::string import_command_line(const std::string& kind, const std::vector<std::string>& words) {
  std::string line = "stepcal import " + kind;
  for (const std::string& word : words) {
    line += " " + shell_word(word);
  }
  return line;
}

void keep_inputs(const ProfileRequest& request, const std::vector<std::string>& inputs) {
  const auto is_out = [&](const std::string& input) {
    return request.out != "-" && is_same_file(request.out, input);
  };
  if (std::ranges::any_of(inputs, is_out) || is_out(request.base)) {
    throw InputError("the profile {} would overwrite an input; give it a name of its own",
                     printable(request.out));
  }
}

std::optional<Profile> read_base(const ProfileRequest& request) {
  return request.base.empty() ? std::nullopt : std::optional(read_profile(request.base));
}

ImportedProfile profile_of_samples(const SampleSet& samples,
                                   const std::string& files,
                                   const ProfileRequest& request) {
  FitOptions options;
  options.name = std::filesystem::path(request.out).stem().string();
  options.command = request.command;
  options.date = utc_now();
  options.samples_file = files;
  options.base = read_base(request);
  FitResult result = fit_profile(samples, options);
  ImportedProfile imported;
  imported.profile = result.profile;
  const std::string out = shell_word(request.out);
  imported.next = result.profile.recorded || !result.profile.ops.empty()
                      ? "stepsim compare SCENARIO.toml --profile " + out
                      : "stepcal import run-record RUN.jsonl --base " + out +
                            " --profile mine.json   (adds the steps of a model)";
  imported.report = [result = std::move(result)](const Screen& screen) {
    return fit_report(result, screen);
  };
  return imported;
}

}  // namespace stepsim
