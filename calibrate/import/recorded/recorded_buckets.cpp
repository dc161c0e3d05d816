#include "calibrate/import/recorded/recorded_buckets.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>

namespace stepsim {
namespace {

/// Mean squared error of the launches' places in the backward.
double launch_error(std::span<const RecordedRun> runs,
                    const std::vector<Op>& backward,
                    double operations_per_byte) {
  double sum = 0;
  double count = 0;
  for (const RecordedRun& run : runs) {
    std::map<StepRank, BatchShape> shapes;
    for (const MicroBatch& batch : run.plan.micro_batches) {
      shapes[{batch.step, batch.rank}] = batch.shape(run.plan.model.window);
    }
    for (const StepRecord& row : run.record.steps) {
      if (row.step < run.record.warmup_steps || row.micro_batches > 1 || row.buckets.size() < 2 ||
          row.buckets.size() != run.plan.buckets.size() || !(row.backward_ms > 0)) {
        continue;
      }
      const auto shares =
          launch_shares(run.plan, backward, shapes[{row.step, row.rank}], operations_per_byte);
      for (std::size_t b = 0; b + 1 < shares.size(); ++b) {
        const double at = row.buckets[b].launch_ms - row.data_ms - row.forward_ms;
        const double error = at / row.backward_ms - shares[b];
        sum += error * error;
        count += 1;
      }
    }
  }
  return count > 0 ? sum / count : -1;
}

}  // namespace

std::vector<double> launch_shares(const Plan& plan,
                                  const std::vector<Op>& backward,
                                  const BatchShape& batch,
                                  double operations_per_byte) {
  std::vector<double> done;  // After each op.
  std::vector<std::size_t> ready(parameters(plan.model).size());
  double sum = 0;
  for (const Op& op : backward) {
    sum += op_weight(op, batch, operations_per_byte);
    for (const int parameter : op.completes) {
      ready[static_cast<std::size_t>(parameter)] = done.size();
    }
    done.push_back(sum);
  }
  std::vector<double> shares;
  double last = 0;  // Buckets are launched in order.
  for (const auto& bucket : plan.buckets) {
    for (const int parameter : bucket) {
      last = std::max(last, done[ready[static_cast<std::size_t>(parameter)]] / sum);
    }
    shares.push_back(last);
  }
  return shares;
}

void fit_shares(std::span<const RecordedRun> runs, RecordedModel& model) {
  constexpr std::array<double, 9> kWeights = {0, 1, 2, 4, 8, 16, 32, 64, 128};
  const std::vector<Op> backward = step_ops(model.model).backward;
  double least = std::numeric_limits<double>::infinity();
  for (const double weight : kWeights) {
    const double error = launch_error(runs, backward, weight);
    if (error >= 0 && error < least) {
      least = error;
      model.operations_per_byte = weight;
    }
  }
}

}  // namespace stepsim
