#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace stepsim {

/// The longest sample in tokens, and the most samples of one data set, that are accepted anywhere.
inline constexpr std::int64_t kMaxSampleLength = std::int64_t{1} << 30;
inline constexpr std::int64_t kMaxSampleCount = std::int64_t{1} << 27;

/// Where the lengths of the samples come from: exactly one kind of source.
struct LengthSource {
  enum class Kind {
    Constant,    ///< Every sample is `constant` tokens long.
    Uniform,     ///< Whole numbers min..max, both included: min + randrange(max - min + 1).
    LogUniform,  ///< The token-skew lab's generator, bit-exact (see lengths.cpp).
    LogNormal,   ///< exp(mu + sigma z) rounded and clamped to min..max; z by Box-Muller, cosine.
    Histogram,   ///< A histogram file (see histogram.h).
    File,        ///< One length a line; blank lines and # comments are left out.
    Jsonl,       ///< A field of every line of a JSONL file: a length, or a list whose size it is.
    Plan,        ///< A plan file or a run record: the lengths of its samples, by sample id. A
                 ///< sample that it cuts reaches to the end of its last part.
    Values,      ///< The lengths themselves, in order.
    Mixture      ///< Each sample comes from one of `parts`, drawn by weight.
  };
  Kind kind = Kind::Constant;
  std::int64_t constant = 0;
  std::int64_t min = 1;
  std::int64_t max = 0;
  double mu = 0;
  double sigma = 1;
  double outlier_probability = 0;  ///< LogUniform, LogNormal: the share of samples of length max.
  std::int64_t label_classes = 0;  ///< LogUniform: a label is drawn from the same stream (0: none).
  std::uint64_t seed = 0;  ///< The seed of Python's generator, or of torch.randperm (Histogram).
  std::string file;        ///< Histogram, File, Jsonl or Plan: a path that can be opened.
  std::string field;       ///< Jsonl: the field's name.
  std::shared_ptr<const std::vector<std::int64_t>> values;  ///< Values.
  bool targets = false;         ///< Plan: the second lengths of the samples are read.
  std::vector<double> weights;  ///< Mixture: the weights of the parts, each above 0, of any sum.
  std::vector<LengthSource> parts;  ///< Mixture: sources that can give any number of lengths.
  std::int64_t cap = 0;             ///< Longer samples are cut to this length (0: no cut).

  bool operator==(const LengthSource&) const = default;
};

/// Generates or reads `count` lengths, each >= 1.
///
/// A histogram is sampled without replacement: its lengths in ascending order are permuted with
/// torch.randperm(seed), and the first `count` are taken. Beyond its size another permutation with
/// seed + 1 follows, and so on. Count 0 takes all of a file (in order) or of a histogram (one
/// permutation). A mixture draws the part of each sample from Python's generator and takes the
/// part's next length.
/// Raises:
///     InputError: the file is missing or malformed (the message names the place); a length is
///     outside 1 .. kMaxSampleLength; the file holds fewer lengths than `count`; there are more
///     than kMaxSampleCount; parameters contradict each other (check_lengths).
[[nodiscard]] std::vector<std::int64_t> generate_lengths(const LengthSource& source,
                                                         std::int64_t count);

/// Raises InputError: min > max, a length < 1, a probability outside 0 .. 1, sigma < 0, …
void check_lengths(const LengthSource& source);

/// True when the source has a number of lengths of its own, so that `samples` may be left out.
[[nodiscard]] bool has_own_count(const LengthSource& source);

/// The longest sample the source can give, known without opening a file; 0 when it cannot be known.
[[nodiscard]] std::int64_t longest_length(const LengthSource& source);

}  // namespace stepsim
