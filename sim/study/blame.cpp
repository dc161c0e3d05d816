#include "sim/study/blame.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "sim/predict/predict.h"
#include "sim/predict/step_cost.h"
#include "sim/predict/step_simulator.h"

namespace stepsim {

namespace {

/// Adds who was last in one steady step of `steps`.
void add_last(const StepTimeline& timeline, double steps, std::vector<double>& last) {
  const SimTime end = max_of(timeline.ranks, &RankTimeline::compute_end, SimTime());
  const auto is_last = [&](const RankTimeline& rank) { return rank.compute_end == end; };
  const auto together = std::ranges::count_if(timeline.ranks, is_last);
  for (std::size_t r = 0; r < timeline.ranks.size(); ++r) {
    if (is_last(timeline.ranks[r])) {
      last[r] += 1 / (static_cast<double>(together) * steps);
    }
  }
}

/// What the collectives of one step took beyond the backward and beyond each other.
std::vector<BucketBlame> exposed(const StepTimeline& timeline) {
  SimTime hidden_until = max_of(timeline.ranks, &RankTimeline::compute_end, SimTime());
  std::vector<BucketBlame> buckets;
  for (std::size_t c = 0; c < timeline.reduce_end.size(); ++c) {
    BucketBlame bucket{std::string(name_of(timeline.collectives[c].kind)), 0};
    const SimTime from = std::max(timeline.reduce_start[c], hidden_until);
    if (timeline.reduce_end[c] > from) {
      bucket.exposed_ms = to_ms(timeline.reduce_end[c] - from);
      hidden_until = timeline.reduce_end[c];
    }
    buckets.push_back(bucket);
  }
  return buckets;
}

/// The mean of those steps that have as many collectives as the last one: a step that rebuilds
/// the buckets has more.
std::vector<BucketBlame> mean_of(const std::vector<std::vector<BucketBlame>>& steps) {
  std::vector<BucketBlame> means = steps.back();
  double alike = 1;
  for (std::size_t s = 0; s + 1 < steps.size(); ++s) {
    if (steps[s].size() != means.size()) {
      continue;
    }
    ++alike;
    for (std::size_t c = 0; c < means.size(); ++c) {
      means[c].exposed_ms += steps[s][c].exposed_ms;
    }
  }
  for (BucketBlame& bucket : means) {
    bucket.exposed_ms /= alike;
  }
  return means;
}

/// The rank of a micro-batch, which are numbered by step, then rank.
int rank_of(const Run& run, std::size_t batch) {
  const Scenario& scenario = run.scenario();
  return static_cast<int>(batch / at(scenario.ddp.accumulation_steps) % at(scenario.ranks));
}

/// Forward and backward by class of op, over all ranks of the steady steps.
std::vector<OpBlame> mean_ops(const Run& run) {
  const Scenario& scenario = run.scenario();
  const std::size_t per_step = run.batches() / at(scenario.steps);
  std::vector<double> seconds;
  for (std::size_t i = at(scenario.warmup_steps) * per_step; i < run.batches(); ++i) {
    const std::vector<double> one = run.pricer().seconds_by_group(run.priced_batch(i));
    const double factor =
        run.loads().batch_factor[i] * run.loads().rank_factor[at(rank_of(run, i))];
    seconds.resize(one.size());
    for (std::size_t group = 0; group < one.size(); ++group) {
      seconds[group] += factor * one[group];
    }
  }
  const double rank_steps =
      static_cast<double>(scenario.steps - scenario.warmup_steps) * scenario.ranks;
  std::vector<OpBlame> ops;
  for (std::size_t group = 0; group < seconds.size(); ++group) {
    if (seconds[group] > 0) {
      ops.push_back({run.pricer().groups()[group].name, seconds[group] * 1e3 / rank_steps});
    }
  }
  std::ranges::stable_sort(ops, std::greater<>(), &OpBlame::ms);
  return ops;
}

/// The work of the rank that has most of it in its batches over the mean of the ranks; mean over
/// the steady steps. Ranks that are out of inputs do not count.
double heaviest_work(const Run& run) {
  const Scenario& scenario = run.scenario();
  const std::size_t micro = at(scenario.ddp.accumulation_steps);
  const std::size_t per_step = micro * at(scenario.ranks);
  double sum = 0;
  for (std::size_t first = at(scenario.warmup_steps) * per_step; first < run.batches();
       first += per_step) {
    double all = 0;
    double most = 0;
    double active = 0;
    for (std::size_t rank = first; rank < first + per_step; rank += micro) {
      double work = 0;
      for (std::size_t m = rank; m < rank + micro; ++m) {
        work += run.pricer().compute_seconds(run.priced_batch(m));
      }
      if (run.batch(rank).samples > 0) {
        all += work;
        most = std::max(most, work);
        ++active;
      }
    }
    sum += all > 0 ? most * active / all : 1;
  }
  return sum / (scenario.steps - scenario.warmup_steps);
}

/// How far the ranks differ in the steady steps. Empty steps do not count.
Imbalance imbalance_of(const Prediction& prediction,
                       const BatchingPolicy& policy,
                       int warmup_steps,
                       std::int64_t samples) {
  Imbalance result;
  result.samples_per_step = prediction.summary.samples_per_step;
  const auto ranks = static_cast<std::ptrdiff_t>(prediction.ranks.size());
  double sum = 0;
  double steps = 0;
  for (auto step = prediction.steps.begin(); step != prediction.steps.end(); step += ranks) {
    const std::span<const RankStepResult> of_ranks(step, step + ranks);
    const double all = sum_of(of_ranks, [](const RankStepResult& rank) {
      return static_cast<double>(rank.padded_tokens);
    });
    if (step->step >= warmup_steps && all > 0) {
      const auto most = std::ranges::max(of_ranks, {}, &RankStepResult::padded_tokens);
      sum += static_cast<double>(most.padded_tokens) * static_cast<double>(ranks) / all;
      ++steps;
    }
  }
  result.heaviest_over_mean = steps > 0 ? sum / steps : 1;
  const std::optional<SortWindow> window = policy.sort_window(samples);
  if (window && static_cast<double>(window->samples) < kStepsPerWindow * result.samples_per_step &&
      window->samples < samples) {
    result.window = window;
  }
  return result;
}

/// Whether anything says what a GPU's host takes to launch kernels or to start collectives.
bool has_launch_times(const Run& run) {
  if (run.priced().costs().host_is_device()) {
    return false;
  }
  const HostOptions& host = run.scenario().host;
  const Duration none = Duration::zero();
  return host.launch.value_or(none) > none || host.enqueue > none || host.hook > none ||
         host.python_hook > none || host.traversal_per_op > none ||
         (!host.launch && run.priced().costs().launch_seconds() > 0) ||
         host_floor(run.scenario(), run.profile()).has_value();
}

/// The ranks to try, those that were last most often first.
std::vector<int> suspects(const std::vector<double>& last, int most) {
  std::vector<int> ranks(last.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::ranges::stable_sort(ranks, [&](int a, int b) {
    return last[static_cast<std::size_t>(a)] > last[static_cast<std::size_t>(b)];
  });
  ranks.resize(std::min(ranks.size(), static_cast<std::size_t>(most)));
  return ranks;
}

}  // namespace

std::string name_of(Change change) {
  switch (change) {
    case Change::FreeCommunication:
      return "free_communication";
    case Change::Balanced:
      return "balanced";
    case Change::EqualRanks:
      return "equal_ranks";
    case Change::MedianRank:
      return "median_rank";
    case Change::NoInterference:
      return "no_interference";
    case Change::OneBucket:
      return "one_bucket";
    case Change::NoData:
      return "no_data";
    case Change::NoNewShapes:
      return "no_new_shapes";
    case Change::NoUnitHost:
      return "no_unit_host";
    case Change::NoLaunches:
      return "no_launches";
  }
  return "";
}

Blame blame(const Job& job, int most_ranks, const ProgressCallback& on_progress) {
  const Scenario& scenario = job.scenario();
  PredictOptions options;
  options.noise_runs = 0;
  Blame result;
  result.scenario = scenario.name;
  result.policy = job.policy().name();
  result.profile = job.profile()->name;
  PredictOptions with_noise;
  with_noise.rows = KeptRows::None;
  result.mean_step_ms = predict(job, with_noise).summary.step_time_ms.mean;
  const Prediction prediction = predict(job, options);
  result.step_ms = prediction.summary.step_time_ms.mean;
  result.notes = prediction.notes;
  result.out_of_memory = prediction.out_of_memory.has_value();

  result.last.resize(static_cast<std::size_t>(scenario.ranks));
  Run run(job);
  StepSimulator simulator(run);
  std::vector<std::vector<BucketBlame>> buckets;
  for (int step = 0; step < scenario.steps; ++step) {
    const StepTimeline timeline = simulator.next();
    if (step >= scenario.warmup_steps) {
      add_last(timeline, scenario.steps - scenario.warmup_steps, result.last);
      buckets.push_back(exposed(timeline));
    }
  }
  result.buckets = mean_of(buckets);
  result.ops = mean_ops(run);
  result.imbalance = imbalance_of(prediction,
                                  job.policy(),
                                  scenario.warmup_steps,
                                  static_cast<std::int64_t>(run.planned().data->lengths.size()));
  result.imbalance.work_over_mean = heaviest_work(run);
  if (scenario.ranks > 1) {
    result.imbalance.skew_over_mean = (1 + scenario.skew) / (1 + scenario.skew / 2);
  }
  result.imbalance.is_skew = result.imbalance.skew_over_mean > result.imbalance.work_over_mean;

  std::vector<Change> changes = {Change::FreeCommunication,
                                 Change::Balanced,
                                 Change::EqualRanks,
                                 Change::NoInterference,
                                 Change::NoData};
  if (run.reduced().facts().fixed_units.empty()) {
    changes.insert(changes.end() - 1, Change::OneBucket);
  }
  if (run.reduced().facts().host_units.units > 0) {
    changes.push_back(Change::NoUnitHost);
  }
  if (has_launch_times(run)) {
    changes.push_back(Change::NoLaunches);
  }
  if (!run.loads().shape_costs.empty()) {
    changes.push_back(Change::NoNewShapes);
  }
  options.rows = KeptRows::None;
  const std::vector<int> ranks = suspects(result.last, most_ranks);
  const auto add_saving = [&](Change change, int rank) {
    Saving saving{change, rank, result.step_ms, 0, ""};
    options.counterfactual = Counterfactual{change, rank};
    try {
      saving.step_ms = predict(job, options).summary.step_time_ms.mean;
      saving.saves_ms = result.step_ms - saving.step_ms;
    } catch (const InputError& error) {
      // One bucket can be larger than any all-reduce that the profile knows.
      saving.not_priced = error.what();
    }
    result.savings.push_back(saving);
    if (on_progress) {
      on_progress(static_cast<double>(result.savings.size()) /
                  static_cast<double>(changes.size() + ranks.size()));
    }
  };
  for (const Change change : changes) {
    add_saving(change, -1);
  }
  for (const int rank : ranks) {
    add_saving(Change::MedianRank, rank);
  }
  std::ranges::stable_sort(result.savings, std::greater<>(), &Saving::saves_ms);
  return result;
}

std::optional<std::size_t> most_exposed(const Blame& blame) {
  const auto most = std::ranges::max_element(blame.buckets, {}, &BucketBlame::exposed_ms);
  if (most == blame.buckets.end() || most->exposed_ms <= 0) {
    return std::nullopt;
  }
  return static_cast<std::size_t>(most - blame.buckets.begin());
}

}  // namespace stepsim
