#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/io/json_file.h"
#include "costmodel/model/bucket_assignment.h"
#include "costmodel/terminal/progress.h"
#include "costmodel/terminal/table.h"
#include "sim/cli/cli.h"
#include "sim/cli/options.h"
#include "sim/predict/bucket_lists.h"
#include "sim/predict/predict.h"
#include "sim/predict/scenario_profile.h"
#include "sim/report/csv.h"
#include "sim/report/notes.h"
#include "sim/report/number_text.h"
#include "sim/scenario/stepsim_command.h"
#include "sim/study/best_buckets.h"

namespace stepsim {

namespace {

constexpr const char* kBucketsUsage =
    "usage: stepsim buckets SCENARIO [options]\n"
    "       stepsim buckets SCENARIO --best [--policy POLICY] [options]\n"
    "       stepsim buckets --params FILE [--json FILE|-]\n\n"
    "Prints the gradient buckets that PyTorch DDP makes: those of the first iteration and those\n"
    "after the rebuild, if there is one, in launch order. --best searches for the fastest: over "
    "all single caps, "
    "and\n"
    "over all lists of limits (bucket_cap_mb_list of PyTorch 2.11). --params reads parameter lists "
    "of the form {\"cases\": "
    "[{\"name\", \"params\":\n"
    "[{\"bytes\", \"dtype\", \"sparse\"}], \"ready_order\", \"first_bucket_bytes\", "
    "\"cap_bytes\"}]}.\n\n"
    "examples:\n"
    "  stepsim buckets scenarios/bucket_valley.toml --set ddp.bucket_cap=\"100 MiB\"\n"
    "  stepsim buckets scenarios/bucket_valley.toml --best\n"
    "  stepsim buckets --params my_model.json --json -\n";

/// One parameter list of a --params file.
struct BucketCase {
  std::string name;
  std::vector<BucketParameter> parameters;
  std::vector<int> ready_order;
  std::int64_t first_bytes = kDefaultFirstBucketBytes;
  std::int64_t cap_bytes = kDefaultBucketCapBytes;
};

void require_permutation(const JsonReader& reader, const BucketCase& bucket_case) {
  std::vector<bool> seen(bucket_case.parameters.size(), false);
  for (const int index : bucket_case.ready_order) {
    if (index < 0 || static_cast<std::size_t>(index) >= seen.size() ||
        seen[static_cast<std::size_t>(index)]) {
      reader.fail("ready_order", "must hold every parameter index exactly once");
    }
    seen[static_cast<std::size_t>(index)] = true;
  }
  if (bucket_case.ready_order.size() != seen.size()) {
    reader.fail("ready_order", "must hold every parameter index exactly once");
  }
}

BucketCase read_case(const Json& entry, const std::string& file, const std::string& place) {
  JsonReader reader(entry, file, 0, place);
  BucketCase result;
  result.name = reader.text("name");
  const Json& list = reader.get("params");
  if (!list.is_array() || list.empty()) {
    reader.fail("params", "expected a list of parameters");
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    JsonReader parameter(list[i], file, 0, place + ".params[" + std::to_string(i) + "]");
    BucketParameter one;
    one.bytes = parameter.integer("bytes");
    if (one.bytes <= 0) {
      parameter.fail("bytes", "must be positive");
    }
    one.dtype = parameter.text_or("dtype", "f32");
    one.sparse = parameter.boolean_or("sparse", false);
    result.parameters.push_back(std::move(one));
  }
  result.first_bytes = reader.integer_or("first_bucket_bytes", kDefaultFirstBucketBytes);
  result.cap_bytes = reader.integer_or("cap_bytes", kDefaultBucketCapBytes);
  if (result.first_bytes <= 0 || result.cap_bytes <= 0) {
    reader.fail("cap_bytes", "limits must be positive");
  }
  if (reader.has("ready_order")) {
    for (const Json& index : reader.get("ready_order")) {
      if (!index.is_number_unsigned() || index.get<std::uint64_t>() >= result.parameters.size()) {
        reader.fail("ready_order", "expected parameter indices");
      }
      result.ready_order.push_back(index.get<int>());
    }
    require_permutation(reader, result);
  } else {
    for (std::size_t i = result.parameters.size(); i-- > 0;) {
      result.ready_order.push_back(static_cast<int>(i));
    }
  }
  return result;
}

std::vector<BucketCase> read_cases(const std::string& path) {
  const Json file = parse_json(read_text(path), path);
  JsonReader reader(file, path, 0, "");
  const Json& list = reader.get("cases");
  if (!list.is_array()) {
    reader.fail("cases", "expected a list");
  }
  std::vector<BucketCase> cases;
  for (std::size_t i = 0; i < list.size(); ++i) {
    cases.push_back(read_case(list[i], path, "cases[" + std::to_string(i) + "]"));
  }
  return cases;
}

Json lists_json(const std::vector<Bucket>& buckets) {
  return mapped(buckets, &Bucket::parameters);
}

Json bytes_json(const std::vector<Bucket>& buckets,
                const std::vector<BucketParameter>& parameters) {
  return mapped(buckets, [&](const Bucket& bucket) { return bucket_bytes(bucket, parameters); });
}

std::string bytes_text(const std::vector<Bucket>& buckets,
                       const std::vector<BucketParameter>& parameters) {
  std::string text;
  for (const Bucket& bucket : buckets) {
    text += (text.empty() ? "" : ", ") + std::to_string(bucket_bytes(bucket, parameters));
  }
  return text;
}

Answer buckets_of_file(const OptionParser& parser) {
  Json result = Json::object();
  std::string text;
  for (const BucketCase& one : read_cases(parser.text("params"))) {
    const auto initial = initial_buckets(one.parameters, false, one.first_bytes, one.cap_bytes);
    const auto limited = initial_buckets(one.parameters, true, one.first_bytes, one.cap_bytes);
    const auto rebuilt =
        rebuilt_buckets(one.parameters, one.ready_order, one.first_bytes, one.cap_bytes);
    result[one.name] = {{"initial", lists_json(initial)},
                        {"initial_find_unused", lists_json(limited)},
                        {"rebuilt", lists_json(rebuilt)},
                        {"rebuilt_bytes", bytes_json(rebuilt, one.parameters)}};
    text += fmt::format("{}: {} tensors; rebuilt buckets in bytes: {}\n",
                        printable(one.name),
                        one.parameters.size(),
                        bytes_text(rebuilt, one.parameters));
  }
  Answer answer;
  answer.outputs = parser.outputs();
  answer.text = [=](const Screen&) { return text; };
  answer.json = [=] { return result; };
  return answer;
}

std::string table_text(const std::vector<Bucket>& buckets,
                       const std::vector<BucketParameter>& sizes,
                       const std::vector<Parameter>& tensors,
                       const Screen& screen) {
  Table table({"bucket", "bytes", "size", "tensors", "first ready", "last ready"});
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const std::int64_t bytes = bucket_bytes(buckets[b], sizes);
    const auto& list = buckets[b].parameters;
    table.add({std::to_string(b),
               std::to_string(bytes),
               format_bytes(Bytes(bytes)),
               std::to_string(list.size()),
               tensors[static_cast<std::size_t>(list.front())].name,
               tensors[static_cast<std::size_t>(list.back())].name});
  }
  return table.text(screen);
}

/// "cap 25 MiB", or "caps 1 MiB, 25 MiB"; or the rule that needs none.
std::string caps_text(const DdpOptions& ddp) {
  if (ddp.bucket_rule == BucketRule::PerParameter) {
    return "a bucket for each tensor";
  }
  if (ddp.bucket_rule == BucketRule::Single) {
    return "one bucket for all";
  }
  if (ddp.bucket_caps.empty()) {
    return "cap " + format_bytes(ddp.bucket_cap);
  }
  return fmt::format("caps {}", fmt::join(mapped(ddp.bucket_caps, format_bytes), ", "));
}

/// The lists of the first iterations and of those after the rebuild, where there is one.
std::string lists_text(const DdpOptions& ddp,
                       const std::string& initial,
                       const std::string& rebuilt) {
  switch (first_rebuilt(ddp)) {
    case 0:
      return fmt::format(
          "every iteration{}\n{}",
          ddp.find_unused_parameters ? ": with find_unused_parameters nothing is rebuilt" : "",
          initial);
    case 2:
      return fmt::format(
          "first iteration\n{}\nrebuilt, from the second iteration on\n{}", initial, rebuilt);
    default:
      return fmt::format(
          "first two iterations\n{}\nrebuilt, from the third iteration on (static_graph)\n{}",
          initial,
          rebuilt);
  }
}

/// "+12.3 % (90 % interval +8.1 to +15.0 %, more than 99 % likely to be faster)"
std::string gain_text(const Gain& gain) {
  return fmt::format("{} ({})", signed_percent(gain.gain), certainty_text(gain));
}

std::string choice_name(const BucketChoice& choice) {
  return choice.mib.size() == 1 ? choice.mib.front() + " MiB"
                                : fmt::format("{} limits", choice.mib.size());
}

/// How the choices were found, and what that says of them.
std::string method_text(const BestBuckets& best) {
  const std::string of_step =
      best.searched == 1
          ? "The list is the best of all for a step with equal loads"
          : fmt::format(
                "The list is the fastest of those that are best for one of {} typical steps",
                best.searched);
  return fmt::format(
      "Single caps make {} different lists of buckets, of which {} were priced over all steps; so "
      "were {} lists of limits. {}{}.\n",
      best.cap_lists,
      best.priced_caps,
      best.priced_lists,
      best.plain ? of_step
                 : "The recurrence of a plain step chose the lists, and the engine measured them",
      best.plain ? ", by the recurrence" : "");
}

/// What to set: the list only where it gains enough over the cap, and either over the default.
const BucketChoice& chosen(const BestBuckets& best) {
  if (best.list_over_cap.is_certain() && best.list_over_standard.is_certain()) {
    return best.list;
  }
  return best.cap_over_standard.is_certain() ? best.cap : best.standard;
}

std::string best_headline(const BestBuckets& best) {
  const BucketChoice& choice = chosen(best);
  const std::string time =
      fmt::format("{:.3f} ms a step", choice.prediction.summary.step_time_ms.mean);
  if (&choice == &best.list) {
    return fmt::format("Use the best list: {}, {} over the best cap and {} over 25 MiB.",
                       time,
                       signed_percent(best.list_over_cap.gain),
                       signed_percent(best.list_over_standard.gain));
  }
  if (&choice == &best.cap) {
    return fmt::format(
        "Use {}: {}, {} over 25 MiB. What the best list gains over it, {}, is too little to tell.",
        python_argument(choice),
        time,
        signed_percent(best.cap_over_standard.gain),
        signed_percent(best.list_over_cap.gain));
  }
  return fmt::format(
      "Keep DDP's default of 25 MiB: {}. What the best cap and the best list gain, {} and {}, is "
      "too little to tell.",
      time,
      signed_percent(best.cap_over_standard.gain),
      signed_percent(best.list_over_standard.gain));
}

/// The policy and the notes of all three choices.
std::vector<Prediction> predictions_of(const BestBuckets& best) {
  std::vector<Prediction> predictions;
  for (const BucketChoice* choice : {&best.standard, &best.cap, &best.list}) {
    predictions.push_back(noted(choice->prediction.notes).front());
  }
  return predictions;
}

std::string best_text(const Scenario& scenario, const BestBuckets& best, const Screen& screen) {
  Table table({"bucket size", "value", "buckets", "step ms", "exposed ms", "over 25 MiB"});
  const auto add = [&](const char* name, const BucketChoice& choice, const Gain& over) {
    const PredictionSummary& s = choice.prediction.summary;
    table.add({name,
               choice_name(choice),
               std::to_string(choice.buckets),
               fmt::format("{:.3f}", s.step_time_ms.mean),
               fmt::format("{:.3f}", s.exposed_communication_ms),
               signed_percent(over.gain)});
  };
  add("DDP's default", best.standard, {});
  add("best cap", best.cap, best.cap_over_standard);
  add("best list", best.list, best.list_over_standard);
  const std::string warnings = warnings_text(predictions_of(best));
  return fmt::format(
      "{}: policy {}, {} ranks, profile {}\n\n{}\n"
      "best cap over 25 MiB:  {}\n"
      "best list over 25 MiB: {}\n"
      "best list over cap:    {}\n\n{}\n\n{}\n"
      "In PyTorch, as arguments of DistributedDataParallel:\n  {}\n  {}\n"
      "In the scenario, under [ddp]:\n{}{}{}",
      scenario.name,
      best.list.prediction.policy,
      scenario.ranks,
      best.list.prediction.profile,
      table.text(screen),
      gain_text(best.cap_over_standard),
      gain_text(best.list_over_standard),
      gain_text(best.list_over_cap),
      painted(best_headline(best), Paint::Strong, screen),
      method_text(best),
      python_argument(best.cap),
      python_argument(best.list),
      toml_lines(best.list),
      warnings.empty() ? "" : "\n",
      warnings);
}

Json gain_json(const Gain& gain) {
  return {{"gain", gain.gain},
          {"interval90", {gain.interval.first, gain.interval.second}},
          {"faster_share", gain.faster_share}};
}

Json choice_json(const BucketChoice& choice) {
  const PredictionSummary& s = choice.prediction.summary;
  const DdpOptions& ddp = choice.ddp;
  const std::vector<Bytes> limits = ddp.bucket_caps.empty()
                                        ? std::vector<Bytes>{ddp.first_bucket_cap, ddp.bucket_cap}
                                        : ddp.bucket_caps;
  return {{"python", python_argument(choice)},
          {"toml", toml_lines(choice)},
          {"limits_bytes", mapped(limits, &Bytes::value)},
          {"buckets", choice.buckets},
          {"step_ms", s.step_time_ms.mean},
          {"step_interval90_ms", {s.step_time_ms.low90, s.step_time_ms.high90}},
          {"exposed_communication_ms", s.exposed_communication_ms}};
}

Json best_json(const Scenario& scenario, const BestBuckets& best) {
  return {{"format", "stepsim-best-buckets/1"},
          {"scenario", scenario.name},
          {"policy", best.list.prediction.policy},
          {"profile", best.list.prediction.profile},
          {"ranks", scenario.ranks},
          {"default", choice_json(best.standard)},
          {"best_cap", choice_json(best.cap)},
          {"best_list", choice_json(best.list)},
          {"best_cap_over_default", gain_json(best.cap_over_standard)},
          {"best_list_over_default", gain_json(best.list_over_standard)},
          {"best_list_over_best_cap", gain_json(best.list_over_cap)},
          {"lists_of_single_caps", best.cap_lists},
          {"priced_caps", best.priced_caps},
          {"priced_lists", best.priced_lists},
          {"searched_steps", best.searched},
          {"by_recurrence", best.plain},
          {"warnings", note_texts(predictions_of(best))}};
}

std::string best_csv(const BestBuckets& best) {
  std::string csv = "bucket_size,buckets,step_ms,exposed_communication_ms,python\n";
  for (const auto& [name, choice] : {std::pair("default", &best.standard),
                                     std::pair("best_cap", &best.cap),
                                     std::pair("best_list", &best.list)}) {
    const PredictionSummary& s = choice->prediction.summary;
    csv += fmt::format("{},{},{},{},{}\n",
                       name,
                       choice->buckets,
                       s.step_time_ms.mean,
                       s.exposed_communication_ms,
                       csv_field(python_argument(*choice)));
  }
  return csv;
}

Answer best_answer(const CommonOptions& common,
                   const Scenario& scenario,
                   const std::string& policy) {
  Progress progress("searching for the best buckets");
  const BestBuckets best = best_buckets(scenario,
                                        find_policy(scenario, policy),
                                        scenario_profile(scenario),
                                        PredictOptions{}.noise_runs,
                                        progress.callback());
  progress.done();
  Answer answer;
  answer.status = chosen(best).prediction.out_of_memory ? kAnswerIsNo : kDone;
  answer.outputs = common.outputs;
  answer.text = [=](const Screen& screen) {
    const bool keeps = &chosen(best) == &best.standard;
    return best_text(scenario, best, screen) +
           fmt::format("\nnext: {}\n",
                       stepsim_command(keeps ? "blame" : "run",
                                       scenario,
                                       best.list.prediction.policy,
                                       keeps ? std::vector<std::string>()
                                             : choice_settings(chosen(best), scenario.ddp)));
  };
  answer.json = [=] { return best_json(scenario, best); };
  answer.csv = [=] { return best_csv(best); };
  return answer;
}

}  // namespace

