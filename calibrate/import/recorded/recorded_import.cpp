#include "calibrate/import/recorded/recorded_import.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "calibrate/import/recorded/recorded_compiles.h"
#include "calibrate/import/recorded/recorded_plan.h"
#include "calibrate/import/recorded/recorded_sharding.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/shell_word.h"
#include "costmodel/base/utc_time.h"
#include "costmodel/records/record_files.h"

namespace stepsim {
namespace {

std::vector<Plan> read_plans(const std::vector<std::string>& paths) {
  std::vector<Plan> plans;
  for (const std::string& path : paths) {
    plans.push_back(read_plan(path));
    for (std::size_t i = 0; i + 1 < plans.size(); ++i) {
      if (plans[i].policy == plans.back().policy) {
        throw InputError(SourcePlace{path},
                         "a second plan of policy '" + printable(plans.back().policy) + "'");
      }
    }
  }
  return plans;
}

/// The record's own plan; a single plan serves records that name no policy.
Plan plan_of(const RunRecord& record, const std::string& path, const std::vector<Plan>& plans) {
  for (const Plan& plan : plans) {
    if (plan.policy == record.policy || (record.policy.empty() && plans.size() == 1)) {
      return plan;
    }
  }
  throw InputError(
      SourcePlace{path}, "recorded policy '{}', and no --plan is of it", printable(record.policy));
}

/// Says which shapes stepsim_calibrate.py skipped.
void add_skipped(const RecordFile& file, std::vector<std::string>* warnings) {
  if (!file.record.training->contains("calibration")) {
    return;
  }
  JsonReader calibration((*file.record.training)["calibration"], file.file, 1, "calibration");
  for (JsonReader& shape : calibration.objects("skipped")) {
    warnings->push_back(fmt::format("{}: skipped {} samples x {}: {}",
                                    printable(file.file),
                                    shape.integer("samples"),
                                    shape.integer("length"),
                                    printable(shape.text("why"))));
  }
}

/// The records, each with what it ran. `warnings`: gets what is odd about them.
std::vector<RecordedRun> read_runs(const RunRecordImport& import,
                                   std::vector<std::string>* warnings) {
  const std::vector<Plan> plans = read_plans(import.plans);
  std::vector<RecordFile> files = read_record_files(import.records, warnings);
  // Without any plan the records have to describe what ran.
  std::vector<Plan> ran = plans.empty() ? recorded_plans(files) : std::vector<Plan>{};
  std::vector<RecordedRun> runs;
  for (std::size_t i = 0; i < files.size(); ++i) {
    RecordFile& file = files[i];
    Plan plan = plans.empty() ? std::move(ran[i]) : plan_of(file.record, file.file, plans);
    check_gradients(file, plan.model);
    add_skipped(file, warnings);
    runs.push_back({std::move(file.record), std::move(plan), file.file});
  }
  return runs;
}

std::string command_of(const RunRecordImport& import) {
  std::vector<std::string> words = import.records;
  for (const std::string& plan : import.plans) {
    words.insert(words.end(), {"--plan", plan});
  }
  if (!import.profile.base.empty()) {
    words.insert(words.end(), {"--base", import.profile.base});
  }
  words.insert(words.end(), {"--profile", import.profile.out});
  return import_command_line("run-record", words);
}

Json recorded_provenance(const std::string& command, std::span<const RecordedRun> runs) {
  Json json;
  json["command"] = command;
  json["date"] = utc_now();
  json["records"] = mapped(runs, [](const RecordedRun& run) -> Json {
    const auto [from, to] = clock_span(run.record);
    return {{"policy", run.record.policy},
            {"scenario", run.record.scenario},
            {"started_at", run.record.started_at},
            {"host", run.record.host},
            {"clock_ms", {from, to}},
            {"ranks", run.record.world_size},
            {"steps", run.record.steps.size()},
            {"versions", *run.record.versions}};
  });
  return json;
}

/// How much longer the recorded all-reduces took beside compute, where the base tells.
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

ImportedProfile profile_of_runs(const RecordedCosts& costs,
                                std::span<const RecordedRun> runs,
                                const std::optional<Profile>& base,
                                const ProfileRequest& request) {
  ImportedProfile imported;
  Profile& profile = imported.profile;
  profile = recorded_profile(costs, runs, base ? &*base : nullptr);
  profile.name = std::filesystem::path(request.out).stem().string();
  *profile.provenance = {{"recorded", recorded_provenance(request.command, runs)}};
  if (base) {
    (*profile.provenance)["base"] = {{"name", base->name}, {"provenance", *base->provenance}};
  }
  imported.report = [text = recorded_report(costs) +
                            interference_text(profile)](const Screen& /*screen*/) { return text; };
  imported.next = "stepsim compare SCENARIO.toml --profile " + shell_word(request.out);
  imported.warnings = costs.warnings;
  return imported;
}

namespace {

void add_compiles(const SteadyCompiled& compiled, RecordedCosts& costs) {
  costs.notes.insert(costs.notes.begin(), compiled.notes.begin(), compiled.notes.end());
  if (compiled.cost) {
    costs.new_shapes.push_back(*compiled.cost);
  }
}

/// A profile of steps under fully_shard: compute is fitted as that of other records, without what
/// gathers, reductions and hooks take of it.
ImportedProfile profile_of_sharded(const SteadyCompiled& compiled,
                                   RecordedForm form,
                                   const std::vector<std::string>& warnings,
                                   const ProfileRequest& request) {
  const std::optional<Profile> base = read_base(request);
  RecordedSharding sharding = fit_recorded_sharding(compiled.runs, base ? &*base : nullptr);
  sharding.whole_steps = sharding.whole_steps || form == RecordedForm::WholeSteps;
  const std::vector<RecordedRun> runs = without_sharding(compiled.runs, sharding);
  RecordedCosts costs = fit_recorded_runs(runs, form);
  sharding.whole_steps = costs.whole.has_value();
  costs.warnings.insert(costs.warnings.begin(), warnings.begin(), warnings.end());
  add_sharding(sharding, costs);
  add_compiles(compiled, costs);
  const bool has_all_reduces =
      base && std::ranges::any_of(base->collectives, [&](const CollectiveCost& cost) {
        return cost.kind == "all_reduce" && cost.ranks == costs.ranks;
      });
  if (!has_all_reduces && !costs.whole && costs.ranks > 1) {
    costs.warnings.emplace_back(
        "no all-reduce times: DDP is priced as if an all-reduce took as long as a gather of as "
        "many "
        "bytes; measure all_reduce, all_gather and reduce_scatter with all_reduce.py and give "
        "--base");
  }
  ImportedProfile imported = profile_of_runs(costs, runs, base, request);
  add_sharding(sharding, costs.ranks, imported.profile);
  return imported;
}

}  // namespace

ImportedProfile import_run_records(const RunRecordImport& import) {
  if (import.records.empty()) {
    throw InputError("no run record given");
  }
  keep_inputs(import.profile, import.records);
  keep_inputs(import.profile, import.plans);
  std::vector<std::string> warnings;
  std::vector<RecordedRun> runs = read_runs(import, &warnings);
  ProfileRequest request = import.profile;
  if (request.command.empty()) {
    request.command = command_of(import);
  }
  const bool sharded = are_sharded(runs);
  const SteadyCompiled compiled = without_compiles(std::move(runs));
  if (sharded) {
    return profile_of_sharded(compiled, import.form, warnings, request);
  }
  RecordedCosts costs = fit_recorded_runs(compiled.runs, import.form);
  costs.warnings.insert(costs.warnings.begin(), warnings.begin(), warnings.end());
  add_compiles(compiled, costs);
  return profile_of_runs(costs, compiled.runs, read_base(request), request);
}

}  // namespace stepsim
