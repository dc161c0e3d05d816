#pragma once

#include <string>

namespace stepsim::cpu {

/// The kernels are compiled for the processor they were built on. Raises EnvironmentFault on
/// another one, instead of dying of an illegal instruction later.
void require_built_for_this_processor();

/// "gcc 12.2.0, avx512f avx2 fma": the kernels' compiler and vector instructions.
[[nodiscard]] std::string kernel_build();
[[nodiscard]] std::string eigen_version();

/// Flushes denormal numbers to zero in this thread while it lives: AdamW's decaying moments reach
/// them after some hundred steps and would slow the machine down from then on.
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
