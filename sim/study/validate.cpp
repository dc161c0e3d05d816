#include "sim/study/validate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "sim/predict/metrics.h"

namespace stepsim {

namespace {

/// Why the batches of a record are not those of its prediction.
std::string other_plan(const Prediction& prediction, const RunRecord& record) {
  if (record.plan_profile_id.empty() || record.plan_profile_id == prediction.profile_id) {
    return "it was run from another plan: the scenario has other samples than the training "
           "(stepsim advise RECORD --lengths FILE makes one with the tokens of each), or another "
           "seed, or the policy plans by predicted time and had another profile (--profile)";
  }
  return fmt::format(
      "its plan was made with profile '{}' (id {}), the prediction with '{}' (id {}), and policies "
      "that plan by predicted time follow their profile: predict with --profile and the former, or "
      "plan and run again",
      printable(record.plan_profile),
      printable(record.plan_profile_id),
      printable(prediction.profile),
      printable(prediction.profile_id));
}

void require_same_batches(const Prediction& prediction, const RunRecord& record) {
  std::map<std::pair<int, int>, const RankStepResult*> planned;
  for (const RankStepResult& row : prediction.steps) {
    planned[{row.step, row.rank}] = &row;
  }
  for (const StepRecord& row : record.steps) {
    const auto found = planned.find({row.step, row.rank});
    const std::string place = fmt::format(
        "policy '{}', step {}, rank {}: ", printable(record.policy), row.step, row.rank);
    if (found == planned.end()) {
      throw InputError(place + "the record has it, the scenario's plan does not");
    }
    const RankStepResult& plan = *found->second;
    if (plan.samples == 0 && row.samples == 1) {
      continue;  // All ranks take part in a step: one without samples runs any one of them.
    }
    if (plan.useful_tokens != row.useful_tokens || plan.padded_tokens != row.padded_tokens) {
      throw InputError(
          place + fmt::format("the record ran {} useful and {} padded tokens, the plan has {} and "
                              "{}; {}",
                              row.useful_tokens,
                              row.padded_tokens,
                              plan.useful_tokens,
                              plan.padded_tokens,
                              other_plan(prediction, record)));
    }
  }
}

double relative(double predicted, double measured) {
  return measured > 0 ? (predicted - measured) / measured : 0;
}

/// Returns the mean over steps of |relative error|, where a step's measurement is its mean over the
/// passes.
double per_step_error(const std::map<int, double>& predicted, const LiveRun& run) {
  return mean(mapped(run.by_step, [&](const auto& step) {
    return std::abs(relative(predicted.at(step.first), mean(step.second)));
  }));
}

double fraction_below(const std::vector<double>& values, double limit) {
  const auto below = std::ranges::count_if(values, [&](double value) { return value < limit; });
  return static_cast<double>(below) / static_cast<double>(values.size());
}

/// Returns the parts of the predicted mean step. The exposed wait counts as backward when the live
/// run does not state it.
StepParts predicted_parts(const PredictionSummary& summary, const LiveRun& run) {
  StepParts parts;
  parts.data = summary.data_ms;
  parts.forward = summary.forward_ms;
  parts.backward = summary.backward_ms;
  parts.exposed = summary.exposed_communication_ms;
  parts.optimizer = summary.optimizer_ms;
  if (!run.states_wait) {
    parts.backward += std::exchange(parts.exposed, 0);
  }
  parts.other = summary.step_time_ms.mean - parts.data - parts.forward - parts.backward -
                parts.exposed - parts.optimizer;
  return parts;
}

/// The prediction's intervals for the recorded steps, whose mean is `scale` times that of all;
/// `beside_recording`: those of the same hour.
std::vector<MeanInterval> of_recorded_steps(const std::vector<MeanInterval>& intervals,
                                            double scale,
                                            bool beside_recording) {
  return mapped(intervals, [&](MeanInterval one) {
    for (double* end : {&one.low, &one.high, &one.same_hour_low, &one.same_hour_high}) {
      *end *= scale;
    }
    if (beside_recording) {
      one.low = one.same_hour_low;
      one.high = one.same_hour_high;
    }
    return one;
  });
}

/// Makes the times of all steps those of the recorded ones. `planned`: [step] milliseconds without
/// noise, which stays in proportion.
void take_recorded_steps(const std::map<int, double>& planned,
                         const LiveRun& run,
                         StepTimeSummary& times) {
  std::vector<double> all_ms;
  std::vector<double> recorded_ms;
  for (const auto& [step, ms] : planned) {
    all_ms.push_back(ms);
    if (run.by_step.contains(step)) {
      recorded_ms.push_back(ms);
    }
  }
  for (double* time : {&times.mean,
                       &times.low90,
                       &times.high90,
                       &times.same_hour_low90,
                       &times.same_hour_high90}) {
    *time *= mean(recorded_ms) / mean(all_ms);
  }
  // The recorded steps may be the short ones or the long ones: each quantile has a ratio of its
  // own.
  for (const auto& [time, q] : {std::pair(&times.p50, 0.5),
                                std::pair(&times.p95, 0.95),
                                std::pair(&times.p99, 0.99),
                                std::pair(&times.max, 1.0)}) {
    *time *= step_quantile(recorded_ms, q) / step_quantile(all_ms, q);
  }
}

/// The prediction of the recorded steps alone. Noise and errors stay in proportion to the times.
PredictionSummary of_recorded_steps(const Prediction& prediction,
                                    int warmup_steps,
                                    const LiveRun& run) {
  const std::map<int, double> planned = step_times(prediction.steps, warmup_steps);
  if (run.by_step.size() == planned.size()) {
    return prediction.summary;
  }
  std::vector<RankStepResult> all;
  std::vector<RankStepResult> recorded;
  for (const RankStepResult& row : prediction.steps) {
    if (row.step >= warmup_steps) {
      all.push_back(row);
      if (run.by_step.contains(row.step)) {
        recorded.push_back(row);
      }
    }
  }
  // The mean over the recorded steps, where `whole` is that over all.
  const auto scaled = [&](double whole, auto member) {
    const auto mean_of = [&](const std::vector<RankStepResult>& rows) {
      return sum_of(rows,
                    [&](const RankStepResult& row) { return static_cast<double>(row.*member); }) /
             static_cast<double>(rows.size());
    };
    const double mean_of_all = mean_of(all);
    return mean_of_all > 0 ? whole * mean_of(recorded) / mean_of_all : whole;
  };
  PredictionSummary summary = prediction.summary;
  take_recorded_steps(planned, run, summary.step_time_ms);
  summary.samples_per_step = scaled(summary.samples_per_step, &RankStepResult::samples);
  summary.useful_tokens_per_step =
      scaled(summary.useful_tokens_per_step, &RankStepResult::useful_tokens);
  summary.padded_tokens_per_step =
      scaled(summary.padded_tokens_per_step, &RankStepResult::padded_tokens);
  summary.data_ms = scaled(summary.data_ms, &RankStepResult::data_ms);
  summary.forward_ms = scaled(summary.forward_ms, &RankStepResult::forward_ms);
  summary.backward_ms = scaled(summary.backward_ms, &RankStepResult::backward_ms);
  summary.exposed_communication_ms =
      scaled(summary.exposed_communication_ms, &RankStepResult::exposed_ms);
  summary.optimizer_ms = scaled(summary.optimizer_ms, &RankStepResult::optimizer_ms);
  return summary;
}

PolicyValidation compare_policy(const Prediction& prediction,
                                const std::vector<const RunRecord*>& records,
                                int warmup_steps,
                                const std::vector<RecordingSpan>& recordings,
                                std::vector<std::string>& warnings) {
  for (const RunRecord* record : records) {
    require_same_batches(prediction, *record);
  }
  const LiveRun run = join_live_runs(records, warmup_steps);
  warnings.insert(warnings.end(), run.warnings.begin(), run.warnings.end());
  const std::map<int, double> planned = step_times(prediction.steps, warmup_steps);
  if (run.by_step.size() < planned.size()) {
    warnings.push_back(
        fmt::format("policy '{}': {} of {} steady steps were recorded, which the "
                    "prediction is taken of",
                    printable(prediction.policy),
                    run.by_step.size(),
                    planned.size()));
  }
  PolicyValidation result;
  result.policy = prediction.policy;
  const PredictionSummary summary = of_recorded_steps(prediction, warmup_steps, run);
  result.predicted = summary.step_time_ms;
  result.beside_recording = std::ranges::all_of(
      records, [&](const RunRecord* record) { return ran_beside(*record, recordings); });
  if (result.beside_recording) {
    result.predicted.low90 = result.predicted.same_hour_low90;
    result.predicted.high90 = result.predicted.same_hour_high90;
  }
  result.intervals =
      of_recorded_steps(prediction.intervals,
                        summary.step_time_ms.mean / prediction.summary.step_time_ms.mean,
                        result.beside_recording);
  result.measured_mean = mean(run.step_ms);
  result.measured_p50 = step_quantile(run.step_ms, 0.5);
  result.measured_p95 = step_quantile(run.step_ms, 0.95);
  result.error_mean = relative(result.predicted.mean, result.measured_mean);
  result.error_p50 = relative(result.predicted.p50, result.measured_p50);
  result.error_p95 = relative(result.predicted.p95, result.measured_p95);
  result.step_error = per_step_error(planned, run);
  result.repeatability = repeatability(run);
  result.standard_error = standard_error(run);
  result.files = static_cast<int>(records.size());
  for (const auto& passes : run.pass_means) {
    result.repeats += static_cast<int>(passes.size());
  }
  result.covered = result.measured_mean >= result.predicted.low90 &&
                   result.measured_mean <= result.predicted.high90;
  result.below_p50 = fraction_below(run.step_ms, result.predicted.p50);
  result.below_p95 = fraction_below(run.step_ms, result.predicted.p95);
  result.measured_steps = static_cast<int>(run.step_ms.size());
  for (const auto& [step, times] : run.by_step) {
    result.measured_by_step[step] = mean(times);
  }
  result.predicted_parts = predicted_parts(summary, run);
  result.measured_parts = run.parts;
  result.states_wait = run.states_wait;
  result.predicted_tokens_per_s = summary.useful_tokens_per_s();
  result.measured_tokens_per_s = summary.useful_tokens_per_step * 1e3 / result.measured_mean;
  return result;
}

double machine_speed(const std::vector<RunRecord>& records, double calibration_seconds) {
  std::vector<double> sentinel;
  for (const RunRecord& record : records) {
    sentinel.insert(sentinel.end(), record.sentinel_ms.begin(), record.sentinel_ms.end());
  }
  if (sentinel.empty() || calibration_seconds <= 0) {
    return 0;
  }
  return quantile(sentinel, 0.5) * 1e-3 / calibration_seconds;
}

/// Returns +1 when both orders agree on a pair, -1 when they disagree and 0 for a tie.
int agreement(double a_difference, double b_difference) {
  const double agree = a_difference * b_difference;
  return agree > 0 ? 1 : (agree < 0 ? -1 : 0);
}

/// Returns the smallest difference in measured tokens per second that the live runs can tell from
/// zero.
std::optional<double> smallest_difference(const PolicyValidation& a, const PolicyValidation& b) {
  if (!a.resolution() || !b.resolution()) {
    return std::nullopt;
  }
  return std::hypot(*a.resolution() * a.measured_tokens_per_s,
                    *b.resolution() * b.measured_tokens_per_s);
}

void compare_order(Validation& validation) {
  const auto& policies = validation.policies;
  std::vector<double> predicted;
  std::vector<double> measured;
  double score = 0;
  for (std::size_t i = 0; i < policies.size(); ++i) {
    predicted.push_back(policies[i].predicted_tokens_per_s);
    measured.push_back(policies[i].measured_tokens_per_s);
    for (std::size_t j = 0; j < i; ++j) {
      const auto smallest = smallest_difference(policies[i], policies[j]);
      validation.pairs += 1;
      if (smallest && std::abs(measured[i] - measured[j]) > *smallest) {
        validation.distinguishable_pairs += 1;
        score += agreement(predicted[i] - predicted[j], measured[i] - measured[j]);
      }
    }
  }
  validation.kendall_tau = kendall_tau(predicted, measured);
  if (validation.distinguishable_pairs > 0) {
    validation.distinguishable_kendall_tau = score / validation.distinguishable_pairs;
  }
}

void compare_recommendation(Validation& validation) {
  const PolicyValidation* recommended = nullptr;
  const PolicyValidation* best = nullptr;
  for (const PolicyValidation& policy : validation.policies) {
    if (policy.reference) {
      continue;
    }
    if (recommended == nullptr ||
        policy.predicted_tokens_per_s > recommended->predicted_tokens_per_s) {
      recommended = &policy;
    }
    if (best == nullptr || policy.measured_tokens_per_s > best->measured_tokens_per_s) {
      best = &policy;
    }
  }
  if (recommended == nullptr) {
    return;
  }
  validation.recommended = recommended->policy;
  validation.truly_best = best->policy;
  validation.regret = best->measured_tokens_per_s / recommended->measured_tokens_per_s - 1;
  if (const auto difference = smallest_difference(*recommended, *best)) {
    validation.regret_resolution = *difference / recommended->measured_tokens_per_s;
  }
}

void add_coverage(Validation& validation) {
  double steps = 0;
  for (const PolicyValidation& policy : validation.policies) {
    validation.coverage += policy.covered ? 1 : 0;
    validation.below_p50 += policy.below_p50 * policy.measured_steps;
    validation.below_p95 += policy.below_p95 * policy.measured_steps;
    steps += policy.measured_steps;
  }
  validation.coverage /= static_cast<double>(validation.policies.size());
  validation.below_p50 /= steps;
  validation.below_p95 /= steps;
}

/// Warns of policies that were only predicted or only recorded.
void warn_of_missing(const std::vector<Prediction>& predictions,
                     const std::map<std::string, std::vector<const RunRecord*>>& live,
                     std::vector<std::string>& warnings) {
  std::set<std::string> predicted;
  std::string not_recorded;
  for (const Prediction& prediction : predictions) {
    predicted.insert(prediction.policy);
    if (live.count(prediction.policy) == 0) {
      not_recorded += (not_recorded.empty() ? "" : ", ") + printable(prediction.policy);
    }
  }
  for (const auto& [policy, records] : live) {
    if (predicted.count(policy) == 0) {
      warnings.push_back("policy '" + printable(policy) +
                         "' was recorded but is not in the scenario");
    }
  }
  if (!not_recorded.empty()) {
    warnings.push_back("no live run of " + not_recorded +
                       ": order and regret are for the other policies");
  }
}

}  // namespace

std::optional<double> PolicyValidation::resolution() const {
  return standard_error ? std::optional(kRealErrors * *standard_error) : std::nullopt;
}

bool PolicyValidation::within_repeatability() const {
  return standard_error && std::abs(error_mean) <= *resolution();
}

bool Validation::holds(double bound) const {
  return std::ranges::all_of(policies, [&](const PolicyValidation& policy) {
    return std::abs(policy.error_mean) <= bound;
  });
}

std::vector<PartError> part_errors(const PolicyValidation& policy) {
  const auto error = [&](const char* name, double StepParts::*part) {
    const double difference = policy.predicted_parts.*part - policy.measured_parts.*part;
    return PartError{name, policy.measured_mean > 0 ? difference / policy.measured_mean : 0};
  };
  std::vector<PartError> errors = {error("data", &StepParts::data),
                                   error("forward", &StepParts::forward),
                                   error("backward", &StepParts::backward)};
  if (policy.states_wait) {
    errors.push_back(error("exposed", &StepParts::exposed));
  }
  errors.push_back(error("optimizer", &StepParts::optimizer));
  errors.push_back(error("other", &StepParts::other));
  return errors;
}

PartError largest_part_error(const PolicyValidation& policy) {
  const std::vector<PartError> errors = part_errors(policy);
  const double sign = policy.error_mean < 0 ? -1 : 1;
  return *std::ranges::max_element(errors, [&](const PartError& a, const PartError& b) {
    return a.error * sign < b.error * sign;
  });
}

double kendall_tau(const std::vector<double>& a, const std::vector<double>& b) {
  double score = 0;
  double pairs = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = i + 1; j < a.size(); ++j) {
      score += agreement(a[i] - a[j], b[i] - b[j]);
      pairs += 1;
    }
  }
  return pairs > 0 ? score / pairs : 1;
}

