#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "costmodel/io/gzip_writer.h"
#include "sim/report/trace/trace_source.h"

namespace stepsim {

/// A Chrome trace (JSON object format) of several ranks in one file, for Perfetto: one process a
/// rank with the threads "steps" (ProfilerStep#N), "compute" and "communicator", "side stream" and
/// "communicator 2" where there are any. Slices of one thread nest or are apart. Arrows lead from
/// the work that completes a bucket to its collective. Counters: useful tokens, padded tokens and
/// peak memory of each step.
///
/// Times are microseconds from the start of step 0, to the nanosecond.
class ChromeTrace {
 public:
  /// `source` and `file` must outlive the writer. Raises EnvironmentFault, as all members do.
  ChromeTrace(const TraceSource& source, GzipWriter& file);

  void add(const TraceStep& step);
  /// Ends the file.
  void finish();
  [[nodiscard]] std::int64_t events() const { return events_; }

 private:
  void add_rank(const TraceStep& step, int rank);
  void add_collective(const TraceStep& step, int rank, const TraceRow& row);
  void add_arrow(const TraceStep& step, int rank, const TraceRow& row);
  void slice(int rank,
             int thread,
             std::string_view name,
             SimTime begin,
             SimTime end,
             std::string_view arguments);
  void counter(int rank, std::string_view name, std::string_view unit, SimTime at, double value);
  void metadata(int rank, int thread, std::string_view what, std::string_view argument);
  /// Names a thread where it is first used.
  void name_thread(int rank, int thread);
  void event(std::string_view text);

  const TraceSource& source_;
  GzipWriter& file_;
  std::string text_;                     ///< Not written yet.
  std::set<std::pair<int, int>> named_;  ///< (rank, thread)
  std::int64_t events_ = 0;
  std::int64_t arrows_ = 0;
};

}  // namespace stepsim
