#pragma once

#include <string>

namespace stepsim::cpu {

/// Raises EnvironmentFault on a processor that lacks the instructions of the one on which the
/// kernels were built, so that the program does not die of an illegal instruction later.
void require_built_for_this_processor();

/// The compiler of the kernels and their vector instructions: "gcc 12.2.0, avx512f avx2 fma".
[[nodiscard]] std::string kernel_build();
[[nodiscard]] std::string eigen_version();

/// Flushes denormal numbers to zero in this thread while it lives. AdamW's decaying moments become
/// denormal after some hundred steps and would slow the step down from then on.
class FlushDenormals {
 public:
  FlushDenormals();
  ~FlushDenormals();
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  unsigned before_ = 0;
};

}  // namespace stepsim::cpu
