#include "sim/report/advice/advice_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/model/memory.h"
#include "costmodel/terminal/table.h"
#include "sim/report/blame_report.h"
#include "sim/report/number_text.h"
#include "sim/study/recommendation.h"

namespace stepsim {
namespace {

/// Seconds, too, where hours_text() has none.
std::string short_time_text(double hours) {
  constexpr double kMinutesOfHour = 60;
  constexpr double kSecondsOfHour = 3600;
  return hours < 1 / kMinutesOfHour ? fmt::format("{:.1f} s", hours * kSecondsOfHour)
                                    : hours_text(hours);
}

std::string price_text(const Advice& advice, double hours) {
  return advice.price_per_hour ? fmt::format(" ({:.2f} at {:.2f} an hour of all ranks)",
                                             hours * *advice.price_per_hour,
                                             *advice.price_per_hour)
                               : "";
}

const Prediction& best_of(const Scenario& scenario, const Advice& advice) {
  const Prediction* best = recommended(scenario, advice.predictions, advice.recorded);
  return best != nullptr ? *best : current_of(advice);
}

bool has_units(const Scenario& scenario) {
  return scenario.parallel != parallelisms().front();
}

/// "; recorded 139 ms", of several records with those of each.
std::string recorded_text(const RecordedSteps& steps) {
  std::string mean = fmt::format("; recorded {} ms", step_ms_text(steps.mean_ms));
  if (steps.files.size() < 2) {
    return mean;
  }
  const auto of_file = [](const RecordedMean& one) {
    return fmt::format("{} ms in {}{}",
                       step_ms_text(one.mean_ms),
                       one.file,
                       one.counts ? "" : ", of another policy");
  };
  return fmt::format("{} in the mean: {}", mean, fmt::join(mapped(steps.files, of_file), ", "));
}

std::string step_line(const Scenario& scenario, const Advice& advice) {
  const Prediction& now = current_of(advice);
  const PredictionSummary& summary = now.summary;
  const double step = summary.step_time_ms.mean;
  std::string parts;
  const std::pair<const char*, double> shares[] = {
      {"loading", summary.data_ms},
      {"forward", summary.forward_ms},
      {"backward", summary.backward_ms},
      {has_units(scenario) ? "waiting for gathers, reductions and slower ranks"
                           : "waiting for gradients and slower ranks",
       summary.exposed_communication_ms},
      {"optimizer", summary.optimizer_ms}};
  for (const auto& [name, ms] : shares) {
    parts += fmt::format("{}{} {:.0f} %", parts.empty() ? "" : ", ", name, ms / step * 100);
  }
  const Saving* most = nullptr;
  for (const Saving& saving : advice.blame.savings) {
    const bool counts = saving.not_priced.empty() && saving.saves_ms > 0;
    most = counts && (most == nullptr || saving.saves_ms > most->saves_ms) ? &saving : most;
  }
  return fmt::format(
      "{} ms with {} (90 % interval {} to {}{}{}): {}; {} of the tokens are "
      "padding{}",
      step_ms_text(step),
      now.policy,
      step_ms_text(summary.step_time_ms.low90),
      step_ms_text(summary.step_time_ms.high90),
      summary.step_time_ms.drifts()
          ? fmt::format(" at any hour, {} to {} in the hour of the recording",
                        step_ms_text(summary.step_time_ms.same_hour_low90),
                        step_ms_text(summary.step_time_ms.same_hour_high90))
          : "",
      recorded_text(advice.steps),
      parts,
      percent(summary.padding_ratio()),
      most != nullptr ? fmt::format("; {:.0f} % less if {}",
                                    most->saves_ms / advice.blame.step_ms * 100,
                                    saving_words(*most))
                      : "");
}

/// Why the recorded steps are not what their own batches should take, as far as the record says.
std::string reason_text(const RecordedSteps& steps) {
  constexpr double kOthersRan = 0.85;
  constexpr double kFewLong = 0.85;
  if (steps.processor_share && *steps.processor_share < kOthersRan) {
    return fmt::format(
        "The ranks had a processor for {:.0f} % of their forward and backward: other programs took "
        "the rest. Record again while nothing else runs",
        100 * *steps.processor_share);
  }
  if (steps.median_ms < kFewLong * steps.mean_ms) {
    return fmt::format(
        "Half of the steps took less than {} ms: a few long ones make the mean. Look for what "
        "holds "
        "them up (checkpoints, new shapes, other programs)",
        step_ms_text(steps.median_ms));
  }
  return "The record does not say why: validate the fit on a record that it was not made of";
}

/// What to know before anything else: the fit does not even explain the steps that it was made of.
/// Empty where it does.
std::string doubt_line(const Advice& advice) {
  const StepTimeSummary& step = current_of(advice).summary.step_time_ms;
  const double recorded = advice.steps.mean_ms;
  constexpr double kWorthSaying = 0.1;  // Intervals of a few clean steps are narrower than this.
  // The record is of the hour that the fit is of.
  const double low = step.drifts() ? step.same_hour_low90 : step.low90;
  const double high = step.drifts() ? step.same_hour_high90 : step.high90;
  const bool is_inside = low <= recorded && recorded <= high;
  if (recorded <= 0 || is_inside || std::abs(recorded / step.mean - 1) < kWorthSaying) {
    return "";
  }
  return fmt::format(
      "the recorded steps took {} ms in the mean, {} than the {} to {} ms of the prediction of "
      "their "
      "own batches: all below may be off by as much. {}",
      step_ms_text(recorded),
      recorded > high ? "longer" : "less",
      step_ms_text(low),
      step_ms_text(high),
      reason_text(advice.steps));
}

/// What to know where other programs ran; empty where none did.
std::string crowded_line(const CrowdedMachine& crowded) {
  return crowded.is_crowded()
             ? fmt::format(
                   "other programs kept the machine busy while this was recorded: steps took "
                   "{:.2f} times their processor time. All below is for as busy a machine; the "
                   "order of policies may be another on an idle one. Record again while nothing "
                   "else runs",
                   crowded.slowed)
             : "";
}

std::string policy_line(const Scenario& scenario, const Advice& advice) {
  if (advice.predictions.size() == 1) {
    return fmt::format("{}: the scenario has no other", current_of(advice).policy);
  }
  const Recommendation all = recommend(scenario, advice.predictions, advice.recorded);
  if (all.choices.empty()) {
    return "none of the policies, which do not fit into memory";
  }
  const Choice& first = all.choices.front();
  const Prediction& now = current_of(advice);
  std::string text = first.policy;
  if (const std::string& kind = find_policy(scenario, first.policy).kind().name;
      first.policy != now.policy && kind != first.policy) {
    text += fmt::format(" (kind \"{}\")", kind);
  }
  if (first.policy == now.policy) {
    text += ", what you run now";
    if (const double most = all.gain_of_fastest(first); most > 0 || all.is_flat()) {
      const Choice& fastest =
          *std::ranges::max_element(all.choices, {}, &Choice::useful_tokens_per_s);
      return text + (most > 0 ? fmt::format(": nothing to gain, {} is only {:.1f} % faster",
                                            fastest.policy,
                                            most * 100)
                              : std::string(": nothing to gain, no other policy is faster"));
    }
  } else if (now.out_of_memory) {
    text += fmt::format("; {} does not fit into memory", now.policy);
  } else {
    const Gain gain = unpaired_gain(best_of(scenario, advice), now);
    text += fmt::format("{}: {:+.1f} % useful tokens/s over {}",
                        gain.is_certain() ? "" : ", but too close to tell",
                        gain.gain * 100,
                        now.policy);
    if (all.drawn) {
      text += fmt::format(" (90 % interval {:+.1f} to {:+.1f} %)",
                          gain.interval.first * 100,
                          gain.interval.second * 100);
    }
  }
  if (!all.drawn) {
    return text;
  }
  const std::size_t alike = all.alike();
  if (alike > 1) {
    std::vector<std::string> names;
    for (std::size_t i = 1; i < alike; ++i) {
      names.push_back(all.choices[i].policy);
    }
    text +=
        fmt::format("; as fast within {:.0f} %: {}", kSmallestGain * 100, fmt::join(names, ", "));
  }
  text += fmt::format("; {} {}",
                      likelihood_text(all.alike_share(), all.unconfirmed),
                      alike > 1 ? "that one of them is the fastest" : "to be the fastest");
  if (const Choice* rival = rival_of(all)) {
    text += fmt::format(", so benchmark {} as well", rival->policy);
  }
  return text;
}

std::string cap_line(const Scenario& scenario, const Advice& advice) {
  const CapAdvice& caps = advice.caps;
  if (scenario.ranks == 1) {
    return "one rank reduces nothing";
  }
  if (!scenario.ddp.bucket_caps.empty()) {
    return "keep the list of caps: stepsim buckets SCENARIO --best compares it with others";
  }
  if (caps.caps.size() == 1) {
    return "has no effect on this prediction; keep " + format_bytes(caps.own);
  }
  const std::string text_of_gain =
      fmt::format("{:+.1f} % useful tokens/s, 90 % interval {:+.1f} to {:+.1f} %",
                  caps.gain.gain * 100,
                  caps.gain.interval.first * 100,
                  caps.gain.interval.second * 100);
  const std::string& policy = best_of(scenario, advice).policy;
  const std::string with =
      policy == current_of(advice).policy ? "" : fmt::format(" with {}", policy);
  std::string text;
  if (caps.best == caps.own) {
    text = fmt::format("keep {}{}: no other is faster", format_bytes(caps.own), with);
  } else if (caps.gain.is_certain()) {
    text = fmt::format("{} in place of {}{}: {}",
                       format_bytes(caps.best),
                       format_bytes(caps.own),
                       with,
                       text_of_gain);
  } else {
    text = fmt::format("{}: keep {}{} ({}: {})",
                       nothing_to_gain_text(caps.gain),
                       format_bytes(caps.own),
                       with,
                       format_bytes(caps.best),
                       text_of_gain);
  }
  const auto unpriced =
      std::ranges::count_if(caps.caps, [](const CapStep& cap) { return !cap.not_priced.empty(); });
  if (unpriced > 0) {
    text += fmt::format(
        "; {} of {} sizes have no all-reduce times: measure them with "
        "all_reduce.py and give --base",
        unpriced,
        caps.caps.size());
  }
  return text;
}

/// What becomes of the units, with what says so to fully_shard.
std::string sharding_words(const std::string& name) {
  static const std::map<std::string, std::string> kWords = {
      {"as recorded", "units as recorded"},
      {"parameters kept", "all units stay gathered (reshard_after_forward=False)"},
      {"root freed, too", "all units are freed, the root, too (reshard_after_forward=True)"},
      {"usual", "all units are freed but the root (reshard_after_forward=None)"},
      {"ddp", "DDP, which shards nothing"}};
  const auto known = kWords.find(name);
  return known == kWords.end() ? name : known->second;
}

std::string sharding_text(const ShardingStep& step) {
  const std::string words = sharding_words(step.name);
  if (!step.not_priced.empty()) {
    return fmt::format("{}: not priced ({})", words, step.not_priced);
  }
  std::string text = fmt::format("{}: {} ms", words, step_ms_text(step.step_ms));
  if (step.name != "as recorded") {
    text += fmt::format(" ({:+.1f} %)", step.gain.gain * 100);
  }
  if (step.memory_mib > 0) {
    text += fmt::format(", {:.0f} MiB", step.memory_mib);
  }
  return text + (step.fits ? "" : ", does not fit");
}

/// The ways of fully_shard and DDP side by side, for the best policy.
std::string sharding_line(const Scenario& scenario, const Advice& advice) {
  if (advice.shardings.empty()) {
    return "no other can be told from this record: its passes have gathers and reductions inside; "
           "on a CPU stepsim_recorder.py with model= tells them apart";
  }
  const ShardingStep& best = best_sharding(advice.shardings);
  const std::string& policy = best_of(scenario, advice).policy;
  return fmt::format(
      "{}; a step{}: {}{}",
      &best == &advice.shardings.front() ? "keep fully_shard as it is"
                                         : "take this: " + sharding_words(best.name),
      policy == current_of(advice).policy ? "" : fmt::format(" with {}", policy),
      fmt::join(mapped(advice.shardings, sharding_text), "; "),
      advice.shardings.front().memory_mib > 0
          ? " (memory of parameters, gradients and optimizer alone where the record does not tell "
            "activations)"
          : "");
}

/// How many samples a step has and an epoch's steps, where they are not those of now: "38 samples a
/// step in place of 16, …; ".
std::string samples_change(const Advice& advice, const Prediction& best) {
  constexpr double kWorthSaying = 0.05;
  const Prediction& now = current_of(advice);
  const double samples = best.summary.mean_samples_per_step();
  const double before = now.summary.mean_samples_per_step();
  if (!(before > 0) || std::abs(samples / before - 1) <= kWorthSaying) {
    return "";
  }
  const auto shown = [&](double value) {
    const double least = std::min(samples, before);
    return least < 10 ? fmt::format("{:.1f}", value) : fmt::format("{:.0f}", value);
  };
  return fmt::format(
      "{} samples a step in place of {}, so {:.0f} optimizer steps an epoch in place of {:.0f}: "
      "learning rate and schedule need a look; ",
      shown(samples),
      shown(before),
      epoch_time(advice, best).steps / advice.epochs,
      epoch_time(advice, now).steps / advice.epochs);
}

std::string change_line(const Scenario& scenario, const Advice& advice) {
  const Prediction& best = best_of(scenario, advice);
  if (!best.training) {
    return "unknown";
  }
  const TrainingEffects& effects = *best.training;
  if (best.policy == current_of(advice).policy) {
    return fmt::format("nothing of the batches, which are those of now; {} batch shapes",
                       effects.distinct_shapes);
  }
  std::string text = samples_change(advice, best);
  text += fmt::format("samples move by {:.0f} % of an epoch from random order",
                      effects.displacement * 100);
  text += effects.lost_samples == 0
              ? ", none is lost"
              : fmt::format(", {} of {} are lost", effects.lost_samples, effects.samples);
  constexpr double kUneven = 1.001;
  if (effects.sample_skew > kUneven) {
    text +=
        "; ranks hold different numbers of samples: multiply each rank's loss by ranks x own / all "
        "samples of the step";
  }
  if (effects.fewest_steps < effects.most_steps) {
    text += fmt::format(
        "; ranks have {} to {} batches an epoch, and a plain DDP loop hangs when the first rank is "
        "through: stepsim.torch.BatchSampler gives every rank as many",
        effects.fewest_steps,
        effects.most_steps);
  }
  text += fmt::format("; {} batch shapes", effects.distinct_shapes);
  if (states_activations(scenario.model) && best.largest_memory_mib > 0) {
    text += fmt::format("; {:.0f} MiB at the peak by formula, {:.0f} now",
                        best.largest_memory_mib,
                        current_of(advice).largest_memory_mib);
  }
  return text;
}

/// TFLOP/s and MFU of what runs now and of what it could be, and by what they are counted; empty
/// where they are not known.
std::string compute_line(const Scenario& scenario, const Advice& advice) {
  const auto words = [](const AdviceOption& option) {
    return option.mfu ? fmt::format("{:.1f} % MFU, {} of each rank",
                                    *option.mfu * 100,
                                    flops_per_second_text(*option.rank_flops))
                      : fmt::format("{} of each rank", flops_per_second_text(*option.rank_flops));
  };
  if (advice.options.empty() || !advice.options.front().rank_flops) {
    return "";
  }
  const AdviceOption& now = advice.options.front();
  std::string text = fmt::format("{} with {}", words(now), now.prediction.policy);
  for (const AdviceOption& option : advice.options) {
    if (option.change == "other batches" && option.rank_flops) {
      text += fmt::format(", {} with {}", words(option), option.prediction.policy);
    }
  }
  return text +
         fmt::format("; the model's, without padding and recomputation, counted by {}",
                     scenario.flops_per_token
                         ? fmt::format("model.flops_per_token = {:.4g}", *scenario.flops_per_token)
                         : "config.json: three times the forward's products and attention");
}

std::string epoch_line(const Scenario& scenario, const Advice& advice) {
  const Prediction& best = best_of(scenario, advice);
  const Prediction& now = current_of(advice);
  const auto words = [&](const Prediction& prediction) {
    const EpochTime time = epoch_time(advice, prediction);
    return fmt::format("{}{} in {:.0f} steps",
                       short_time_text(time.hours),
                       price_text(advice, time.hours),
                       time.steps);
  };
  std::string text =
      fmt::format("{} samples{} take {}",
                  advice.samples,
                  advice.epochs == 1 ? "" : fmt::format(", {:g} times", advice.epochs),
                  words(best));
  if (best.policy != now.policy) {
    text += fmt::format(" with {}, {} with {}", best.policy, words(now), now.policy);
  }
  return text;
}

}  // namespace

const char* verdict_of(const AdviceOption& option) {
  if (option.change == "now") {
    return "now";
  }
  if (option.gain.is_certain()) {
    // Nine of ten draws are faster, and the interval has one of twenty on either side.
    return option.gain.interval.first > 0 ? "faster" : "likely faster";
  }
  const bool is_slower = option.gain.gain <= -kSmallestGain && option.gain.interval.second < 0;
  return is_slower ? "slower" : "too close to tell";
}

std::string setting_of(const AdviceOption& option) {
  if (!option.sharding.empty()) {
    return option.sharding;
  }
  return option.cap_list > 0 ? fmt::format("list of {} caps", option.cap_list)
                             : format_bytes(option.cap);
}

std::string advice_headline(const Scenario& scenario, const Advice& advice) {
  const bool keeps = best_of(scenario, advice).policy == current_of(advice).policy;
  return fmt::format("{} {}.", keeps ? "Keep" : "Use", policy_line(scenario, advice));
}

std::string advice_table(const Advice& advice, const Screen& screen) {
  std::vector<std::string> header = {
      "train with", "verdict", "gain", "gain, 90 %", "step ms", "useful tokens/s"};
  const bool has_flops =
      screen.wide && !advice.options.empty() && advice.options.front().rank_flops;
  if (has_flops) {
    header.insert(header.end(), {"FLOP/s a rank", "MFU"});
  }
  if (screen.wide) {
    header.insert(
        header.end(),
        {"90 % interval", "data", "forward", "backward", "exposed", "waiting", "optimizer"});
  }
  Table table(std::move(header));
  for (const AdviceOption& option : advice.options) {
    const PredictionSummary& summary = option.prediction.summary;
    const bool is_now = option.change == "now";
    std::vector<std::string> row = {
        fmt::format("{}, {}", option.prediction.policy, setting_of(option)),
        verdict_of(option),
        is_now ? "" : fmt::format("{:+.0f} %", option.gain.gain * 100),
        is_now ? ""
               : fmt::format("{:+.0f} to {:+.0f} %",
                             option.gain.interval.first * 100,
                             option.gain.interval.second * 100),
        step_ms_text(summary.step_time_ms.mean),
        fmt::format("{:.0f}", summary.useful_tokens_per_s())};
    if (has_flops) {
      row.push_back(option.rank_flops ? flops_per_second_text(*option.rank_flops) : "-");
      row.push_back(option.mfu ? fmt::format("{:.1f} %", *option.mfu * 100) : "-");
    }
    if (screen.wide) {
      row.insert(row.end(),
                 {interval(summary.step_time_ms.low90, summary.step_time_ms.high90),
                  step_ms_text(summary.data_ms),
                  step_ms_text(summary.forward_ms),
                  step_ms_text(summary.backward_ms),
                  step_ms_text(summary.exposed_communication_ms - summary.waiting_for_ranks_ms),
                  step_ms_text(summary.waiting_for_ranks_ms),
                  step_ms_text(summary.optimizer_ms)});
    }
    table.add(std::move(row));
  }
  return table.text(screen);
}

std::string stall_line(const StallNoise& stalls) {
  const std::string shortest = format_duration(stalls.seconds.front());
  const std::string longest = format_duration(stalls.seconds.back());
  return fmt::format(
      "{:.2g} % of the steps are held up by {} (a checkpoint, an evaluation, a garbage collection "
      "or the like), {} a step: {}",
      100 * stalls.per_step,
      shortest == longest ? longest : shortest + " to " + longest,
      format_duration(stalls.seconds_per_step()),
      stalls.step_seconds > 0
          ? fmt::format(
                "all figures have {:.0f} % of those shorter than two steps, since {} steps say "
                "little of what other programs do, and the others at this rate",
                100 * stalls.counted_share(),
                stalls.steps)
          : "all figures have them at this rate, and no interval says how often they come");
}

std::vector<std::string> advice_lines(const Scenario& scenario, const Advice& advice) {
  std::vector<std::string> lines;
  if (const std::string doubt = doubt_line(advice); !doubt.empty()) {
    lines.push_back("check first:  " + doubt);
  }
  if (const std::string crowded = crowded_line(advice.crowded); !crowded.empty()) {
    lines.push_back("check first:  " + crowded);
  }
  lines.insert(
      lines.end(),
      {"your step:    " + step_line(scenario, advice),
       "best policy:  " + policy_line(scenario, advice),
       has_units(scenario) ? "sharding:     " + sharding_line(scenario, advice)
                           : "bucket cap:   " + cap_line(scenario, advice),
       "it changes:   " + change_line(scenario, advice),
       (advice.epochs == 1 ? "an epoch:     " : "training:     ") + epoch_line(scenario, advice)});
  if (const std::string compute = compute_line(scenario, advice); !compute.empty()) {
    lines.push_back("compute:      " + compute);
  }
  if (advice.stalls.per_step > 0) {
    lines.push_back("stalls:       " + stall_line(advice.stalls));
  }
  return lines;
}

}  // namespace stepsim
