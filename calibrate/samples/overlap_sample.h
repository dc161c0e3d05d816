#pragma once

#include <cstdint>
#include <string>

namespace stepsim {

/// A collective and compute that ran side by side, each again and again until the other had ended,
/// and each of them alone. A collective is resident while it runs, whatever moves the bytes.
struct OverlapSample {
  int channels = 0;  ///< Multiprocessors that the collective held.
  std::int64_t collective_bytes = 0;
  double collective_alone = 0;  ///< Seconds of one collective.
  /// The same beside the compute; 0 = unknown: a stand-in on one device moves no collective's
  /// bytes.
  double collective_beside = 0;
  std::string compute;        ///< "gemm", "attention" or "memory": what limits it.
  int compute_blocks = 0;     ///< Thread blocks of one run; 0 = unknown.
  double compute_alone = 0;   ///< Seconds of one run.
  double compute_beside = 0;  ///< The same beside the collective.
};

}  // namespace stepsim
