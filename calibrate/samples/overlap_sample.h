#pragma once

#include <cstdint>
#include <string>

namespace stepsim {

/// Times of a collective and a compute kernel, each alone and both side by side. Side by side, each
/// was repeated until the other had ended. A collective occupies multiprocessors for as long as it
/// runs, no matter what moves the bytes.
struct OverlapSample {
  int channels = 0;  ///< Multiprocessors that the collective held.
  std::int64_t collective_bytes = 0;
  double collective_alone = 0;  ///< Seconds of one collective.
  /// Seconds of one collective beside the compute. 0 = unknown: on one device a stand-in kernel
  /// runs in its place, which moves no bytes between ranks.
  double collective_beside = 0;
  std::string compute;        ///< "gemm", "attention" or "memory": what limits it.
  int compute_blocks = 0;     ///< Thread blocks of one run; 0 = unknown.
  double compute_alone = 0;   ///< Seconds of one run.
  double compute_beside = 0;  ///< Seconds of one run beside the collective.
};

}  // namespace stepsim