Answer buckets_command(const Request& request) {
  OptionParser parser("buckets", kBucketsUsage, request);
  parser.add_common();
  parser.add({{"best", option_flag(), "search for the best cap and the best list of limits"},
              {"policy", option_value<std::string>(""), "POLICY: of the scenario, for --best"},
              {"params", option_text(), "FILE or -: parameter lists (JSON)"}});
  if (!parser.parse()) {
    return {};
  }
  if (parser.has("params")) {
    if (parser.has("scenario")) {
      parser.fail("give a scenario or --params, not both");
    }
    if (parser.has("best")) {
      parser.fail("--best needs a scenario, which has times");
    }
    return buckets_of_file(parser);
  }
  const CommonOptions common = parser.common();
  const Scenario scenario = load_scenario(common);
  if (scenario.model_is_unknown) {
    throw InputError("model.kind: {} is not there yet, and it holds the model",
                     printable(scenario.profile));
  }
  if (parser.has("best")) {
    return best_answer(common, scenario, parser.text("policy"));
  }
  const DdpBuckets lists = bucket_lists(scenario);
  const auto sizes = bucket_parameters(scenario.model);
  const auto tensors = parameters(scenario.model);
  Answer answer;
  answer.outputs = common.outputs;
  answer.text = [=](const Screen& screen) {
    return fmt::format("{}: {} tensors, {} parameters, {}\n\n{}",
                       scenario.model.name,
                       tensors.size(),
                       parameter_count(scenario.model),
                       caps_text(scenario.ddp),
                       lists_text(scenario.ddp,
                                  table_text(lists.initial, sizes, tensors, screen),
                                  table_text(lists.rebuilt, sizes, tensors, screen)));
  };
  answer.json = [=, from = first_rebuilt(scenario.ddp)]() -> Json {
    return {{"model", scenario.model.name},
            {"initial", lists_json(lists.initial)},
            {"initial_bytes", bytes_json(lists.initial, sizes)},
            {"rebuilt", lists_json(lists.rebuilt)},
            {"rebuilt_bytes", bytes_json(lists.rebuilt, sizes)},
            {"rebuilt_from_iteration", from > 0 ? Json(from) : Json(nullptr)}};
  };
  answer.csv = [=] {
    std::string csv = "bucket,bytes,tensors\n";
    for (std::size_t b = 0; b < lists.rebuilt.size(); ++b) {
      csv += fmt::format("{},{},{}\n",
                         b,
                         bucket_bytes(lists.rebuilt[b], sizes),
                         lists.rebuilt[b].parameters.size());
    }
    return csv;
  };
  return answer;
}

}  // namespace stepsim
