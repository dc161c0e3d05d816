#include "sim/report/buckets/best_buckets_report.h"

#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/terminal/table.h"
#include "sim/report/csv.h"
#include "sim/report/notes.h"
#include "sim/report/number_text.h"
#include "sim/scenario/stepsim_command.h"

namespace stepsim {

namespace {

/// Whether a share shows as 0.0 %.
bool shows_nothing(double share) {
  constexpr double kHalfOfLastDigit = 0.0005;
  return std::abs(share) < kHalfOfLastDigit;
}

/// "+12.3 % (90 % interval +8.1 to +15.0 %, more than 99 % likely to be faster)"
std::string gain_text(const Gain& gain) {
  if (shows_nothing(gain.gain)) {
    return fmt::format("less than 0.1 % (90 % interval {:+.1f} to {:+.1f} %)",
                       gain.interval.first * 100,
                       gain.interval.second * 100);
  }
  return fmt::format("{} ({})", signed_percent(gain.gain), certainty_text(gain));
}

std::string choice_name(const BucketChoice& choice) {
  if (choice.mib.empty()) {
    return "";
  }
  return choice.mib.size() == 1 ? choice.mib.front() + " MiB"
                                : fmt::format("{} limits", choice.mib.size());
}

/// Why this policy, where it is not the scenario's first.
std::string passed_over_text(const BestBuckets& best) {
  if (best.passed_over.empty()) {
    return "";
  }
  return fmt::format(
      "{} is the first policy that fits into memory; {} {} not\n",
      printable(best.list.prediction.policy),
      fmt::join(mapped(best.passed_over, [](const std::string& name) { return printable(name); }),
                ", "),
      best.passed_over.size() == 1 ? "does" : "do");
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
      "Tried over all steps: {} of the {} different ways in which single caps divide the "
      "gradients, and {} lists of limits. {}.\n",
      best.priced_caps,
      best.cap_lists,
      best.priced_lists,
      best.plain ? of_step : "A step without noise chose the lists, and the engine measured them");
}

/// Whether nothing gains enough to set other buckets.
bool keeps_buckets(const BestBuckets& best) {
  const BucketChoice* choice = &chosen_buckets(best);
  return choice == &best.standard || (best.own && choice == &*best.own);
}

/// The arguments and keys of what is faster; nothing where DDP's default stays.
std::string arguments_text(const BestBuckets& best) {
  const BucketChoice& choice = chosen_buckets(best);
  if (keeps_buckets(best)) {
    return "";
  }
  return fmt::format(
      "\nIn PyTorch, as an argument of DistributedDataParallel:\n  {}\n"
      "In the scenario, under [ddp]:\n{}",
      python_argument(choice),
      toml_lines(choice));
}

std::string best_headline(const BestBuckets& best) {
  const BucketChoice& choice = chosen_buckets(best);
  const std::string time =
      fmt::format("{:.3f} ms a step", choice.prediction.summary.step_time_ms.mean);
  if (best.own && &choice == &*best.own) {
    return fmt::format("{}: keep the scenario's own buckets ({}).",
                       nothing_to_gain_text(best.fastest_over_own),
                       time);
  }
  if (best.own) {
    return fmt::format("Use {}: {}, {} over the scenario's own buckets.",
                       &choice == &best.list       ? "the best list"
                       : &choice == &best.standard ? "DDP's default of 25 MiB"
                                                   : python_argument(choice),
                       time,
                       signed_percent(paired_gain(choice.prediction, best.own->prediction).gain));
  }
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
  const Gain& most = best.list_over_standard.gain > best.cap_over_standard.gain
                         ? best.list_over_standard
                         : best.cap_over_standard;
  const bool both_nothing = shows_nothing(most.gain);
  return fmt::format(
      "{}: keep DDP's default of 25 MiB ({}). {}.",
      nothing_to_gain_text(most),
      time,
      both_nothing ? "No bucket size gains as much as 0.1 %"
                   : fmt::format("The best cap gains {}, the best list {}: too little to tell",
                                 signed_percent(best.cap_over_standard.gain),
                                 signed_percent(best.list_over_standard.gain)));
}

/// The policy and the notes of all three choices.
std::vector<Prediction> predictions_of(const BestBuckets& best) {
  std::vector<Prediction> predictions;
  for (const BucketChoice* choice : {&best.standard, &best.cap, &best.list}) {
    predictions.push_back(noted(choice->prediction.notes).front());
  }
  return predictions;
}

/// What is told against: what the scenario has.
std::string over_now(const BestBuckets& best) {
  return best.own ? "over the scenario's" : "over 25 MiB";
}

std::string best_table(const BestBuckets& best, const Screen& screen) {
  Table table({"bucket size", "value", "buckets", "step ms", "exposed ms", over_now(best)});
  const Prediction& now = best.own ? best.own->prediction : best.standard.prediction;
  const auto add = [&](const char* name, const BucketChoice& choice) {
    const PredictionSummary& s = choice.prediction.summary;
    table.add({name,
               choice_name(choice),
               std::to_string(choice.buckets),
               fmt::format("{:.3f}", s.step_time_ms.mean),
               fmt::format("{:.3f}", s.exposed_transfer_ms()),
               signed_percent(paired_gain(choice.prediction, now).gain)});
  };
  add("DDP's default", best.standard);
  if (best.own) {
    add("the scenario's", *best.own);
  }
  add("best cap", best.cap);
  add("best list", best.list);
  return table.text(screen);
}

std::string next_text(const Scenario& scenario, const BestBuckets& best) {
  const BucketChoice& choice = chosen_buckets(best);
  const bool keeps = keeps_buckets(best);
  return fmt::format(
      "\nnext: {}\n",
      stepsim_command(keeps ? "blame" : "run",
                      scenario,
                      best.list.prediction.policy,
                      keeps ? std::vector<Setting>() : choice_settings(choice, scenario.ddp)));
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

}  // namespace

std::string best_buckets_text(const Scenario& scenario,
                              const BestBuckets& best,
                              const Screen& screen) {
  const std::string warnings = warnings_text(predictions_of(best));
  const auto over = [&](const BucketChoice& choice, const Gain& of_standard) {
    return gain_text(best.own ? paired_gain(choice.prediction, best.own->prediction) : of_standard);
  };
  return fmt::format(
             "{}: policy {}, {} ranks, profile {}\n{}\n{}\n{}\n\n"
             "best cap {}:  {}\n"
             "best list {}: {}\n"
             "best list over cap:{:{}}{}\n\n{}{}{}{}",
             scenario.name,
             best.list.prediction.policy,
             scenario.ranks,
             best.list.prediction.profile,
             passed_over_text(best),
             best_table(best, screen),
             painted(best_headline(best), Paint::Strong, screen),
             over_now(best),
             over(best.cap, best.cap_over_standard),
             over_now(best),
             over(best.list, best.list_over_standard),
             "",
             over_now(best).size() - 7,
             gain_text(best.list_over_cap),
             method_text(best),
             arguments_text(best),
             warnings.empty() ? "" : "\n",
             warnings) +
         next_text(scenario, best);
}

Json best_buckets_json(const Scenario& scenario, const BestBuckets& best) {
  Json json = {{"format", "stepsim-best-buckets/1"},
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
  if (best.own) {
    json["fastest_over_own"] = gain_json(best.fastest_over_own);
    json["keeps_own"] = &chosen_buckets(best) == &*best.own;
  }
  if (!best.passed_over.empty()) {
    json["policies_that_do_not_fit"] = best.passed_over;
  }
  return json;
}

std::string best_buckets_csv(const BestBuckets& best) {
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

}  // namespace stepsim
