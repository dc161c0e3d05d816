#include "calibrate/import/step_times/step_time_import.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "calibrate/import/recorded/recorded_plan.h"
#include "calibrate/import/step_times/step_time_advice.h"
#include "calibrate/import/step_times/step_time_profile.h"
#include "calibrate/import/step_times/step_time_report.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/base/row_named.h"
#include "costmodel/base/shell_word.h"
#include "costmodel/base/utc_time.h"
#include "costmodel/model/bucket_assignment.h"
#include "costmodel/model/model_presets.h"
#include "costmodel/model/tensor_list.h"
#include "costmodel/records/record_files.h"

namespace stepsim {
namespace {

/// What `read` makes of an option's text. Raises FieldError with the option's name.
template <typename Read>
auto read_option(const std::string& option, const std::string& text, const Read& read) {
  try {
    return read(text);
  } catch (const InputError& error) {
    throw FieldError(option, error.what());
  }
}

std::int64_t bytes_of(const std::string& option, const std::string& text) {
  return read_option(option, text, parse_bytes).value();
}

std::int64_t bytes_or(const std::string& option, const std::string& text, std::int64_t fallback) {
  return text.empty() ? fallback : bytes_of(option, text);
}

/// A chain of equal tensors, since only the bytes are known.
TransformerConfig chain_of_bytes(std::int64_t bytes) {
  constexpr std::int64_t kSize = 4;                              // fp32
  constexpr std::int64_t kTensorBytes = std::int64_t{4} << 20U;  // A layer of a common network.
  constexpr std::int64_t kMostTensors = 400;
  if (bytes < kSize) {
    throw FieldError("--gradient-bytes", "expected at least one gradient of 4 bytes");
  }
  const std::int64_t tensors = std::clamp<std::int64_t>(bytes / kTensorBytes, 1, kMostTensors);
  std::vector<TensorBlock> chain;
  for (std::int64_t i = 0; i < tensors; ++i) {
    const std::int64_t elements = bytes / kSize / tensors;
    chain.push_back({fmt::format("part{}", i), {std::max<std::int64_t>(elements, 1)}, 1, 1});
  }
  return tensor_chain("gradients", std::move(chain));
}

TransformerConfig chain_of_file(const std::string& path) {
  try {
    TensorList list = read_tensor_list(path);
    return tensor_chain(std::filesystem::path(path).stem().string(),
                        std::move(list.tensors),
                        list.dtype.value_or(Dtype::F32),
                        std::move(list.frozen));
  } catch (const FieldError& error) {
    throw InputError(SourcePlace{path}, error.what());
  }
}

/// Raises InputError for an unknown one, with this command's other ways to say a model.
const TransformerConfig& preset_of(const std::string& name) {
  const auto name_of_preset = [](const ModelPreset& preset) { return preset.config.name; };
  try {
    return row_named(model_presets(), name_of_preset, "model preset", name, Lookup::Models).config;
  } catch (const InputError& error) {
    throw InputError(std::string(error.what()) +
                         "; any other model: --gradient-bytes \"97 MiB\", or --tensors FILE, which "
                         "stepsim models config.json --csv FILE writes of a config.json",
                     error.lookup());
  }
}

TransformerConfig config_of(const StepTimeModel& model) {
  if (!model.is_one()) {
    throw InputError(kOneModel);
  }
  if (!model.preset.empty()) {
    return preset_of(model.preset);
  }
  if (!model.tensors.empty()) {
    return chain_of_file(model.tensors);
  }
  if (!model.record.empty()) {
    const std::vector<std::string> record = {model.record};
    const std::vector<RecordFile> files = read_record_files(record, nullptr);
    return recorded_plan(files.front().record, files.front().file).model;
  }
  return chain_of_bytes(bytes_of("--gradient-bytes", model.gradient_bytes));
}

std::optional<FittedLinks> read_links(const std::string& file) {
  if (file.empty()) {
    return std::nullopt;
  }
  std::optional<FittedLinks> links = read_profile(file).links;
  if (!links) {
    throw InputError(SourcePlace{file},
                     "has no links fitted to step times; make it with stepcal import step-times");
  }
  return links;
}

/// "8x4" or "8x4:12": a placement, on the largest batch or on a stated one.
StepTimeQuestion question_of(const std::string& text,
                             const StepTimeFit& fit,
                             const StepTimeTable& table) {
  const std::size_t colon = text.find(':');
  StepTimeQuestion question;
  question.placement = read_option("--ask", text.substr(0, colon), parse_placement);
  question.compute = fit.job.compute.size() - 1;
  question.micro_batches = common_micro_batches(table);
  if (colon != std::string::npos) {
    const auto known = mapped(
        fit.job.compute, [](const ComputePoint& point) { return fmt::format("{}", point.batch); });
    const auto found = std::ranges::find(known, text.substr(colon + 1));
    if (found == known.end()) {
      throw FieldError("--ask " + printable(text),
                       fmt::format("batches of the table are {}", fmt::join(known, ", ")));
    }
    question.compute = static_cast<std::size_t>(found - known.begin());
  }
  return question;
}

std::string command_of(const StepTimeImport& import) {
  std::vector<std::string> words = {import.table};
  for (const auto& [option, value] : {std::pair("--preset", import.model.preset),
                                      std::pair("--tensors", import.model.tensors),
                                      std::pair("--record", import.model.record),
                                      std::pair("--gradient-bytes", import.model.gradient_bytes),
                                      std::pair("--out", import.profile.out)}) {
    if (!value.empty()) {
      words.insert(words.end(), {option, value});
    }
  }
  return import_command_line("step-times", words);
}

/// The scenario's text, which names the profile as seen from the scenario's folder.
std::string scenario_of(const StepTimeImport& import,
                        const StepTimeFit& fit,
                        const StepTimeTable& table,
                        std::int64_t first,
                        std::int64_t cap) {
  if (import.scenario.empty()) {
    return "";
  }
  const std::filesystem::path folder = std::filesystem::path(import.scenario).parent_path();
  const std::filesystem::path named = std::filesystem::relative(
      std::filesystem::absolute(import.profile.out), folder.empty() ? "." : folder);
  return step_time_scenario(fit, table, named.string(), first, cap);
}

std::string report_of(const StepTimeFit& fit,
                      const StepTimeTable& table,
                      const std::vector<StepTimeQuestion>& questions,
                      const Screen& screen) {
  const std::vector<NextRun> next = rank_next_runs(fit, candidate_runs(fit, table), questions);
  std::string text = step_time_report(fit, table, questions, next, screen);
  for (const std::string& column : table.ignored) {
    text += fmt::format("note: column '{}' says nothing to this command\n", printable(column));
  }
  return text;
}

Profile profile_of(const StepTimeImport& import, const StepTimeFit& fit, std::size_t rows) {
  const std::optional<Profile> base = read_base(import.profile);
  Profile profile = step_time_profile(fit, base ? &*base : nullptr);
  const std::string& out = import.profile.out;
  profile.name = out == "-" ? "step_times" : std::filesystem::path(out).stem().string();
  const std::string& command = import.profile.command;
  (*profile.provenance)["step_times"] = {
      {"command", command.empty() ? command_of(import) : command},
      {"date", utc_now()},
      {"rows", rows}};
  return profile;
}

}  // namespace

bool StepTimeModel::is_one() const {
  return std::ranges::count_if(std::array{preset, tensors, record, gradient_bytes},
                               [](const std::string& text) { return !text.empty(); }) == 1;
}

/// The row with most ranks.
const StepTimeRow& largest_row(const StepTimeTable& table) {
  return *std::ranges::max_element(
      table.rows, {}, [](const StepTimeRow& row) { return row.placement.ranks(); });
}

/// The scenario's policy with the batch that was timed on most ranks.
std::string largest_policy(const StepTimeTable& table) {
  return fmt::format("batch_{}", largest_row(table).batch);
}

/// "cluster.placement=2x8,4x8,8x8": more nodes like the fullest that was timed.
std::string more_nodes(const StepTimeTable& table) {
  int fullest = 1;
  for (const StepTimeRow& row : table.rows) {
    fullest = std::max(fullest, row.placement.fullest());
  }
  return fmt::format("cluster.placement=2x{0},4x{0},8x{0}", fullest);
}

ImportedStepTimes import_step_times(const StepTimeImport& import) {
  keep_inputs(import.profile, {import.table, import.model.tensors, import.model.record});
  StepTimeTable table = read_step_times(import.table);
  const std::int64_t first =
      bytes_or("--first-bucket-cap", import.first_bucket_cap, kDefaultFirstBucketBytes);
  const std::int64_t cap = bytes_or("--bucket-cap", import.bucket_cap, kDefaultBucketCapBytes);
  const StepTimeJob job = step_time_job(table, config_of(import.model), first, cap);
  StepTimeFit fit =
      fit_step_times(table,
                     job,
                     read_links(import.links),
                     import.no_overlap ? std::optional(StepTimeForm::NoOverlap) : std::nullopt);
  std::vector<StepTimeQuestion> questions =
      mapped(import.ask, [&](const std::string& text) { return question_of(text, fit, table); });
  if (questions.empty()) {
    questions = usual_questions(fit, table);
  }
  ImportedStepTimes imported;
  imported.profile.profile = profile_of(import, fit, table.rows.size());
  imported.scenario = scenario_of(import, fit, table, first, cap);
  if (import.answers) {
    imported.answers = step_time_answers(fit, questions);
  }
  imported.profile.next = import.scenario.empty()
                              ? "give --scenario FILE.toml too, for stepsim sweep"
                              : fmt::format("stepsim sweep {} --policy {} --over {}",
                                            shell_word(import.scenario),
                                            largest_policy(table),
                                            more_nodes(table));
  imported.profile.report =
      [fit = std::move(fit), table = std::move(table), questions = std::move(questions)](
          const Screen& screen) { return report_of(fit, table, questions, screen); };
  return imported;
}

}  // namespace stepsim
