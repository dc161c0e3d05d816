#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "costmodel/io/gzip_writer.h"
#include "sim/report/trace/trace_source.h"

namespace stepsim {

/// One rank's trace in the form of PyTorch's profiler (Kineto), which HTA, TensorBoard and `stepcal
/// import kineto` read: ProfilerStep#N, launches, kernels with streams and correlation ids, NCCL
/// kernels that hold the wait for the other ranks, with sizes and groups.
///
/// Whatever the machine, the work stands there as kernels of a GPU. The host is one that waits for
/// the device at the end of each step: it launches when the simulated host does, but not before
/// the step or the batch, and no call takes longer than 1 us. Work that takes no time is left out.
/// What runs ahead of its step on a side stream (casts of mixed precision) begins before its
/// launch.
///
/// The collectives state their group, its ranks and their number in it ("Seq"), so that PyTorch's
/// own readers know them; their names begin with "ncclKernel", which HTA looks for.
class ProfilerTrace {
 public:
  /// `source` must outlive the writer. Raises EnvironmentFault, as all members do.
  ProfilerTrace(const TraceSource& source, int rank, const std::string& path);

  void add(const TraceStep& step);
  /// Ends the file.
  void finish();
  [[nodiscard]] std::int64_t left_out() const { return left_out_; }
  [[nodiscard]] const GzipWriter& file() const { return file_; }

 private:
  /// A process group by its name in the trace.
  struct Group {
    int number = 0;  ///< 0: all ranks.
    std::int64_t next_seq = 0;
  };
  /// A row of the device with its launch. Nanoseconds.
  struct Launch {
    const TraceRow* row = nullptr;
    std::int64_t begin = 0;  ///< On the device.
    std::int64_t end = 0;
    std::int64_t ready = 0;        ///< No later than `begin`: when it must have been launched.
    std::int64_t enqueued_at = 0;  ///< By the host.
    Phase phase = Phase::Forward;
  };

  void begin(const StepTimeline& timeline);
  Group& group_of(const std::vector<int>& ranks);
  [[nodiscard]] std::vector<Launch> launches_of(const TraceStep& step);
  [[nodiscard]] std::int64_t data_end_of(const TraceStep& step) const;
  void add_phases(const std::vector<Launch>& launches);
  void add_launch(const TraceStep& step, const Launch& launch);
  void add_collective(const TraceStep& step, const Launch& launch, std::int64_t id);
  void host_row(std::string_view category,
                std::string_view name,
                bool backward,
                std::int64_t begin,
                std::int64_t end,
                std::string_view arguments);
  void device_row(std::string_view name,
                  int stream,
                  const Launch& launch,
                  std::int64_t id,
                  std::string_view more);
  void metadata(int process, std::string_view what, std::string_view argument);
  void event(std::string_view text);

  const TraceSource& source_;
  int rank_;
  int node_ = 0;
  std::map<std::vector<int>, Group> groups_;  ///< By their ranks; empty before the first step.
  int device_;                                ///< The device's number on its node.
  GzipWriter file_;
  std::string text_;  ///< Not written yet.
  std::int64_t events_ = 0;
  std::int64_t next_id_ = 1;
  std::int64_t left_out_ = 0;
};

}  // namespace stepsim
