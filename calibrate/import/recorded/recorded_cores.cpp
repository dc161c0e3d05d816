#include "calibrate/import/recorded/recorded_cores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "costmodel/base/mapped.h"
#include "costmodel/base/quantile.h"
#include "costmodel/compute/shared_cores.h"

namespace stepsim {
namespace {

/// The steady steps of a record in which all ranks have processor times, as rows of `steps`.
std::vector<std::vector<std::size_t>> steps_with_processor_times(const RunRecord& record) {
  std::map<std::pair<int, int>, std::vector<std::size_t>> by_step;
  for (std::size_t i = 0; i < record.steps.size(); ++i) {
    const StepRecord& row = record.steps[i];
    if (row.step >= record.warmup_steps && row.forward_cpu_ms > 0) {
      by_step[{row.repeat, row.step}].push_back(i);
    }
  }
  std::vector<std::vector<std::size_t>> result;
  for (auto& [step, rows] : by_step) {
    if (static_cast<int>(rows.size()) == record.world_size) {
      result.push_back(std::move(rows));
    }
  }
  return result;
}

double processor_ms(const StepRecord& row) {
  return row.forward_cpu_ms + row.backward_cpu_ms;
}

/// The median distance from the median.
double scatter(const std::vector<double>& values) {
  const double middle = quantile(values, 0.5);
  return quantile(mapped(values, [&](double value) { return std::abs(value - middle); }), 0.5);
}

/// What a step's passes take beside the compute of the rank for which that is least: its exposed
/// communication. `factors`: [rank] wall over processor time.
double least_rest(const RunRecord& record,
                  const std::vector<std::size_t>& rows,
                  const std::vector<double>& factors) {
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const StepRecord& row = record.steps[rows[i]];
    least = std::min(least, row.forward_ms + row.backward_ms - factors[i] * processor_ms(row));
  }
  return least;
}

/// Milliseconds of a forward.
struct ForwardTimes {
  double wall = 0;
  double processor = 0;
};

double wall_over_processor(std::span<const ForwardTimes> times) {
  return sum_of(times, [](const ForwardTimes& one) { return one.wall; }) /
         sum_of(times, [](const ForwardTimes& one) { return one.processor; });
}

/// The standard deviation of ln(wall over processor time) of runs of as many steps, from what
/// eighths of them differ; 0 for fewer than two steps an eighth.
double spread_between_runs(std::span<const ForwardTimes> times) {
  constexpr std::size_t kParts = 8;
  const std::size_t size = times.size() / kParts;
  if (size < 2) {
    return 0;
  }
  std::vector<double> parts;
  for (std::size_t i = 0; i < kParts; ++i) {
    parts.push_back(std::log(wall_over_processor(times.subspan(i * size, size))));
  }
  const double average = sum_of(parts, [](const double part) { return part; }) / kParts;
  const double squares =
      sum_of(parts, [&](const double part) { return (part - average) * (part - average); });
  return std::sqrt(squares / (kParts - 1) / kParts);
}

}  // namespace

bool has_processor_times(const RunRecord& record) {
  return std::ranges::any_of(record.steps,
                             [](const StepRecord& step) { return step.backward_cpu_ms > 0; });
}

bool has_fewer_cores(const RunRecord& record) {
  return record.cores > 0 && record.cores < record.world_size;
}

double shared_cores(const RunRecord& record) {
  constexpr double kSlowed = 1.05;
  // One slow moment in a record of some dozens of steps moves the scatter by a tenth or so.
  constexpr double kClearly = 0.8;
  if (!has_processor_times(record) || record.world_size == 1) {
    return 0;
  }
  const auto steps = steps_with_processor_times(record);
  double wall = 0;
  double processor = 0;
  for (const auto& rows : steps) {
    for (const std::size_t row : rows) {
      wall += record.steps[row].forward_ms;
      processor += record.steps[row].forward_cpu_ms;
    }
  }
  const double ratio = processor > 0 ? wall / processor : 1;
  if (ratio < kSlowed) {
    return 0;  // Also where the record names fewer cores: those of one of several hosts, say.
  }
  if (has_fewer_cores(record)) {
    return record.cores;
  }
  const double cores = record.world_size / ratio;
  if (cores < 1) {
    return 0;  // A rank that computes alone would have a core: other programs took the time.
  }
  std::vector<double> at_one_ratio;
  std::vector<double> at_shared_cores;
  for (const auto& rows : steps) {
    const auto times =
        mapped(rows, [&](const std::size_t row) { return processor_ms(record.steps[row]); });
    at_one_ratio.push_back(least_rest(record, rows, std::vector<double>(rows.size(), ratio)));
    at_shared_cores.push_back(least_rest(record, rows, shared_core_factors(times, cores)));
  }
  return scatter(at_shared_cores) < kClearly * scatter(at_one_ratio) ? cores : 0;
}

std::vector<double> core_factors(const RunRecord& record, double cores) {
  std::vector<double> factors(record.steps.size(), 1.0);
  if (!(cores > 0)) {
    return factors;
  }
  std::map<std::pair<int, int>, std::vector<std::size_t>> by_step;
  for (std::size_t i = 0; i < record.steps.size(); ++i) {
    by_step[{record.steps[i].repeat, record.steps[i].step}].push_back(i);
  }
  for (const auto& [step, rows] : by_step) {
    const auto of_step = shared_core_factors(
        mapped(rows, [&](const std::size_t row) { return processor_ms(record.steps[row]); }),
        cores);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      factors[rows[i]] = of_step[i];
    }
  }
  return factors;
}

CrowdedMachine crowded_machine(std::span<const RecordedRun> runs, double cores) {
  constexpr double kCrowded = 1.1;
  std::map<int, std::vector<ForwardTimes>> by_rank;
  for (const RecordedRun& run : runs) {
    const std::vector<double> factors = core_factors(run.record, cores);
    for (std::size_t i = 0; i < factors.size(); ++i) {
      const StepRecord& row = run.record.steps[i];
      if (row.step >= run.record.warmup_steps && row.forward_cpu_ms > 0) {
        by_rank[row.rank].push_back({row.forward_ms, row.forward_cpu_ms * factors[i]});
      }
    }
  }
  CrowdedMachine crowded;
  for (const auto& [rank, times] : by_rank) {
    const double slowed = wall_over_processor(times);
    if (rank == by_rank.begin()->first || slowed < crowded.slowed) {
      crowded = {slowed, spread_between_runs(times)};
    }
  }
  return crowded.slowed < kCrowded ? CrowdedMachine{} : crowded;
}

}  // namespace stepsim
