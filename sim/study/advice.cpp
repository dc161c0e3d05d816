#include "sim/study/advice.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <utility>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/quantile.h"
#include "costmodel/io/json_file.h"
#include "costmodel/records/record_files.h"
#include "sim/batching/lengths.h"
#include "sim/predict/metrics.h"
#include "sim/predict/predict.h"
#include "sim/predict/scenario_profile.h"
#include "sim/study/bucket_cap_sweep.h"
#include "sim/study/live_run.h"
#include "sim/study/starter/starter_scenario.h"
#include "sim/study/training/training_plan.h"

namespace stepsim {
namespace {

namespace fs = std::filesystem;

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw EnvironmentFault("cannot make folder {}: {}", folder.string(), error.message());
  }
}

/// Writes the made scenario, and a second copy beside it that tells later whether the user has
/// edited the first. An edited one stays. Returns whether it does.
bool keeps_edited(const fs::path& scenario, const std::string& made) {
  fs::path copy = scenario;
  copy.replace_extension(".made.toml");
  const auto text_of = [](const fs::path& path) {
    std::error_code error;
    return fs::exists(path, error) ? read_text(path.string()) : std::string();
  };
  const std::string own = text_of(scenario);
  const bool edited = !own.empty() && own != made && own != text_of(copy);
  write_text_atomically(copy.string(), made);
  if (!edited) {
    write_text_atomically(scenario.string(), made);
  }
  return edited;
}

/// Counts the samples of the data set: those of the file, else of the records.
void count_samples(const AdviceQuestion& question, const StarterScenario& starter, Advice& advice) {
  advice.samples = starter.samples;
  advice.mean_length = starter.mean_length;
  if (question.lengths.empty()) {
    return;
  }
  LengthSource lengths;
  lengths.kind = LengthSource::Kind::File;
  lengths.file = question.lengths;  // Its errors name the user's file, not the copy.
  const std::vector<std::int64_t> all = generate_lengths(lengths, 0);
  advice.samples = std::ssize(all);
  advice.mean_length =
      std::accumulate(all.begin(), all.end(), 0.0) / std::max(1.0, static_cast<double>(all.size()));
}

void write_fitted(const AdviceQuestion& question, const FitRecords& fit) {
  const fs::path folder = question.folder;
  const std::string out = (folder / "profile.json").string();
  try {
    const FittedRecords fitted = fit({question.records, question.plans, question.base, out});
    write_profile(out, fitted.profile);
    write_text_atomically((folder / "profile.txt").string(), fitted.report);
  } catch (const InputError& error) {
    throw InputError("no profile of these records:\n{}", error.what());
  }
}

void write_lengths(const AdviceQuestion& question, const StarterScenario& starter) {
  const fs::path folder = question.folder;
  if (question.lengths.empty()) {
    write_text_atomically((folder / "lengths.json").string(), starter.lengths);
  } else {
    write_text_atomically((folder / "lengths.txt").string(), read_text(question.lengths));
  }
}

/// The steps of all records of the first one's policy, which the fit is of, too.
RecordedSteps recorded_steps(const std::vector<RecordFile>& records, int least_warmup_steps) {
  RecordedSteps steps;
  std::vector<double> all;
  double processor = 0;
  double wall = 0;
  for (const auto& [file, record] : records) {
    const int warmup_steps = std::max(least_warmup_steps, record.warmup_steps);
    const std::vector<double> times = join_live_runs({&record}, warmup_steps).step_ms;
    const bool counts = record.policy == records.front().record.policy;
    steps.files.push_back({file, mean(times), counts});
    if (!counts) {
      continue;
    }
    all.insert(all.end(), times.begin(), times.end());
    for (const StepRecord& row : record.steps) {
      if (row.step >= warmup_steps && row.backward_cpu_ms > 0) {
        processor += row.forward_cpu_ms + row.backward_cpu_ms;
        wall += row.forward_ms + row.backward_ms;
      }
    }
  }
  steps.mean_ms = mean(all);
  steps.median_ms = quantile(all, 0.5);
  if (wall > 0) {
    steps.processor_share = processor / wall;
  }
  return steps;
}

/// The share of the whole that a part of it has reached.
ProgressCallback part_of(const ProgressCallback& whole, double from, double to) {
  return whole ? [=](double share) { whole(from + share * (to - from)); } : ProgressCallback();
}

/// A policy at another bucket cap.
Prediction at_cap(const AdviceCase& training,
                  const std::string& policy,
                  Bytes cap,
                  const PredictOptions& options) {
  const std::vector<Setting> settings = cap.value() == kDefaultBucketCapBytes
                                            ? default_cap_settings(training.scenario)
                                            : std::vector<Setting>{{"ddp.bucket_cap", cap}};
  return predict(training.jobs->job(policy, settings), options);
}

