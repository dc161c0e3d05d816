#include "calibrate/import/recorded/recorded_buckets.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "costmodel/base/mapped.h"

namespace stepsim {
namespace {

/// Where the buckets of a plan were launched in the backward, as fractions of all of it.
struct ObservedLaunches {
  const Plan* plan;
  /// [shape] For each row with a batch of this shape, all buckets but the last.
  std::map<BatchShape, std::vector<double>> at;
};

ObservedLaunches observed_launches(const RecordedRun& run) {
  ObservedLaunches launches{&run.plan, {}};
  std::map<StepRank, BatchShape> shapes;
  for (const MicroBatch& batch : run.plan.micro_batches) {
    shapes[{batch.step, batch.rank}] = batch.shape(run.plan.model.window);
  }
  for (const StepRecord& row : run.record.steps) {
    if (row.step < run.record.warmup_steps || row.micro_batches > 1 || row.buckets.size() < 2 ||
        row.buckets.size() != run.plan.buckets.size() || !(row.backward_ms > 0)) {
      continue;
    }
    std::vector<double>& at = launches.at[shapes[{row.step, row.rank}]];
    for (std::size_t b = 0; b + 1 < row.buckets.size(); ++b) {
      at.push_back((row.buckets[b].launch_ms - row.data_ms - row.forward_ms) / row.backward_ms);
    }
  }
  return launches;
}

/// Mean squared error of the launches' places in the backward.
double launch_error(std::span<const ObservedLaunches> runs,
                    const std::vector<Op>& backward,
                    double operations_per_byte) {
  double sum = 0;
  double count = 0;
  for (const ObservedLaunches& run : runs) {
    for (const auto& [shape, at] : run.at) {
      const auto shares = launch_shares(*run.plan, backward, shape, operations_per_byte);
      const std::size_t launched = shares.size() - 1;
      for (std::size_t i = 0; i < at.size(); ++i) {
        const double error = at[i] - shares[i % launched];
        sum += error * error;
      }
      count += static_cast<double>(at.size());
    }
  }
  return count > 0 ? sum / count : -1;
}

}  // namespace

std::vector<double> launch_shares(const Plan& plan,
                                  const std::vector<Op>& backward,
                                  const BatchShape& batch,
                                  double operations_per_byte) {
  std::vector<double> done;        // After each op.
  std::vector<std::size_t> ready;  // [parameter] The op that completes its gradient.
  double sum = 0;
  for (const Op& op : backward) {
    sum += op_weight(op, batch, operations_per_byte);
    for (const int parameter : op.completes) {
      const auto place = static_cast<std::size_t>(parameter);
      ready.resize(std::max(ready.size(), place + 1));
      ready[place] = done.size();
    }
    done.push_back(sum);
  }
  std::vector<double> shares;
  double last = 0;  // Buckets are launched in order.
  for (const auto& bucket : plan.buckets) {
    for (const int parameter : bucket) {
      const auto place = static_cast<std::size_t>(parameter);
      last = std::max(last, done[place < ready.size() ? ready[place] : 0] / sum);
    }
    shares.push_back(last);
  }
  return shares;
}

void fit_shares(std::span<const RecordedRun> runs, RecordedModel& model) {
  constexpr std::array<double, 9> kWeights = {0, 1, 2, 4, 8, 16, 32, 64, 128};
  const std::vector<Op> backward = step_ops(model.model).backward;
  const std::vector<ObservedLaunches> launches = mapped(runs, observed_launches);
  double least = std::numeric_limits<double>::infinity();
  for (const double weight : kWeights) {
    const double error = launch_error(launches, backward, weight);
    if (error >= 0 && error < least) {
      least = error;
      model.operations_per_byte = weight;
    }
  }
}

}  // namespace stepsim
