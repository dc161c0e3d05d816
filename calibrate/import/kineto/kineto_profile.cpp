#include "calibrate/import/kineto/kineto_profile.h"

#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "calibrate/fit/pass_fit.h"
#include "calibrate/import/import_samples.h"
#include "calibrate/import/recorded/recorded_import.h"
#include "calibrate/import/recorded/recorded_plan.h"

namespace stepsim {
namespace {

/// The steps on top of what the collectives and the base give. The collectives tell the all-reduces
/// better than a record does, since they are matched over ranks.
ImportedProfile profile_of_steps(const KinetoRecord& steps,
                                 const std::string& file,
                                 const std::optional<Profile>& base,
                                 const ProfileRequest& request) {
  const std::vector<RecordedRun> runs = {{*steps.record, recorded_plan(*steps.record, file), file}};
  RecordedCosts costs = fit_recorded_runs(runs);
  costs.reduces.clear();
  costs.all_reduces.clear();
  costs.notes.insert(costs.notes.begin(), steps.notes.begin(), steps.notes.end());
  costs.warnings.insert(costs.warnings.begin(), steps.warnings.begin(), steps.warnings.end());
  return profile_of_runs(costs, runs, base, request);
}

}  // namespace

std::string why_no_steps(const KinetoRecord& steps) {
  if (!steps.record) {
    return steps.problem;
  }
  const std::size_t rows = steps.record->steps.size();
  return rows >= kFewestPassSamples
             ? ""
             : fmt::format(
                   "{} steps of ranks are too few for a fit, which takes {}; trace more steps "
                   "(schedule(…, active=10))",
                   rows,
                   kFewestPassSamples);
}

ImportedProfile kineto_profile(const KinetoTaken& taken,
                               const std::vector<std::string>& files,
                               const Json& header,
                               const ProfileRequest& request) {
  const bool has_steps = why_no_steps(taken.steps).empty();
  if (has_steps && taken.samples.groups.empty()) {
    return profile_of_steps(taken.steps, files.front(), read_base(request), request);
  }
  ImportedProfile collectives =
      profile_of_samples(samples_of_imports(header, taken.samples.collectives),
                         fmt::format("{}", fmt::join(files, ", ")),
                         request);
  if (!has_steps) {
    return collectives;
  }
  ImportedProfile imported =
      profile_of_steps(taken.steps, files.front(), std::move(collectives.profile), request);
  imported.report = [first = std::move(collectives.report), second = std::move(imported.report)](
                        const Screen& screen) { return first(screen) + "\n" + second(screen); };
  return imported;
}

}  // namespace stepsim
