#include "calibrate/cpu/processor.h"

#include <Eigen/src/Core/util/Macros.h>
#include <fmt/core.h>

#include "costmodel/base/input_error.h"

#ifdef __SSE__
#include <xmmintrin.h>
#endif

namespace stepsim::cpu {

void require_built_for_this_processor() {
#if defined(__x86_64__)
  const char* missing = nullptr;
#ifdef __FMA__
  missing = __builtin_cpu_supports("fma") ? missing : "FMA";
#endif
#ifdef __AVX2__
  missing = __builtin_cpu_supports("avx2") ? missing : "AVX2";
#endif
#ifdef __AVX512F__
  missing = __builtin_cpu_supports("avx512f") ? missing : "AVX-512";
#endif
  if (missing != nullptr) {
    throw EnvironmentFault(
        "this program was built on a processor with {}, which this one lacks; build it "
        "on the machine that it shall measure",
        missing);
  }
#endif
}

std::string kernel_build() {
  std::string text;
#ifdef __clang__
  text = fmt::format("clang {}.{}.{},", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  text = fmt::format("gcc {}.{}.{},", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
#ifdef __AVX512F__
  text += " avx512f";
#endif
#ifdef __AVX2__
  text += " avx2";
#endif
#ifdef __FMA__
  text += " fma";
#endif
  return text;
}

std::string eigen_version() {
  return fmt::format("{}.{}.{}", EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION, EIGEN_MINOR_VERSION);
}

FlushDenormals::FlushDenormals() {
#ifdef __SSE__
  constexpr unsigned kFlushToZero = 0x8000;
  constexpr unsigned kDenormalsAreZero = 0x0040;
  before_ = _mm_getcsr();
  _mm_setcsr(before_ | kFlushToZero | kDenormalsAreZero);
#endif
}

FlushDenormals::~FlushDenormals() {
#ifdef __SSE__
  _mm_setcsr(before_);
#endif
}

}  // namespace stepsim::cpu
