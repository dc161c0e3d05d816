#include "calibrate/cli/import_profile.h"

#include <filesystem>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"
#include "costmodel/base/shell_word.h"
#include "costmodel/base/utc_time.h"
#include "costmodel/terminal/commands.h"

namespace stepsim {
namespace {

Json recorded_provenance(const OptionParser& parser, std::span<const RecordedRun> runs) {
  Json json;
  json["command"] = parser.command_line();
  json["date"] = utc_now();
  json["records"] = mapped(runs, [](const RecordedRun& run) -> Json {
    return {{"policy", run.record.policy},
            {"scenario", run.record.scenario},
            {"started_at", run.record.started_at},
            {"ranks", run.record.world_size},
            {"steps", run.record.steps.size()},
            {"versions", *run.record.versions}};
  });
  return json;
}

/// How much longer the recorded all-reduces took beside compute, where --base tells.
std::string interference_text(const Profile& profile) {
  if (!profile.interference || !profile.interference->transfer) {
    return "";
  }
  const auto [low, high] = *profile.interference->transfer;
  return fmt::format(
      "all-reduces take {:.2f} times as long while a rank computes (90 %: {:.2f} to {:.2f})\n",
      1 + profile.interference->value.transfer,
      1 + low,
      1 + high);
}

}  // namespace

FitResult fit_imported(const OptionParser& parser,
                       const SampleSet& samples,
                       const std::string& files) {
  FitOptions options;
  options.name = std::filesystem::path(parser.text("profile")).stem().string();
  options.command = parser.command_line();
  options.date = utc_now();
  options.samples_file = files;
  options.base = read_base(parser);
  return fit_profile(samples, options);
}

void write_imported_profile(const OptionParser& parser,
                            const SampleSet& samples,
                            const std::string& files) {
  const std::string out = parser.text("profile");
  const FitResult result = fit_imported(parser, samples, files);
  write_profile(out, result.profile);
  if (out != "-") {
    const bool has_compute = result.profile.recorded || !result.profile.ops.empty();
    print_report(fmt::format("{}\nwrote {}\nnext: {}\n",
                             fit_report(result, output_screen()),
                             out,
                             has_compute
                                 ? "stepsim compare SCENARIO.toml --profile " + shell_word(out)
                                 : "stepcal import run-record RUN.jsonl --base " + shell_word(out) +
                                       " --profile mine.json   (adds the steps of a model)"));
  }
}

std::optional<Profile> read_base(const OptionParser& parser) {
  return parser.has("base") ? std::optional(read_profile(parser.text("base"))) : std::nullopt;
}

void write_recorded_profile(const OptionParser& parser,
                            const RecordedCosts& costs,
                            std::span<const RecordedRun> runs,
                            const Profile* base) {
  Profile profile = recorded_profile(costs, runs, base);
  const std::string out = parser.text("profile");
  profile.name = std::filesystem::path(out).stem().string();
  Json provenance = {{"recorded", recorded_provenance(parser, runs)}};
  if (base != nullptr) {
    provenance["base"] = {{"name", base->name}, {"provenance", *base->provenance}};
  }
  *profile.provenance = std::move(provenance);
  write_profile(out, profile);
  if (out != "-") {
    print_report(fmt::format("{}{}\nwrote {}\nnext: stepsim compare SCENARIO.toml --profile {}\n",
                             recorded_report(costs),
                             interference_text(profile),
                             out,
                             shell_word(out)));
  }
}

}  // namespace stepsim
