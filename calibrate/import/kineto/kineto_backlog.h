#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "calibrate/import/kineto/kineto_trace.h"

namespace stepsim {

/// One GPU row of a trace.
struct KinetoGpuWork {
  std::int64_t stream = 0;
  KinetoSpan span;
  bool launched = false;  ///< The call that queued it is in the trace.
};

/// Finds what the GPU had still to do when the recording began.
///
/// Returns, by stream, the end of the work that was launched before: rows without their launch that
/// began before any other work of the stream, the first of them before `first_call_ns`, the start
/// of the first recorded call, and each at most 100 us after the one before ended. Other rows
/// without a launch were launched in a way that the trace does not hold.
[[nodiscard]] std::map<std::int64_t, std::int64_t> kineto_backlog(std::vector<KinetoGpuWork> work,
                                                                  std::int64_t first_call_ns);

}  // namespace stepsim
