#include "sim/report/validation/validation_words.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/same_file.h"
#include "costmodel/base/shell_word.h"
#include "costmodel/records/shipped.h"
#include "sim/report/number_text.h"
#include "sim/scenario/stepsim_command.h"

namespace stepsim {

namespace {

/// The sentinel has moved by more than the calibration's noise.
bool drifted(const Validation& validation, const ValidationSources& sources) {
  return validation.machine_speed > 0 &&
         std::abs(validation.machine_speed - 1) > std::max(0.05, 2 * sources.profile.noise.drift);
}

/// How much busier the machine was in the live run than in the recording of the costs, as a ratio;
/// 1 where it is not known. A recording that is not said to be crowded stands as 1, and is less
/// than a tenth above it.
double busier(const Validation& validation) {
  return validation.live_slowed ? *validation.live_slowed / validation.recorded_slowed.value_or(1)
                                : 1;
}

/// By so much that it should be said: a machine without other programs shows a tenth, too.
bool is_otherwise_busy(const Validation& validation) {
  constexpr double kSaid = 1.1;
  return busier(validation) > kSaid || busier(validation) < 1 / kSaid;
}

/// The machine's load moves the steps to the side on which the worst policy is.
bool load_explains(const Validation& validation, const PolicyValidation& worst) {
  return is_otherwise_busy(validation) && (busier(validation) > 1) == (worst.error_mean < 0);
}

/// Policies outside the bound, the worst first.
std::vector<const PolicyValidation*> failing(const Validation& validation, double bound) {
  std::vector<const PolicyValidation*> list;
  for (const PolicyValidation& policy : validation.policies) {
    if (std::abs(policy.error_mean) > bound) {
      list.push_back(&policy);
    }
  }
  std::ranges::stable_sort(list, [](const auto* a, const auto* b) {
    return std::abs(a->error_mean) > std::abs(b->error_mean);
  });
  return list;
}

/// The live runs leave open on which side of the bound the error is.
bool undecided(const PolicyValidation& policy, double bound) {
  return !policy.resolution() ||
         std::abs(std::abs(policy.error_mean) - bound) <= *policy.resolution();
}

/// The worst policy that the live runs show to be outside the bound; null when there is none.
const PolicyValidation* first_decided(const Validation& validation, double bound) {
  for (const PolicyValidation* policy : failing(validation, bound)) {
    if (!undecided(*policy, bound)) {
      return policy;
    }
  }
  return nullptr;
}

/// Passes that would tell on which side of the bound the error is, to a quarter of the bound: the
/// standard error falls with their square root.
int enough_passes(const PolicyValidation& policy, double bound) {
  constexpr double kLeast = 6;
  constexpr double kMax = 1e4;
  if (!policy.resolution()) {
    return static_cast<int>(kLeast);
  }
  const double gap = std::max(std::abs(std::abs(policy.error_mean) - bound), bound / 4);
  const double passes = policy.repeats * std::pow(*policy.resolution() / gap, 2);
  return static_cast<int>(std::ceil(std::clamp(passes, kLeast, kMax)));
}

std::string order_finding(const Validation& validation) {
  const bool none_told = validation.pairs > 0 && validation.distinguishable_pairs == 0;
  std::string text = "order of the policies (useful tokens/s): ";
  text += none_told ? std::string("not known")
                    : fmt::format("Kendall tau {:.2f}", validation.kendall_tau);
  const int close = validation.pairs - validation.distinguishable_pairs;
  if (close > 0) {
    const bool one_pass = std::ranges::any_of(
        validation.policies, [](const auto& policy) { return !policy.resolution(); });
    text += fmt::format("; {} of {} pairs are {} to tell",
                        close,
                        validation.pairs,
                        one_pass ? "too close, or ran too few passes," : "too close");
    if (validation.distinguishable_kendall_tau) {
      text += fmt::format(", {:.2f} among the others", *validation.distinguishable_kendall_tau);
    }
  }
  return text;
}

std::string regret_finding(const Validation& validation) {
  std::string text = fmt::format("recommended {}, truly best {}: regret {}",
                                 printable(validation.recommended),
                                 printable(validation.truly_best),
                                 percent(validation.regret));
  if (validation.recommended == validation.truly_best) {
    return text;
  }
  const auto& told = validation.regret_resolution;
  if (told && validation.regret <= *told) {
    text += fmt::format(", less than the live runs can tell ({})", percent(*told));
  } else if (told) {
    text += fmt::format(" +-{}", percent(*told));
  }
  return text;
}

std::string time_finding(const ValidationSources& sources) {
  switch (prediction_time(sources)) {
    case PredictionTime::Before:
      return fmt::format("prediction: of {}, before the live run", sources.predicted_at);
    case PredictionTime::After:
      return fmt::format("prediction: of {}, after the live run", sources.predicted_at);
    case PredictionTime::Unknown:
      return "prediction: not known whether of before the live run";
    case PredictionTime::Now:
      break;
  }
  return "prediction: computed now (--predictions FILE takes one made before the live run)";
}

/// What makes such an error when neither the machine nor the live runs explain it.
std::string remedy(const PartError& part) {
  if (part.part == "exposed") {
    return "recalibrate the collectives; a rank that is late or slowed makes the others wait";
  }
  if (part.part == "data") {
    return "compare the scenario's [loader] and [data] with the real loader";
  }
  if (part.part == "other") {
    return "look for work between the parts of the live step that the scenario does not state";
  }
  return "recalibrate with the plans of this scenario";
}

std::string repeats_advice(const PolicyValidation& policy, double bound) {
  constexpr int kMostAsked = 200;
  const std::string name = printable(policy.policy);
  const int passes = enough_passes(policy, bound);
  return policy.resolution()
             ? fmt::format(
                   "more repeats: the live runs tell the mean of {} to +-{}; {}",
                   name,
                   percent(*policy.resolution()),
                   passes > kMostAsked
                       ? "they differ too much for more of them to help: look for what else "
                         "runs on the machine"
                       : fmt::format("about {} passes would tell whether the error is within {}",
                                     passes,
                                     percent(bound)))
             : fmt::format(
                   "more repeats: one pass of {} does not show how well it repeats; make {}",
                   name,
                   passes);
}

/// Says that a prediction holds, but that these live runs could not have shown the opposite.
std::vector<std::string> blind_advice(const Validation& validation, double bound) {
  for (const PolicyValidation& policy : validation.policies) {
    if (!policy.resolution() || *policy.resolution() > bound) {
      return {repeats_advice(policy, bound)};
    }
  }
  return {};
}

std::string path_word(const std::string& path) {
  return shell_word(printable(path, std::string::npos));
}

bool is_recorded(const Profile& profile) {
  return profile.provenance->is_object() && profile.provenance->contains("recorded");
}

/// The record described its model, so that its import needed no plan.
bool was_recorded_without_plan(const Profile& profile) {
  const Json& recorded = (*profile.provenance)["recorded"];
  const bool has_command =
      recorded.is_object() && recorded.contains("command") && recorded["command"].is_string();
  return has_command && recorded["command"].get<std::string>().find("--plan") == std::string::npos;
}

/// The profile that policies which plan by predicted time need again; as an option, unless it is
/// among the scenario's settings.
std::string profile_option(const ValidationSources& sources) {
  const bool is_set = std::ranges::any_of(sources.scenario.overrides, [](const Setting& setting) {
    return setting.key() == "cluster.profile";
  });
  return sources.profile_path.empty() || is_set ? ""
                                                : " --profile " + path_word(sources.profile_path);
}

/// Whether stepsim_live.py trained the plans; else the training is the user's own.
bool is_live_run(const ValidationSources& sources) {
  return std::ranges::any_of(sources.live, [](const LiveFile& file) {
    return file.header.versions->is_object() &&
           file.header.versions->value("trained_by", "") == "stepsim_live.py";
  });
}

/// Where costs that are measured again go: the profile, or a file here in place of a shipped one.
std::string recalibrated(const ValidationSources& sources) {
  const auto shipped = shipped_profiles();
  const bool is_shipped = std::ranges::any_of(shipped, [&](const std::string& name) {
    return is_same_file(profile_path(name), sources.profile_path);
  });
  return is_shipped ? "mine.json" : path_word(sources.profile_path);
}

std::string calibrate_command(const ValidationSources& sources) {
  if (is_recorded(sources.profile)) {
    return fmt::format("stepcal import run-record run.jsonl{} --profile {}",
                       was_recorded_without_plan(sources.profile) ? "" : " --plan plan.jsonl",
                       recalibrated(sources));
  }
  return fmt::format(
      "stepcal grid plans/*.jsonl --out shapes.json && python3 -m stepsim.torch.measure "
      "shapes.json "
      "--out samples.jsonl && stepcal fit samples.jsonl --out {}",
      recalibrated(sources));
}

std::string repeats_command(const ValidationSources& sources, int passes) {
  if (!is_live_run(sources)) {
    return stepsim_command("plan", sources.scenario) + " --out-dir plans" + profile_option(sources);
  }
  return fmt::format("python3 -m stepsim.torch.live plans/*.jsonl --repeats {} --out-dir live",
                     passes);
}

std::string blame_command(const ValidationSources& sources, const std::string& policy) {
  return stepsim_command("blame", sources.scenario, policy) + profile_option(sources);
}

}  // namespace

std::string part_words(const PolicyValidation& policy, const PartError& part) {
  if (part.part == "exposed") {
    return "the wait for collectives";
  }
  if (part.part == "other") {
    return "gaps between the parts";
  }
  return part.part == "backward" && !policy.states_wait ? "backward with the wait for collectives"
                                                        : part.part;
}

std::vector<std::string> findings(const Validation& validation, const ValidationSources& sources) {
  const auto policies = static_cast<double>(validation.policies.size());
  std::vector<std::string> list;
  if (validation.policies.size() > 1) {  // One alone has no order.
    list.push_back(order_finding(validation));
    if (!validation.recommended.empty()) {
      list.push_back(regret_finding(validation));
    }
    list.push_back(fmt::format("interval coverage: {} of the policies ({} of {})",
                               percent(validation.coverage),
                               std::lround(validation.coverage * policies),
                               policies));
  }
  list.push_back(
      fmt::format("measured steps below the predicted p50: {:.0f} %, below the p95: {:.0f} % (50 "
                  "and 95 % where the spread is right)",
                  validation.below_p50 * 100,
                  validation.below_p95 * 100));
  if (validation.machine_speed > 0) {
    list.push_back(fmt::format(
        "machine: the sentinel took {:.2f} times its calibration time during the live run",
        validation.machine_speed));
  }
  list.push_back(time_finding(sources));
  return list;
}

std::string verdict(const Validation& validation, const ValidationSources& sources, double bound) {
  const auto off = failing(validation, bound);
  const bool late = prediction_time(sources) == PredictionTime::After;
  const std::size_t count = validation.policies.size();
  std::string text = late ? "prediction made after the live run: " : "";
  if (off.empty()) {
    return text + fmt::format("every mean step is within {} of the measured one", percent(bound));
  }
  if (first_decided(validation, bound) == nullptr) {  // What certainty() says of.
    const bool one = std::ranges::all_of(
        off, [](const PolicyValidation* policy) { return !policy->resolution(); });
    text += one ? "in this one pass " : "in these live runs ";
  }
  text += count == 1 ? fmt::format("the mean step is off by more than {}", percent(bound))
                     : fmt::format("the mean step of {} of {} policies is off by more than {}",
                                   off.size(),
                                   count,
                                   percent(bound));
  constexpr std::size_t kNamed = 3;
  for (std::size_t i = 0; i < std::min(off.size(), kNamed); ++i) {
    text += fmt::format("{} {} {}",
                        i == 0 ? ":" : ",",
                        printable(off[i]->policy),
                        signed_percent(off[i]->error_mean));
  }
  if (off.size() > kNamed) {
    text += fmt::format(" and {} more", off.size() - kNamed);
  }
  const PartError part = largest_part_error(*off.front());
  text += fmt::format("; most of it in {}: {:+.1f} points{}",
                      part_words(*off.front(), part),
                      part.error * 100,
                      count == 1 ? "" : " of " + printable(off.front()->policy));
  return text;
}

std::string certainty(const Validation& validation, double bound) {
  const auto covered = std::ranges::count_if(validation.policies, &PolicyValidation::covered);
  const auto open = std::ranges::count_if(validation.policies, [&](const PolicyValidation& policy) {
    return undecided(policy, bound);
  });
  const std::size_t count = validation.policies.size();
  std::string text =
      fmt::format("{}in {} 90 % interval{}",
                  count == 1 ? fmt::format("the measured mean is {}", covered == 1 ? "" : "not ")
                             : fmt::format("{} of {} measured means are ", covered, count),
                  count == 1 ? "its" : "their",
                  std::ranges::all_of(validation.policies, &PolicyValidation::beside_recording)
                      ? " of the same hour (they ran beside the recording of the costs)"
                      : "");
  if (count > 1 && !validation.recommended.empty()) {
    text += fmt::format("; the recommended policy {} costs {} over the fastest",
                        printable(validation.recommended),
                        percent(validation.regret));
  }
  if (open > 0) {
    const auto once = std::ranges::count_if(
        validation.policies, [](const PolicyValidation& policy) { return !policy.resolution(); });
    text += fmt::format("; {}{} whether the error is within {}",
                        count > 1 ? fmt::format("of {} of {}, ", open, count) : "",
                        once == open ? "one pass alone does not tell how it repeats, and so not"
                                     : "the live runs differ too much to tell",
                        percent(bound));
  }
  return text;
}

namespace {

/// What forwards say of other programs; empty where there were none, or no record tells.
std::string load_words(const Validation& validation) {
  if (!is_otherwise_busy(validation)) {
    return "";
  }
  const std::optional<double>& recorded = validation.recorded_slowed;
  const std::string then = !recorded ? std::string("1.1 times at most on a quiet machine")
                           : *recorded > 1
                               ? fmt::format("{:.2f} times when the costs were recorded", *recorded)
                               : std::string("less than 1.10 times when the costs were recorded");
  const bool busy = busier(validation) > 1;
  return fmt::format(
      "{} busy: forwards took {:.2f} times their processor time in the live run, {}; {}",
      busy ? "more" : "less",
      *validation.live_slowed,
      then,
      busy ? "run it again while nothing else runs, or record and run right after one another"
           : "record the costs again while nothing else runs");
}

}  // namespace

std::string machine_line(const Validation& validation, const ValidationSources& sources) {
  const std::string load = load_words(validation);
  if (!drifted(validation, sources)) {
    return load;
  }
  const bool slower = validation.machine_speed > 1;
  return fmt::format(
      "{} {} than in its calibration, by the sentinel, a step that both timed; the errors hold "
      "that, too{}",
      percent(std::abs(validation.machine_speed - 1)),
      slower ? "slower" : "faster",
      load.empty() ? "" : "; " + load);
}

std::vector<std::string> advice(const Validation& validation,
                                const ValidationSources& sources,
                                double bound) {
  const auto off = failing(validation, bound);
  if (off.empty()) {
    return blind_advice(validation, bound);
  }
  std::vector<std::string> list;
  const bool drift = drifted(validation, sources);
  if (drift) {
    list.push_back(fmt::format(
        "the machine has drifted by {} since its calibration: calibrate, predict and run live "
        "right after one another",
        signed_percent(validation.machine_speed - 1)));
  }
  const PolicyValidation* decided = first_decided(validation, bound);
  if (decided == nullptr) {
    list.push_back(repeats_advice(*off.front(), bound));
  } else if (!drift && !load_explains(validation, *decided)) {
    const PartError part = largest_part_error(*decided);
    list.push_back(fmt::format("{}: {} is predicted too {}: {}",
                               printable(decided->policy),
                               part_words(*decided, part),
                               part.error > 0 ? "long" : "short",
                               remedy(part)));
  }
  return list;
}

std::string next_command(const Validation& validation,
                         const ValidationSources& sources,
                         double bound) {
  const auto off = failing(validation, bound);
  if (off.empty()) {
    const std::string& best = validation.recommended;
    return blame_command(sources, best.empty() ? validation.policies.front().policy : best);
  }
  if (drifted(validation, sources) && !sources.profile_path.empty()) {
    return calibrate_command(sources);
  }
  const PolicyValidation* decided = first_decided(validation, bound);
  if (decided == nullptr) {
    return repeats_command(sources, enough_passes(*off.front(), bound));
  }
  if (load_explains(validation, *decided) && busier(validation) > 1) {
    return repeats_command(sources, decided->repeats);
  }
  const std::string part = largest_part_error(*decided).part;
  if (part == "data" || part == "other" || sources.profile_path.empty()) {
    return blame_command(sources, decided->policy);
  }
  return calibrate_command(sources);
}

}  // namespace stepsim