bool has_sentinel_of(const RunRecord& record, const Profile& profile) {
  if (!record.training->contains("sentinel_model")) {
    return true;
  }
  const Json none = Json::object();
  const auto member = [&](const Json& of, const char* name) {
    return of.is_object() && of.contains(name) ? of.at(name) : none;
  };
  return member(member(*profile.provenance, "versions"), "measured_by") == "pytorch" &&
         member(member(*profile.provenance, "plan"), "model") ==
             record.training->at("sentinel_model");
}

Validation validate(const std::vector<Prediction>& predictions,
                    const std::vector<std::string>& reference_policies,
                    const std::vector<RunRecord>& records,
                    int warmup_steps,
                    double calibration_sentinel_seconds,
                    const std::vector<RecordingSpan>& recordings) {
  Validation validation;
  std::map<std::string, std::vector<const RunRecord*>> live;
  for (const RunRecord& record : records) {
    live[record.policy].push_back(&record);
  }
  std::set<std::string> seen;
  for (const Prediction& prediction : predictions) {
    const auto found = live.find(prediction.policy);
    if (found == live.end()) {
      continue;
    }
    if (!seen.insert(prediction.policy).second) {
      throw InputError("policy '" + printable(prediction.policy) + "' is predicted twice");
    }
    PolicyValidation policy =
        compare_policy(prediction, found->second, warmup_steps, recordings, validation.warnings);
    policy.reference =
        std::ranges::find(reference_policies, prediction.policy) != reference_policies.end();
    validation.policies.push_back(std::move(policy));
  }
  if (validation.policies.empty()) {
    const auto names = [](const auto& of, auto name) {
      std::set<std::string> unique;
      for (const auto& one : of) {
        unique.insert("'" + printable(name(one)) + "'");
      }
      return fmt::format("{}", fmt::join(unique, ", "));
    };
    throw InputError(
        "the live records and the scenario have no policy in common: recorded {}, "
        "predicted {}; name them alike, in the scenario or in the records",
        names(records, [](const RunRecord& one) { return one.policy; }),
        names(predictions, [](const Prediction& one) { return one.policy; }));
  }
  warn_of_missing(predictions, live, validation.warnings);
  validation.machine_speed = machine_speed(records, calibration_sentinel_seconds);
  compare_order(validation);
  compare_recommendation(validation);
  add_coverage(validation);
  return validation;
}

}  // namespace stepsim
