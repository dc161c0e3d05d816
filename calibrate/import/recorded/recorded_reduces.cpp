#include "calibrate/import/recorded/recorded_reduces.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "calibrate/samples/statistics.h"
#include "costmodel/network/collective_table.h"

namespace stepsim {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

/// The ranks' rows of one step.
using RankRows = std::vector<const StepRecord*>;

/// The steady steps in order of recording.
std::vector<RankRows> steady_steps(const RunRecord& record) {
  std::map<std::pair<int, int>, RankRows> steps;
  for (const StepRecord& row : record.steps) {
    if (row.step >= record.warmup_steps) {
      steps[{row.repeat, row.step}].push_back(&row);
    }
  }
  std::vector<RankRows> result;
  result.reserve(steps.size());
  for (auto& [place, rows] : steps) {
    result.push_back(std::move(rows));
  }
  return result;
}

bool same_buckets(const RankRows& rows) {
  return std::ranges::all_of(rows, [&](const StepRecord* row) {
    return std::equal(row->buckets.begin(),
                      row->buckets.end(),
                      rows.front()->buckets.begin(),
                      rows.front()->buckets.end(),
                      [](const auto& a, const auto& b) { return a.bytes == b.bytes; });
  });
}

/// An all-reduce from its last launch to its last end over the ranks, in milliseconds.
struct Flight {
  double launch = kNever;
  double end = kNever;
};

/// [bucket]
std::vector<Flight> flights_of(const RankRows& rows) {
  std::vector<Flight> flights(rows.front()->buckets.size());
  for (std::size_t b = 0; b < flights.size(); ++b) {
    for (const StepRecord* row : rows) {
      flights[b].launch = std::max(flights[b].launch, row->start_ms + row->buckets[b].launch_ms);
      flights[b].end = std::max(flights[b].end, row->start_ms + row->buckets[b].end_ms);
    }
  }
  return flights;
}

/// Milliseconds of one all-reduce, and those of them before the last gradient was there.
struct OwnTime {
  double all = 0;
  double beside_compute = 0;
};

/// [bucket] From launch to end; 0 for those that queued behind the one before.
std::vector<OwnTime> unqueued_times(const std::vector<Flight>& flights) {
  std::vector<OwnTime> times;
  double before = kNever;
  for (const Flight& flight : flights) {
    const double computed = std::min(flight.end, flights.back().launch);
    times.push_back(flight.launch < before ? OwnTime{}
                                           : OwnTime{flight.end - flight.launch,
                                                     std::max(0.0, computed - flight.launch)});
    before = std::max(before, flight.end);
  }
  return times;
}

/// [bucket] What counts for each where two at a time are on their way and share the links: gloo's
/// two workers take the buckets in order. The sum is the time in which any is on its way.
std::vector<OwnTime> shared_times(const std::vector<Flight>& flights) {
  constexpr std::size_t kWorkers = 2;
  const double computed = flights.empty() ? 0 : flights.back().launch;  // The last gradient.
  std::vector<double> moments;
  for (const Flight& flight : flights) {
    moments.push_back(flight.launch);
    moments.push_back(flight.end);
  }
  std::ranges::sort(moments);
  std::vector<OwnTime> times(flights.size());
  for (std::size_t i = 0; i + 1 < moments.size(); ++i) {
    std::vector<std::size_t> on_way;
    for (std::size_t b = 0; b < flights.size() && on_way.size() < kWorkers; ++b) {
      if (flights[b].launch <= moments[i] && flights[b].end > moments[i]) {
        on_way.push_back(b);
      }
    }
    for (const std::size_t b : on_way) {
      const double part = (moments[i + 1] - moments[i]) / static_cast<double>(on_way.size());
      times[b].all += part;
      times[b].beside_compute += moments[i] < computed ? part : 0;
    }
  }
  return times;
}

/// Sums over the all-reduces of one size.
struct SizeSums {
  double seconds = 0;
  double beside_compute = 0;
  double alone = 0;
};

std::map<std::int64_t, SizeSums> sums_by_size(std::span<const RecordedReduce> reduces,
                                              const CollectiveCost& alone) {
  std::map<std::int64_t, SizeSums> sizes;
  for (const RecordedReduce& reduce : reduces) {
    SizeSums& sums = sizes[reduce.bytes];
    sums.seconds += reduce.seconds;
    sums.beside_compute += reduce.beside_compute;
    sums.alone += seconds_alone(alone, reduce.bytes);
  }
  return sizes;
}

/// A fit and its mean |error| over the sizes.
struct Line {
  double factor = 1;
  double transfer = 0;
  double error = std::numeric_limits<double>::infinity();
};

/// The factor that makes all sizes together right, for a transfer, and what that leaves.
Line line_with(double transfer, const std::map<std::int64_t, SizeSums>& sizes) {
  const auto unslowed = [&](const SizeSums& sums) {
    return sums.seconds - sums.beside_compute * transfer / (1 + transfer);
  };
  double measured = 0;
  double alone = 0;
  for (const auto& [bytes, sums] : sizes) {
    measured += unslowed(sums);
    alone += sums.alone;
  }
  Line line{measured / alone, transfer, 0};
  for (const auto& [bytes, sums] : sizes) {
    line.error +=
        std::abs(line.factor * sums.alone / unslowed(sums) - 1) / static_cast<double>(sizes.size());
  }
  return line;
}

Line fit_line(std::span<const RecordedReduce> reduces, const CollectiveCost& alone) {
  constexpr double kMaxTransfer = 2;
  constexpr int kIntervals = 200;
  const auto sizes = sums_by_size(reduces, alone);
  Line best;
  for (int i = 0; i <= kIntervals; ++i) {
    const Line line = line_with(kMaxTransfer * i / kIntervals, sizes);
    if (line.error < best.error - 1e-12) {
      best = line;
    }
  }
  return best;
}

/// Mean |error| of knots from `bytes` up when each is interpolated between its neighbours.
std::optional<double> knots_error(const CollectiveCost& table, double bytes) {
  double sum = 0;
  int count = 0;
  for (std::size_t i = 1; i + 1 < table.knots.size(); ++i) {
    if (table.knots[i].first >= bytes) {
      CollectiveCost without = table;
      without.knots.erase(without.knots.begin() + static_cast<std::ptrdiff_t>(i));
      const auto at = static_cast<std::int64_t>(table.knots[i].first);
      sum += std::abs(seconds_alone(without, at) / table.knots[i].second - 1);
      ++count;
    }
  }
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

}  // namespace

double seconds_alone(const CollectiveCost& table, std::int64_t bytes) {
  constexpr double kAnySize = 1e9;
  return table_cost(table, Bytes(bytes), kAnySize, "").seconds;
}

void add_reduces(const RunRecord& record, std::vector<RecordedReduce>& reduces) {
  int step = reduces.empty() ? 0 : reduces.back().step + 1;
  for (const RankRows& rows : steady_steps(record)) {
    if (static_cast<int>(rows.size()) != record.world_size || !same_buckets(rows)) {
      continue;
    }
    const std::vector<Flight> flights = flights_of(rows);
    const auto times = record.backend == "gloo" ? shared_times(flights) : unqueued_times(flights);
    for (std::size_t b = 0; b < flights.size(); ++b) {
      if (times[b].all > 0) {
        reduces.push_back({step,
                           rows.front()->buckets[b].bytes,
                           times[b].all * kMilli,
                           times[b].beside_compute * kMilli});
      }
    }
    ++step;
  }
}

std::vector<CollectiveSample> samples_of(std::span<const RecordedReduce> reduces, int ranks) {
  std::map<std::int64_t, std::vector<double>> sizes;
  for (const RecordedReduce& reduce : reduces) {
    sizes[reduce.bytes].push_back(reduce.seconds);
  }
  std::vector<CollectiveSample> samples;
  for (auto& [bytes, seconds] : sizes) {
    CollectiveSample sample;
    sample.ranks = ranks;
    sample.bytes = bytes;
    sample.seconds = trimmed_mean(seconds, kLeftOut);
    sample.noise = (quantile(seconds, 0.8) - quantile(seconds, 0.2)) / 2 / sample.seconds;
    sample.repetitions = static_cast<int>(seconds.size());
    sample.all_seconds = std::move(seconds);
    samples.push_back(std::move(sample));
  }
  return samples;
}

TrainingReduces fit_training_reduces(std::span<const RecordedReduce> reduces,
                                     const CollectiveCost& alone) {
  constexpr int kParts = 8;
  constexpr double kDeviations = 1.645;  // To each side of a normal distribution's 90 %.
  TrainingReduces result;
  if (reduces.empty()) {
    return result;
  }
  const Line line = fit_line(reduces, alone);
  result.factor = line.factor;
  result.transfer = line.transfer;
  result.error = line.error;
  std::vector<std::vector<RecordedReduce>> parts(kParts);
  const int first = reduces.front().step;
  const int steps = reduces.back().step - first + 1;
  for (const RecordedReduce& reduce : reduces) {
    parts[static_cast<std::size_t>((reduce.step - first) * kParts / steps)].push_back(reduce);
  }
  double squares = 0;
  int used = 0;
  for (const auto& part : parts) {
    if (!part.empty()) {
      const double difference = fit_line(part, alone).transfer - line.transfer;
      squares += difference * difference;
      ++used;
    }
  }
  if (line.transfer > 0 && used > 1) {
    const double half = kDeviations * std::sqrt(squares / used);
    result.transfer_interval = {std::max(0.0, line.transfer - half), line.transfer + half};
  }
  return result;
}

void apply(const TrainingReduces& training,
           std::span<const RecordedReduce> reduces,
           CollectiveCost& table) {
  if (reduces.empty()) {
    return;
  }
  const auto smallest = std::ranges::min_element(reduces, {}, &RecordedReduce::bytes);
  if (const auto error = knots_error(table, static_cast<double>(smallest->bytes) / 2)) {
    table.errors.random = std::hypot(*error, training.error);
  }
  for (auto& [bytes, seconds] : table.knots) {
    seconds *= training.factor;
  }
  if (table.tail_seconds_per_byte) {
    *table.tail_seconds_per_byte *= training.factor;
  }
}

}  // namespace stepsim
