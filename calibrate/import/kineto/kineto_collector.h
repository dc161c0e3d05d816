#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/import/kineto/kineto_trace.h"

namespace stepsim {

/// What rows of a category are.
enum class KinetoRowKind { Host, Runtime, Kernel, Copy, Memset, Sync, Skip };

/// Picks from the rows of a trace what read_kineto() keeps. Rows come in any order, so GPU rows are
/// joined with the host's when all have been seen.
class KinetoCollector {
 public:
  /// Fills `trace`, which must outlive the collector.
  explicit KinetoCollector(KinetoTrace* trace) : trace_(*trace) {}

  void add(const KinetoEvent& event);
  /// Call it after the last row, when the trace's header is set. Raises InputError for an unknown
  /// element type, and for a device whose launches are not read.
  void finish();
  [[nodiscard]] bool has_ddp() const { return has_ddp_; }

 private:
  /// The size and group of a collective, as a kernel, a call or record_param_comms states them.
  struct Statement {
    std::string kind;
    std::string dtype;
    std::optional<std::int64_t> in_elements;
    std::optional<std::int64_t> out_elements;
    std::string group_name;
    std::string group_ranks;
    std::optional<std::int64_t> group_size;
    std::optional<std::int64_t> number;
    std::string communicator;
  };
  /// A call of a collective on the host.
  struct Call {
    KinetoLaunch at;
    Statement statement;
    bool gloo = false;
    bool launched = false;  ///< It launched a collective's kernel; set in finish().
  };
  /// What a kernel's name says.
  struct KernelName {
    KinetoClass kind = KinetoClass::Other;
    bool nccl = false;
  };
  /// A GPU row that waits for its launch.
  struct GpuRow {
    std::int64_t correlation = -1;
    KinetoOp op;
    std::ptrdiff_t statement = -1;  ///< Index into `kernel_statements_` of an NCCL kernel.
  };

  /// An op c10d::_allgather_base_ or c10d::_reduce_scatter_base_, which gloo's threads run.
  struct BaseCall {
    std::int64_t start_ns = 0;
    bool scatters = false;
    std::int64_t whole = 0;  ///< Elements of the whole buffer and of a rank's part.
    std::int64_t part = 0;
    bool found = false;  ///< A row of gloo's is known to be its.
  };

  /// A row of category cuda_sync.
  struct Sync {
    std::int64_t correlation = -1;
    std::int64_t stream = -1;
    std::int64_t on_stream = -1;
    std::int64_t record = -1;  ///< The correlation of the call that recorded the event.
  };

  [[nodiscard]] KinetoRowKind rows_of(const KinetoEvent& event);
  void add_complete(const KinetoEvent& event);
  void add_host(const KinetoEvent& event, const KinetoLaunch& at);
  void add_tensor(const KinetoEvent& event,
                  const KinetoLaunch& at,
                  KinetoTensorOf of,
                  std::size_t place);
  void add_runtime(const KinetoEvent& event, const KinetoSpan& span);
  void add_gpu(const KinetoEvent& event, const KinetoSpan& span, KinetoClass kind);
  [[nodiscard]] static Statement statement_of(const KinetoEvent& event);
  [[nodiscard]] int thread_of(const KinetoEvent& event);
  [[nodiscard]] int name_of_kernel(const std::string& name);

  void add_base_call(const KinetoEvent& event, std::int64_t start_ns, bool scatters);
  void tell_gloo_calls();

  void shift_to_base();
  void sort_host_rows();
  /// Finds one of `trace_.calls` by its correlation.
  [[nodiscard]] KinetoCall* call_of(std::int64_t correlation) const;
  [[nodiscard]] static Call* enclosing(std::vector<Call>& calls, const KinetoLaunch& launch);
  void add_collective(const KinetoSpan& span,
                      std::int64_t stream,
                      const KinetoLaunch& launch,
                      const Statement& own);
  void complete_syncs();
  void leave_waits_of_collectives();
  void require_known_runtime() const;
  void find_earlier_work();
  void take_size(const Statement& statement, KinetoCollective* collective);

  KinetoTrace& trace_;
  std::vector<GpuRow> gpu_rows_;
  std::vector<Statement> kernel_statements_;
  std::vector<Sync> syncs_;
  std::vector<Call> calls_;         ///< nccl:* and gloo:*, by thread and start when sorted.
  std::vector<Call> comm_records_;  ///< record_param_comms, sorted like these.
  std::vector<BaseCall> base_calls_;
  std::map<std::pair<std::string, std::string>, int> threads_;  ///< Of process and thread.
  std::map<std::string, int> kernel_names_;
  std::vector<KernelName> kernels_;                 ///< Of KinetoTrace::names.
  std::map<std::string, KinetoRowKind> row_kinds_;  ///< Of the categories so far.
  std::set<std::string> other_devices_;  ///< Categories of devices' rows that are not read.
  bool has_ddp_ = false;
};

}  // namespace stepsim
