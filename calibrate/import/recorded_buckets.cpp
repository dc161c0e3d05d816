#include "calibrate/import/recorded_buckets.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "calibrate/statistics.h"

namespace stepsim {
namespace {

constexpr double kMilli = 1e-3;
constexpr double kLeftOut = 0.01;

using StepPlace = std::pair<int, int>;  ///< Repeat and step.

/// The ranks' rows of every steady step.
std::map<StepPlace, std::vector<const StepRecord*>> by_step(const RunRecord& record) {
  std::map<StepPlace, std::vector<const StepRecord*>> steps;
  for (const StepRecord& row : record.steps) {
    if (row.step >= record.warmup_steps) {
      steps[{row.repeat, row.step}].push_back(&row);
    }
  }
  return steps;
}

bool same_buckets(const std::vector<const StepRecord*>& rows) {
  return std::all_of(rows.begin(), rows.end(), [&](const StepRecord* row) {
    return std::equal(row->buckets.begin(),
                      row->buckets.end(),
                      rows.front()->buckets.begin(),
                      rows.front()->buckets.end(),
                      [](const auto& a, const auto& b) { return a.bytes == b.bytes; });
  });
}

/// [bucket] where in the backward it is launched, as a fraction of all of it.
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

/// Mean squared error of the launches' places in the backward.
double launch_error(std::span<const RecordedRun> runs,
                    const std::vector<Op>& backward,
                    double operations_per_byte) {
  double sum = 0;
  double count = 0;
  for (const RecordedRun& run : runs) {
    std::map<StepPlace, BatchShape> shapes;
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

/// An all-reduce from its last launch to its last end over the ranks, in milliseconds.
struct Flight {
  double launch = -std::numeric_limits<double>::infinity();
  double end = -std::numeric_limits<double>::infinity();
};

/// [bucket]
std::vector<Flight> flights_of(const std::vector<const StepRecord*>& rows) {
  std::vector<Flight> flights(rows.front()->buckets.size());
  for (std::size_t b = 0; b < flights.size(); ++b) {
    for (const StepRecord* row : rows) {
      flights[b].launch = std::max(flights[b].launch, row->start_ms + row->buckets[b].launch_ms);
      flights[b].end = std::max(flights[b].end, row->start_ms + row->buckets[b].end_ms);
    }
  }
  return flights;
}

/// [bucket] From launch to end; 0 for those that queued behind the one before.
std::vector<double> unqueued_times(const std::vector<Flight>& flights) {
  std::vector<double> times;
  double before = -std::numeric_limits<double>::infinity();
  for (const Flight& flight : flights) {
    times.push_back(flight.launch < before ? 0 : std::max(0.0, flight.end - flight.launch));
    before = std::max(before, flight.end);
  }
  return times;
}

/// [bucket] What each would take alone, where two at a time are on their way and share the links:
/// gloo's two workers take the buckets in order. The sum is the time in which any is on its way.
std::vector<double> own_times(const std::vector<Flight>& flights) {
  constexpr std::size_t kWorkers = 2;
  std::vector<double> moments;
  for (const Flight& flight : flights) {
    moments.push_back(flight.launch);
    moments.push_back(flight.end);
  }
  std::sort(moments.begin(), moments.end());
  std::vector<double> times(flights.size(), 0.0);
  for (std::size_t i = 0; i + 1 < moments.size(); ++i) {
    std::vector<std::size_t> on_way;
    for (std::size_t b = 0; b < flights.size() && on_way.size() < kWorkers; ++b) {
      if (flights[b].launch <= moments[i] && flights[b].end > moments[i]) {
        on_way.push_back(b);
      }
    }
    for (const std::size_t b : on_way) {
      times[b] += (moments[i + 1] - moments[i]) / static_cast<double>(on_way.size());
    }
  }
  return times;
}

}  // namespace

void add_all_reduces(const RecordedRun& run, std::vector<CollectiveSample>& samples) {
  const bool gloo = run.record.backend == "gloo";
  for (const auto& [place, rows] : by_step(run.record)) {
    if (static_cast<int>(rows.size()) != run.record.world_size || !same_buckets(rows)) {
      continue;
    }
    const std::vector<Flight> flights = flights_of(rows);
    const auto milliseconds = gloo ? own_times(flights) : unqueued_times(flights);
    for (std::size_t b = 0; b < flights.size(); ++b) {
      if (!(milliseconds[b] > 0)) {
        continue;
      }
      const std::int64_t bytes = rows.front()->buckets[b].bytes;
      auto sample = std::find_if(samples.begin(), samples.end(), [&](const CollectiveSample& s) {
        return s.bytes == bytes;
      });
      if (sample == samples.end()) {
        sample = samples.emplace(sample);
        sample->ranks = run.record.world_size;
        sample->bytes = bytes;
      }
      sample->all_seconds.push_back(milliseconds[b] * kMilli);
    }
  }
}

void finish_all_reduces(std::vector<CollectiveSample>& samples) {
  for (CollectiveSample& sample : samples) {
    sample.seconds = trimmed_mean(sample.all_seconds, kLeftOut);
    sample.noise = (quantile(sample.all_seconds, 0.8) - quantile(sample.all_seconds, 0.2)) / 2 /
                   sample.seconds;
    sample.repetitions = static_cast<int>(sample.all_seconds.size());
  }
  std::sort(samples.begin(), samples.end(), [](const auto& a, const auto& b) {
    return a.bytes < b.bytes;
  });
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
