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
  std::map<int, std::int64_t> producers;  ///< [number of the collective] Stream; -1 = none.
  std::int64_t dropped = 0;        ///< Calls beside a blocking one of another thread, without work.
  std::int64_t put_after = 0;      ///< Such calls with work: they stand after the blocking call.
  std::int64_t left_streams = 0;   ///< Streams with work from before the step.
  std::int64_t waits_between = 0;  ///< Work that was found to wait for that of another stream.
  /// How long work stood launched on a stream with nothing to do, for no reason that the trace
  /// shows, beyond what an idle GPU takes.
  std::int64_t unexplained_ns = 0;
};

/// Makes the calls of one rank, by the rules that make_kineto_program() states. `step` is an index
/// in trace.steps. `numbers` maps a collective's place in the trace to its number in the program;
/// those without a number become GPU work of their recorded length. `zero_ns` is the zero of the
/// program's clock in the trace's time.
[[nodiscard]] KinetoRankRows make_kineto_rows(const KinetoTrace& trace,
                                              int step,
                                              const std::map<std::size_t, int>& numbers,
                                              std::int64_t zero_ns);

/// Counts, by step, the launches whose kernels the trace lacks because it ended before they ran.
[[nodiscard]] std::vector<std::int64_t> launches_without_kernel(const KinetoTrace& trace);

}  // namespace stepsim
