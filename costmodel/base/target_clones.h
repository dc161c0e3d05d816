#pragma once

/// Compiles a function also for processors with AVX2, and takes that version where there is one.
/// Both do the same arithmetic, so that results do not depend on the processor: AVX2 alone has no
/// fused multiply-add. Not under ThreadSanitizer, whose run time is not there yet when the loader
/// chooses the version.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__gnu_linux__) && \
    !defined(__SANITIZE_THREAD__)
#define STEPSIM_TARGET_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define STEPSIM_TARGET_CLONES
#endif
