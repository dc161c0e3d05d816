#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stepsim {

/// Where sample lengths come from. Exactly one source.
struct LengthSource {
  enum class Kind {
    Constant,         ///< Every sample `constant` tokens long.
    Uniform,          ///< Whole numbers min..max.
    LogUniform,       ///< The token-skew lab's generator, bit-exact (see lengths.cpp).
    LogNormal,        ///< exp(N(mu, sigma)), clamped to min..max.
    Histogram,        ///< A histogram file; `id` names the entry.
    File              ///< One length a line.
  };
  Kind kind = Kind::Constant;
  std::int64_t constant = 0;
  std::int64_t min = 1;
  std::int64_t max = 0;
  double mu = 0;
  double sigma = 1;
  double outlier_probability = 0;  ///< LogUniform: this share of samples has length max.
  std::int64_t label_classes = 0;  ///< LogUniform: a label is drawn from the same stream (0: none).
  std::uint64_t seed = 0;
  std::string file;  ///< Histogram or File; resolved against the scenario's folder.
  std::string id;    ///< Histogram entry.
  std::int64_t cap = 0;  ///< Cut longer samples to this (0: no cut).
};

/// `count` lengths, each >= 1. Raises InputError: file missing or malformed, a length < 1, fewer
/// lengths in the file than `count` (count 0: all of a file or histogram).
[[nodiscard]] std::vector<std::int64_t> generate_lengths(const LengthSource& source,
                                                         std::int64_t count);

}  // namespace stepsim