CapAdvice cap_advice(const AdviceCase& training,
                     const std::string& policy,
                     const ProgressCallback& on_progress) {
  const Scenario& scenario = training.scenario;
  CapAdvice advice;
  advice.own = advice.best = scenario.ddp.bucket_cap;
  SweepOptions options;
  options.policy = policy;
  options.on_progress = part_of(on_progress, 0, 0.5);
  double shortest = 0;
  for (const CapPoint& point : bucket_cap_sweep(*training.jobs, options)) {
    const double step =
        point.point.not_priced.empty() ? point.point.prediction.summary.step_time_ms.mean : 0;
    advice.caps.push_back({point.cap, step, point.point.not_priced});
    if (point.own) {
      advice.best = point.cap;
      shortest = step;
    }
  }
  for (const CapStep& cap : advice.caps) {
    if (cap.not_priced.empty() && cap.step_ms < shortest) {
      shortest = cap.step_ms;
      advice.best = cap.cap;
    }
  }
  if (advice.best != advice.own) {
    PredictOptions paired;
    paired.paired_draws = true;
    paired.on_progress = part_of(on_progress, 0.5, 1);
    advice.gain = paired_gain(at_cap(training, policy, advice.best, paired),
                              predict(training.jobs->job(policy, {}), paired));
  }
  return advice;
}

/// The rival of the best policy, which the answer names, where it is not what runs now.
void add_rival(const AdviceCase& training,
               const Advice& advice,
               std::vector<AdviceOption>& options) {
  const Recommendation all = recommend(training.scenario, advice.predictions, advice.recorded);
  const Choice* rival = rival_of(all);
  const Prediction& now = current_of(advice);
  if (rival == nullptr || rival->policy == now.policy) {
    return;
  }
  const auto found = std::ranges::find(advice.predictions, rival->policy, &Prediction::policy);
  options.push_back({"rival batches",
                     training.scenario.ddp.bucket_cap,
                     *found,
                     unpaired_gain(*found, now),
                     options.front().sharding});
}

/// Says how many FLOPs per second each option is.
void count_flops(const AdviceCase& training, std::vector<AdviceOption>& options) {
  for (AdviceOption& option : options) {
    const TrainingPlan plan =
        training_plans(training.scenario, training.profile, {option.prediction}, {}).front();
    option.rank_flops = plan.rank_flops;
    option.mfu = plan.mfu;
  }
}

bool has_buckets(const Scenario& scenario) {
  return scenario.parallel == parallelisms().front();
}

/// What runs now, and what differs from it where nothing has buckets: the best policy, its best
/// sharding.
std::vector<AdviceOption> options_of_shardings(const AdviceCase& training,
                                               const Prediction& now,
                                               const Prediction& best,
                                               const std::vector<ShardingStep>& shardings) {
  const Bytes own = training.scenario.ddp.bucket_cap;
  std::vector<AdviceOption> options = {{"now", own, now, {}, "as recorded"}};
  const bool is_best = now.policy == best.policy;
  if (!is_best) {
    options.push_back({"other batches", own, best, unpaired_gain(best, now), "as recorded"});
  }
  if (shardings.empty() || &best_sharding(shardings) == &shardings.front()) {
    return options;
  }
  const ShardingStep& other = best_sharding(shardings);
  Prediction prediction = predict(training.jobs->job(best.policy, other.settings), {});
  const Gain gain = is_best ? other.gain : unpaired_gain(prediction, now);
  options.push_back(
      {is_best ? "other sharding" : "both", own, std::move(prediction), gain, other.name});
  return options;
}

/// What runs now, and what differs from it: the best bucket cap with the same batches, the best
/// policy, and that policy with its best bucket cap.
std::vector<AdviceOption> options_of(const AdviceCase& training,
                                     const Prediction& now,
                                     const Prediction& best,
                                     const CapAdvice& caps_of_best,
                                     const ProgressCallback& on_progress) {
  const Bytes own = training.scenario.ddp.bucket_cap;
  std::vector<AdviceOption> options = {{"now", own, now, {}, ""}};
  const bool is_best = now.policy == best.policy;
  const CapAdvice caps =
      is_best ? caps_of_best : cap_advice(training, now.policy, part_of(on_progress, 0, 0.5));
  PredictOptions predicted;
  predicted.on_progress = part_of(on_progress, 0.5, 1);
  if (caps.best != own) {
    options.push_back({"other bucket cap",
                       caps.best,
                       at_cap(training, now.policy, caps.best, predicted),
                       caps.gain,
                       ""});
  }
  if (!is_best) {
    options.push_back({"other batches", own, best, unpaired_gain(best, now), ""});
    if (caps_of_best.best != own) {
      Prediction both = at_cap(training, best.policy, caps_of_best.best, predicted);
      const Gain gain = unpaired_gain(both, now);
      options.push_back({"both", caps_of_best.best, std::move(both), gain, ""});
    }
  }
  return options;
}

}  // namespace

