#include "tests/calibrate/import/recorded_training.h"

#include <algorithm>
#include <random>
#include <set>
#include <tuple>

#include "costmodel/model/model_presets.h"

namespace stepsim::test {
namespace {

constexpr double kMilli = 1e3;  ///< Milliseconds of a second.
constexpr double kData = 2e-4;
constexpr double kOptimizer = 6e-4;
constexpr double kProcessorShare = 0.8;  ///< Of the wall time.
constexpr std::size_t kSplit = 7;        ///< The first bucket holds the tensors from here on.

class Uniform {
 public:
  double real() { return static_cast<double>(generator_() >> 11) * 0x1p-53; }
  std::int64_t whole(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(generator_() % static_cast<unsigned>(high - low + 1));
  }

 private:
  std::mt19937_64 generator_{17};
};

Plan made_plan(const MadeTraining& training, Uniform& uniform) {
  Plan plan;
  plan.scenario = "made";
  plan.policy = "fixed";
  plan.ranks = training.ranks;
  plan.steps = training.steps;
  plan.warmup_steps = kMadeWarmup;
  plan.model = model_preset("tiny-classifier");
  plan.buckets.resize(2);
  for (std::size_t i = parameters(plan.model).size(); i-- > 0;) {
    plan.buckets[i >= kSplit ? 0 : 1].push_back(static_cast<int>(i));
  }
  plan.initial_buckets = plan.buckets;
  for (int step = 0; step < training.steps; ++step) {
    for (int rank = 0; rank < training.ranks; ++rank) {
      for (int micro = 0; micro < training.micro_batches; ++micro) {
        MicroBatch batch{step, rank, micro, {}, {}};
        const std::int64_t longest = uniform.whole(60, 250);
        const std::int64_t samples = training.samples > 0 ? training.samples : uniform.whole(4, 16);
        for (std::int64_t i = samples; i > 0; --i) {
          batch.samples.push_back(i);
          batch.lengths.push_back(uniform.whole(30, longest));
        }
        const std::int64_t multiple = training.round_length;
        const std::int64_t most = batch.shape().max_length;
        batch.padded_length = most % multiple > 0 ? (most / multiple + 1) * multiple : 0;
        plan.micro_batches.push_back(batch);
      }
    }
  }
  return plan;
}

/// Where in the backward the first bucket is complete.
double first_share(const Plan& plan, const BatchShape& batch, double operations_per_byte) {
  double done = 0;
  double ready = 0;
  for (const Op& op : step_ops(plan.model).backward) {
    done += op_weight(op, batch, operations_per_byte);
    for (const int parameter : op.completes) {
      ready = static_cast<std::size_t>(parameter) >= kSplit ? done : ready;
    }
  }
  return ready / done;
}

std::int64_t bucket_bytes(const Plan& plan, std::size_t bucket) {
  std::int64_t bytes = 0;
  for (const int parameter : plan.buckets[bucket]) {
    bytes += parameters(plan.model)[static_cast<std::size_t>(parameter)].bytes().value();
  }
  return bytes;
}

/// One rank's own times in one step, in seconds.
struct Own {
  StepRecord row;
  double forward = 0;
  double backward = 0;
  double first = 0;  ///< Launches of the buckets, from the start of the step.
  double second = 0;
  double asleep_forward = 0;  ///< A processor that sleeps takes no time.
  double asleep_backward = 0;
};

Own own_times(const MadeTraining& training, const Plan& plan, std::size_t at, Uniform& uniform) {
  Own own;
  own.row.micro_batches = training.micro_batches;
  for (int i = 0; i < training.micro_batches; ++i) {
    const MicroBatch& batch = plan.micro_batches[at + static_cast<std::size_t>(i)];
    const BatchShape shape = batch.shape();
    own.row.step = batch.step;
    own.row.rank = batch.rank;
    own.row.samples += shape.samples;
    own.row.max_length = std::max(own.row.max_length, shape.max_length);
    own.row.useful_tokens += shape.useful_tokens;
    own.row.padded_tokens += shape.padded_tokens();
    own.forward += made_forward(shape);
    own.backward += made_backward(shape);
  }
  const double slower = own.row.step < kMadeWarmup ? 10 : 1;
  const double noise = slower * (1 + training.noise * (2 * uniform.real() - 1));
  own.forward *= noise;
  own.backward *= noise;
  const double share =
      first_share(plan, plan.micro_batches[at].shape(), training.operations_per_byte);
  own.first = kData + own.forward + share * own.backward;
  own.second = kData + own.forward + own.backward;
  return own;
}

/// What ranks have met.
struct PlantedCaches {
  std::set<std::tuple<int, std::int64_t, std::int64_t>> plans;
  std::set<std::int64_t> graphs;
};

/// Adds what the shapes of a step cost all ranks, who look before any of them has built.
void add_new_shapes(const MadeTraining& training,
                    const Plan& plan,
                    PlantedCaches& caches,
                    std::vector<Own>& ranks) {
  const std::set<std::int64_t> graphs = caches.graphs;
  for (Own& own : ranks) {
    const int at = (own.row.step * training.ranks + own.row.rank) * training.micro_batches;
    const BatchShape shape = plan.micro_batches[static_cast<std::size_t>(at)].shape();
    const bool plan_is_new =
        caches.plans.emplace(own.row.rank, shape.samples, shape.max_length).second;
    const bool graph_is_new = graphs.count(shape.max_length) == 0;
    caches.graphs.insert(shape.max_length);
    const double asleep = plan_is_new ? training.new_plan : 0;
    const double busy = graph_is_new ? training.new_graph : 0;
    own.asleep_forward += asleep;
    own.asleep_backward += asleep;
    own.forward += asleep + busy;
    own.backward += asleep;
    own.first += 2 * asleep + busy;
    own.second += 2 * asleep + busy;
  }
}

}  // namespace

double made_forward(const BatchShape& batch) {
  return 1e-3 + 2e-6 * static_cast<double>(batch.padded_tokens()) +
         4e-9 * pass_feature("tokens*length", batch, false);
}

double made_backward(const BatchShape& batch) {
  return 2e-3 + 5e-6 * static_cast<double>(batch.padded_tokens()) +
         7e-9 * pass_feature("tokens*length", batch, false);
}

RecordedRun made_run(const MadeTraining& training) {
  Uniform uniform;
  RecordedRun run;
  run.file = "run.jsonl";
  run.plan = made_plan(training, uniform);
  run.record.policy = "fixed";
  run.record.world_size = training.ranks;
  run.record.backend = "gloo";
  run.record.device = "lab";
  run.record.warmup_steps = kMadeWarmup;
  const std::int64_t bytes[] = {bucket_bytes(run.plan, 0), bucket_bytes(run.plan, 1)};
  double start = 5;
  PlantedCaches caches;
  for (int step = 0; step < training.steps; ++step) {
    std::vector<Own> ranks;
    double first = 0;
    double second = 0;
    for (int rank = 0; rank < training.ranks; ++rank) {
      const int at = (step * training.ranks + rank) * training.micro_batches;
      ranks.push_back(own_times(training, run.plan, static_cast<std::size_t>(at), uniform));
    }
    add_new_shapes(training, run.plan, caches, ranks);
    for (const Own& own : ranks) {
      first = std::max(first, own.first);
      second = std::max(second, own.second);
    }
    const bool alone = training.ranks == 1;
    const double first_end = first + (alone ? 0 : training.first_reduce);
    const double end = std::max(second, first_end) + (alone ? 0 : training.second_reduce);
    for (Own& own : ranks) {
      StepRecord& row = own.row;
      row.start_ms = start * kMilli;
      row.data_ms = kData * kMilli;
      row.forward_ms = own.forward * kMilli;
      row.backward_ms = (end - kData - own.forward) * kMilli;
      row.optimizer_ms = kOptimizer * kMilli;
      row.step_ms = (end + kOptimizer) * kMilli;
      if (training.recorded == Recorded::ProcessorTimes) {
        row.forward_cpu_ms = (own.forward - own.asleep_forward) * kProcessorShare * kMilli;
        row.backward_cpu_ms = (own.backward - own.asleep_backward) * kProcessorShare * kMilli;
      } else if (training.recorded == Recorded::Buckets) {
        row.wait_ms = (end - own.second) * kMilli;
        row.backward_ms = own.backward * kMilli;
        row.buckets = {{bytes[0], own.first * kMilli, first_end * kMilli},
                       {bytes[1], own.second * kMilli, end * kMilli}};
      }
      run.record.steps.push_back(row);
    }
    start += end + kOptimizer;
  }
  return run;
}

}  // namespace stepsim::test
