#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "sim/batching/lengths.h"

namespace stepsim {

/// The lengths of the data sets of a study, each generated or read once. The latest ones are kept;
/// sets of very many samples are not. All members may be called from several threads at once.
class KnownLengths {
 public:
  /// generate_lengths().
  [[nodiscard]] std::vector<std::int64_t> of(const LengthSource& source, std::int64_t count);

 private:
  struct Known {
    LengthSource source;
    std::int64_t count = 0;
    std::shared_ptr<const std::vector<std::int64_t>> lengths;
  };

  std::mutex mutex_;
  std::list<Known> known_;  ///< The latest one first.
};

}  // namespace stepsim
