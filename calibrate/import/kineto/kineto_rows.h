#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "calibrate/import/kineto/kineto_program.h"
#include "calibrate/import/kineto/kineto_trace.h"

namespace stepsim {

/// The calls of one rank in one step.
struct KinetoRankRows {
  std::vector<KinetoRow> rows;
  std::map<int, std::int64_t> producers;  ///< By number of the collective; -1: none.
  std::int64_t dropped = 0;       ///< Calls beside a blocking one of another thread, without work.
  std::int64_t put_after = 0;     ///< The same with work: they stand after the blocking call.
  std::int64_t left_streams = 0;  ///< Streams with work of before the step.
};

/// `step`: index in trace.steps. `numbers`: place of a collective in the trace to its number in the
/// program; others become GPU work of their recorded length. `zero_ns`: of the program's clock, in
/// the trace's time. The rules: make_kineto_program().
[[nodiscard]] KinetoRankRows make_kineto_rows(const KinetoTrace& trace,
                                              int step,
                                              const std::map<std::size_t, int>& numbers,
                                              std::int64_t zero_ns);

/// [step] Launches of kernels that the trace does not hold, because it ended before they ran.
[[nodiscard]] std::vector<std::int64_t> launches_without_kernel(const KinetoTrace& trace);

}  // namespace stepsim
