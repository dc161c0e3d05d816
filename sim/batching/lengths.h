#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stepsim {

/// Longest sample, in tokens, and most samples of one data set that are accepted anywhere.
inline constexpr std::int64_t kMaxSampleLength = std::int64_t{1} << 30;
inline constexpr std::int64_t kMaxSampleCount = std::int64_t{1} << 27;

/// Where sample lengths come from. Exactly one source.
struct LengthSource {
  enum class Kind {
    Constant,    ///< Every sample `constant` tokens long.
    Uniform,     ///< Whole numbers min..max, both included: min + randrange(max - min + 1).
    LogUniform,  ///< The token-skew lab's generator, bit-exact (see lengths.cpp).
    LogNormal,   ///< exp(mu + sigma z) rounded and clamped to min..max; z by Box-Muller, cosine.
    Histogram,   ///< A histogram file (see histogram.h).
    File         ///< One length a line; blank lines and # comments are left out.
  };
  Kind kind = Kind::Constant;
  std::int64_t constant = 0;
  std::int64_t min = 1;
  std::int64_t max = 0;
  double mu = 0;
  double sigma = 1;
  double outlier_probability = 0;  ///< LogUniform: this share of samples has length max.
  std::int64_t label_classes = 0;  ///< LogUniform: a label is drawn from the same stream (0: none).
  std::uint64_t seed = 0;          ///< Of Python's generator; Histogram: of torch.randperm.
  std::string file;                ///< Histogram or File: a path that can be opened.
  std::int64_t cap = 0;            ///< Cut longer samples to this (0: no cut).
};

/// `count` lengths, each >= 1.
///
/// A histogram is sampled without replacement: all its lengths ascending, permuted with
/// torch.randperm(seed), the first `count`; beyond its size another permutation with seed + 1
/// follows, and so on. Count 0 takes all of a file (in order) or histogram (one permutation).
/// Raises:
///     InputError: file missing or malformed (with its place), a length outside 1 ..
///     kMaxSampleLength, fewer lengths in the file than `count`, more than kMaxSampleCount, or
///     parameters that contradict each other (check_lengths).
[[nodiscard]] std::vector<std::int64_t> generate_lengths(const LengthSource& source,
                                                         std::int64_t count);

/// Raises InputError: min > max, a length < 1, a probability outside 0 .. 1, sigma < 0, …
void check_lengths(const LengthSource& source);

/// The longest sample the source can give, known without opening a file; 0 when it cannot be known.
[[nodiscard]] std::int64_t longest_length(const LengthSource& source);

}  // namespace stepsim
