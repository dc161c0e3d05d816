#pragma once

#include <functional>
#include <string>
#include <vector>

#include "calibrate/backend.h"
#include "calibrate/measure_plan.h"

namespace stepsim {

/// One rank's share of one pass.
struct RankPass {
  int pass = 0;
  int rank = 0;
  int ranks = 1;
  int repetitions = 3;
  std::vector<GridPoint> points;  ///< Still to measure, the same on all ranks.
  std::vector<std::int64_t> all_reduce_bytes;
  std::vector<std::int64_t> bucket_bytes;  ///< Sizes that the job itself reduces.
  std::vector<std::int64_t> sentinel;      ///< Lengths.
  double clock_offset = 0;                 ///< Added to clock_seconds() to get `at_seconds`.
};

/// Times a size is all-reduced in one pass: most for the job's own buckets, since between busy
/// ranks a single time says little, and few for what takes long.
[[nodiscard]] int collective_repetitions(std::int64_t bytes, bool is_bucket);

/// Measures and hands every line for the samples file to `send`. A collective's line holds this
/// rank's arrivals and ends only; the parent combines the ranks (AllReduceTimes).
void measure_rank_pass(Backend& backend,
                       const RankPass& pass,
                       const std::function<void(const std::string& line)>& send);

/// Median sum of the op times of one step over a few repetitions, after a warm-up; all ranks at
/// once.
[[nodiscard]] double time_steps(Backend& backend,
                                const std::vector<std::int64_t>& lengths,
                                int repetitions);

/// What one rank says of a collective: [repetition] arrival and end, seconds on the common clock.
struct AllReduceTimes {
  std::int64_t bytes = 0;
  std::vector<double> arrival;
  std::vector<double> end;
};
[[nodiscard]] std::string all_reduce_times_line(const AllReduceTimes& times);

/// [repetition] From the last arrival to the last end. `ranks` must agree in bytes and repetitions.
[[nodiscard]] std::vector<double> combine_all_reduce(const std::vector<AllReduceTimes>& ranks);

}  // namespace stepsim
