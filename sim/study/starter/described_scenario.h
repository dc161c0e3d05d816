#pragma once

#include <cstdint>
#include <string>

namespace stepsim {

/// What a user says of a training that nobody has run yet.
struct DescribedTraining {
  std::string name = "mine";
  std::string model;              ///< A preset, or the path of a config.json.
  std::string gpus = "1";         ///< "8", or by nodes as "2x8".
  std::string profile;            ///< A file, or the name of a shipped one.
  std::string dtype;              ///< "bf16"; empty: the model's own.
  bool flash = false;             ///< Fused attention; false: the model's own.
  std::string lengths;            ///< A file of the tokens of each sample, one a line; or empty,
  std::int64_t cap = 0;           ///< Cuts those to so many tokens; 0: it does not.
  std::int64_t length = 1024;     ///< and every sample is so long.
  std::int64_t samples = 10'000;  ///< Where no file says how many.
  std::int64_t batch_size = 8;    ///< Of a rank.
  std::string parallel = "ddp";   ///< One of sharding_names(), or a kind of [parallel].
};

/// The tokens of the samples, with the cap.
struct DescribedLengths {
  double mean = 0;
  std::int64_t longest = 0;
};

/// Returns a scenario file with comments: the model, the machine, the data, and three policies with
/// about as many tokens a batch.
[[nodiscard]] std::string described_scenario(const DescribedTraining& training,
                                             const DescribedLengths& lengths);

}  // namespace stepsim