AdviceCase advice_case(const AdviceQuestion& question, const FitRecords& fit) {
  AdviceCase training;
  const std::vector<RecordFile> records = read_record_files(question.records, &training.warnings);
  const RunRecord& first = records.front().record;
  const std::string name = fs::path(question.records.front()).stem().stem().string();
  const StarterScenario starter =
      starter_scenario(records,
                       name,
                       !question.lengths.empty(),
                       {question.config, question.flops_per_token, question.peak_tflops});
  count_samples(question, starter, training.known);
  const fs::path folder = question.folder;
  make_folder(folder);
  write_fitted(question, fit);
  training.plays = starter.plays;
  if (starter.plays) {
    write_run_record((folder / "recorded.jsonl").string(), first);
  }
  write_lengths(question, starter);
  if (!starter.config_json.empty()) {
    write_text_atomically((folder / "config.json").string(), starter.config_json);
  }
  training.file = (folder / "scenario.toml").string();
  training.edited = keeps_edited(training.file, starter.toml);
  training.scenario = read_scenario(training.file, {});
  training.jobs = std::make_shared<Jobs>(training.scenario);
  training.profile = *training.jobs->profile(training.scenario);
  const std::vector<BatchingPolicy>& policies = training.scenario.policies;
  const bool is_known =
      std::ranges::find(policies, starter.now, &BatchingPolicy::name) != policies.end();
  training.known.recorded = is_known ? starter.now : policies.front().name();
  training.known.steps = recorded_steps(records, training.scenario.warmup_steps);
  training.known.stalls = training.profile.noise.stalls;
  training.known.crowded = training.profile.noise.crowded;
  training.known.price_per_hour = question.price_per_hour;
  if (question.gpu_hour) {
    training.known.price_per_hour = *question.gpu_hour * training.scenario.ranks;
  }
  training.known.epochs = question.epochs;
  return training;
}

Advice advise(const AdviceCase& training, const ProgressCallback& on_progress) {
  const Scenario& scenario = training.scenario;
  Advice advice = training.known;
  PredictOptions options;
  options.on_progress = part_of(on_progress, 0, 0.6);
  options.training_effects = true;
  advice.predictions = predict_policies(*training.jobs, options);
  const Prediction* best = recommended(scenario, advice.predictions, advice.recorded);
  const Prediction& now = current_of(advice);
  const Prediction& chosen = best != nullptr ? *best : now;
  if (has_buckets(scenario)) {
    advice.caps = cap_advice(training, chosen.policy, part_of(on_progress, 0.6, 0.75));
    advice.options =
        options_of(training, now, chosen, advice.caps, part_of(on_progress, 0.75, 0.9));
  } else {
    advice.caps.own = advice.caps.best = scenario.ddp.bucket_cap;
    advice.shardings =
        sharding_steps(*training.jobs, chosen.policy, part_of(on_progress, 0.6, 0.9));
    advice.options = options_of_shardings(training, now, chosen, advice.shardings);
  }
  add_rival(training, advice, advice.options);
  count_flops(training, advice.options);
  for (AdviceOption& option : advice.options) {
    option.cap_list = option.cap == scenario.ddp.bucket_cap ? scenario.ddp.bucket_caps.size() : 0;
  }
  advice.blame =
      blame(training.jobs->job(advice.recorded, {}), kMaxBlamedRanks, part_of(on_progress, 0.9, 1));
  return advice;
}

EpochTime epoch_time(const Advice& advice, const Prediction& prediction) {
  constexpr double kSecondsOfHour = 3600;
  EpochTime time;
  const PredictionSummary& summary = prediction.summary;
  if (summary.useful_tokens_per_step > 0) {
    const double samples = advice.epochs * static_cast<double>(advice.samples);
    time.steps = samples / summary.mean_samples_per_step();
    time.hours = samples * advice.mean_length / summary.useful_tokens_per_s() / kSecondsOfHour;
  }
  return time;
}

const Choice* rival_of(const Recommendation& recommendation) {
  constexpr double kLikely = 0.9;  // From this probability on no benchmark is asked for.
  const std::vector<Choice>& choices = recommendation.choices;
  const auto alike = static_cast<std::ptrdiff_t>(recommendation.alike());
  if (!recommendation.drawn || alike == std::ssize(choices) ||
      recommendation.alike_share() >= kLikely) {
    return nullptr;
  }
  return &*std::ranges::max_element(
      choices.begin() + alike, choices.end(), {}, &Choice::first_share);
}

const Prediction& current_of(const Advice& advice) {
  return *std::ranges::find(advice.predictions, advice.recorded, &Prediction::policy);
}

}  // namespace stepsim
