#pragma once

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <string>

namespace stepsim {

/// One of several parts of a study's points, each computed by a process that knows nothing of the
/// others. Part k of n has the points k, k + n, k + 2n, … of the study, counted from 1.
struct Shard {
  int number = 1;  ///< From 1 to count.
  int count = 1;

  [[nodiscard]] bool is_all() const { return count == 1; }
  /// Tells whether the point with this index, from 0, is in this part.
  [[nodiscard]] bool has(std::size_t point) const {
    return point % static_cast<std::size_t>(count) == static_cast<std::size_t>(number - 1);
  }
  [[nodiscard]] std::string text() const;  ///< "2/8"
  bool operator==(const Shard&) const = default;
};

/// Gives the value of an environment variable; null when it is not set.
using ShardEnvironment = std::function<const char*(const char* name)>;

/// Parses "2/8", or "auto": the task of a Slurm job array, and in it the process of `srun`, or of
/// Open MPI's mpirun, where there are several. Raises InputError: the text is neither, or "auto"
/// finds none of these.
[[nodiscard]] Shard parse_shard(const std::string& text,
                                const ShardEnvironment& environment = ::getenv);

}  // namespace stepsim
