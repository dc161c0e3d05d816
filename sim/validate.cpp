#include "sim/validate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <fmt/core.h>

#include "costmodel/input_error.h"
#include "sim/metrics.h"

namespace stepsim {

namespace {

/// [repeat][step] in milliseconds, steady steps only.
using StepTimes = std::map<int, std::map<int, double>>;

StepTimes measured_times(const RunRecord& record, int warmup_steps) {
  GlobalSteps steps;
  for (const StepRecord& row : record.steps) {
    if (row.step >= warmup_steps) {
      steps.add(row.repeat, row.step, row.start_ms, row.step_ms);
    }
  }
  return steps.by_repeat();
}

/// [step] Predicted without noise.
std::map<int, double> predicted_times(const Prediction& prediction, int warmup_steps) {
  GlobalSteps steps;
  for (const RankStepResult& row : prediction.steps) {
    if (row.step >= warmup_steps) {
      steps.add(0, row.step, row.start_ms, row.step_ms);
    }
  }
  return steps.by_repeat()[0];
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
    if (plan.useful_tokens != row.useful_tokens || plan.padded_tokens != row.padded_tokens) {
      throw InputError(
          place + fmt::format("the record ran {} useful and {} padded tokens, the plan has {} and "
                              "{}; it was run from another plan",
                              row.useful_tokens,
                              row.padded_tokens,
                              plan.useful_tokens,
                              plan.padded_tokens));
    }
  }
}

double relative(double predicted, double measured) {
  return measured > 0 ? (predicted - measured) / measured : 0;
}

/// Mean over steps of the relative error of each step, measured as its mean over the repeats.
double per_step_error(const std::map<int, double>& predicted, const StepTimes& measured) {
  std::map<int, std::vector<double>> by_step;
  for (const auto& [repeat, steps] : measured) {
    for (const auto& [step, ms] : steps) {
      by_step[step].push_back(ms);
    }
  }
  std::vector<double> errors;
  for (const auto& [step, times] : by_step) {
    errors.push_back(std::abs(relative(predicted.at(step), mean(times))));
  }
  return mean(errors);
}

PolicyValidation compare_policy(const Prediction& prediction,
                                const RunRecord& record,
                                int warmup_steps) {
  require_same_batches(prediction, record);
  const StepTimes measured = measured_times(record, warmup_steps);
  std::vector<double> all;
  std::vector<double> repeat_means;
  for (const auto& [repeat, steps] : measured) {
    std::vector<double> times;
    for (const auto& [step, ms] : steps) {
      times.push_back(ms);
    }
    repeat_means.push_back(mean(times));
    all.insert(all.end(), times.begin(), times.end());
  }
  if (all.empty()) {
    throw InputError("policy '" + printable(record.policy) +
                     "': the record has no step after the warm-up");
  }
  PolicyValidation result;
  result.policy = prediction.policy;
  result.predicted = prediction.summary.step_time_ms;
  result.measured_mean = mean(all);
  result.measured_p50 = quantile(all, 0.5);
  result.measured_p95 = quantile(all, 0.95);
  result.error_mean = relative(result.predicted.mean, result.measured_mean);
  result.error_p50 = relative(result.predicted.p50, result.measured_p50);
  result.error_p95 = relative(result.predicted.p95, result.measured_p95);
  result.step_error = per_step_error(predicted_times(prediction, warmup_steps), measured);
  result.repeats = static_cast<int>(repeat_means.size());
  if (repeat_means.size() > 1) {
    const double n = static_cast<double>(repeat_means.size());
    result.repeatability =
        population_std(repeat_means) * std::sqrt(n / (n - 1)) / result.measured_mean;
  }
  result.covered = result.measured_mean >= result.predicted.low90 &&
                   result.measured_mean <= result.predicted.high90;
  const double tokens = prediction.summary.useful_tokens_per_step;
  result.predicted_tokens_per_s = tokens / result.predicted.mean * 1e3;
  result.measured_tokens_per_s = tokens / result.measured_mean * 1e3;
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

void compare_order(Validation& validation) {
  std::vector<double> predicted;
  std::vector<double> measured;
  const PolicyValidation* recommended = nullptr;
  const PolicyValidation* best = nullptr;
  double covered = 0;
  for (const PolicyValidation& policy : validation.policies) {
    predicted.push_back(policy.predicted_tokens_per_s);
    measured.push_back(policy.measured_tokens_per_s);
    covered += policy.covered ? 1 : 0;
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
  validation.kendall_tau = kendall_tau(predicted, measured);
  validation.coverage = covered / static_cast<double>(validation.policies.size());
  if (recommended != nullptr) {
    validation.recommended = recommended->policy;
    validation.truly_best = best->policy;
    validation.regret = best->measured_tokens_per_s / recommended->measured_tokens_per_s - 1;
  }
}

}  // namespace

double kendall_tau(const std::vector<double>& a, const std::vector<double>& b) {
  double score = 0;
  double pairs = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = i + 1; j < a.size(); ++j) {
      const double agree = (a[i] - a[j]) * (b[i] - b[j]);
      score += agree > 0 ? 1 : (agree < 0 ? -1 : 0);
      pairs += 1;
    }
  }
  return pairs > 0 ? score / pairs : 1;
}

Validation validate(const std::vector<Prediction>& predictions,
                    const std::vector<std::string>& reference_policies,
                    const std::vector<RunRecord>& records,
                    int warmup_steps,
                    double calibration_sentinel_seconds) {
  Validation validation;
  std::set<std::string> seen;
  for (const Prediction& prediction : predictions) {
    for (const RunRecord& record : records) {
      if (record.policy != prediction.policy) {
        continue;
      }
      if (!seen.insert(record.policy).second) {
        throw InputError("policy '" + printable(record.policy) + "' is recorded in two files");
      }
      PolicyValidation policy = compare_policy(prediction, record, warmup_steps);
      policy.reference =
          std::find(reference_policies.begin(), reference_policies.end(), prediction.policy) !=
          reference_policies.end();
      validation.policies.push_back(std::move(policy));
    }
  }
  for (const RunRecord& record : records) {
    if (seen.count(record.policy) == 0) {
      validation.warnings.push_back("policy '" + printable(record.policy) +
                                    "' was recorded but is not in the scenario");
    }
  }
  if (validation.policies.empty()) {
    throw InputError("the live records and the scenario have no policy in common");
  }
  validation.machine_speed = machine_speed(records, calibration_sentinel_seconds);
  compare_order(validation);
  return validation;
}

}  // namespace stepsim
