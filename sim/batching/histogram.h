#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace stepsim {

/// How many sequences of each length a data set has.
struct LengthHistogram {
  std::string id;
  std::string description;
  std::string source;
  std::string licence;
  std::string unit;
  std::vector<std::pair<std::int64_t, std::int64_t>> counts;  ///< (length, count), ascending.

  [[nodiscard]] std::int64_t total() const;
};

/// Reads {"format": "stepsim-lengths/1", "id", "description", "source", "licence", "unit",
/// "counts": {"3": 1978, …}}; counts may also be [[length, count], …]. Only format and counts are
/// required.
///
/// Raises:
///     InputError: the file is missing or has another format; a length or count is not a whole
///     number; a length occurs twice; there are no sequences, or more than kMaxSampleCount.
[[nodiscard]] LengthHistogram read_histogram(const std::string& path);

/// Draws lengths as LengthSource::Kind::Histogram does. Count 0 is one whole permutation.
[[nodiscard]] std::vector<std::int64_t> sample_histogram(const LengthHistogram& histogram,
                                                         std::int64_t count,
                                                         std::uint64_t seed);

}  // namespace stepsim
