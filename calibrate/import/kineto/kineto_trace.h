#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "calibrate/import/kineto/kineto_events.h"
#include "calibrate/import/kineto/kineto_names.h"
#include "costmodel/base/progress_callback.h"

namespace stepsim {

/// A stretch of time in Unix nanoseconds, or on the file's own clock when it has no base time.
struct KinetoSpan {
  std::int64_t start_ns = 0;
  std::int64_t duration_ns = 0;

  [[nodiscard]] std::int64_t end_ns() const { return start_ns + duration_ns; }
};

/// One ProfilerStep#N of the host. The GPU may lag behind it.
struct KinetoStep {
  std::int64_t number = 0;
  KinetoSpan span;
  int thread = 0;  ///< The main thread, numbered as in KinetoLaunch.
};

/// The call on the host that queued a GPU operation.
struct KinetoLaunch {
  KinetoSpan span;
  int thread = 0;                 ///< Threads are numbered in order of appearance.
  std::int64_t correlation = -1;  ///< The number of what it queued; -1 when not recorded.
};

/// What a call of the CUDA runtime does, by what it makes wait.
enum class KinetoCallKind : std::uint8_t {
  Other,         ///< Nothing that is known, or a collective's own stream.
  KernelLaunch,  ///< Nothing; a kernel of the same correlation belongs to it.
  BlockingCopy,  ///< The host, for the copy.
  StreamSync,    ///< The host, for one stream.
  EventSync,     ///< The host, for an event.
  DeviceSync,    ///< The host, for all streams.
  StreamWait     ///< A stream, for another one or for a collective.
};

/// One call of the CUDA runtime or driver.
struct KinetoCall {
  KinetoCallKind kind = KinetoCallKind::Other;
  KinetoLaunch at;
  // From rows of category cuda_sync, which PyTorch writes on demand; -1 when not recorded.
  std::int64_t stream = -1;     ///< The stream that waits, or for which the host waits.
  std::int64_t on_stream = -1;  ///< The stream of the event that it waits for.
  std::int64_t event_ns = -1;   ///< The start of the call that recorded this event.
};

enum class KinetoPart : std::uint8_t { Forward, Backward, Optimizer };

/// A stretch of the host's time that belongs to a part of the step.
struct KinetoPhase {
  KinetoPart part = KinetoPart::Forward;
  /// False for a node of autograd. All nodes of a step together are its backward pass.
  bool annotated = true;
  KinetoSpan span;
  int thread = 0;
};

/// Which tensor of an op is kept: what tells a batch's shape, or a parameter's.
enum class KinetoTensorOf : std::uint8_t {
  Embedding,  ///< The indices.
  Conv1d,     ///< The input, as of the next four.
  Conv2d,
  Conv3d,
  Linear,
  Recurrent,
  Product,    ///< The first matrices that a batched product multiplies, as those of attention.
  Attention,  ///< The queries.
  Compiled,   ///< The first table of whole numbers that torch.compile's graph takes.
  Gradient    ///< The gradient that is added to a parameter's.
};

/// A tensor that an op of the host took, where record_shapes was on.
struct KinetoTensor {
  KinetoTensorOf of = KinetoTensorOf::Linear;
  std::vector<std::int64_t> dims;
  std::string dtype;  ///< That of a gradient: "float32"; empty for others.
  std::int64_t start_ns = 0;
  int thread = 0;
};

/// A compute kernel, copy or memset. Collectives are not among them.
struct KinetoOp {
  KinetoClass kind = KinetoClass::Other;
  int name = 0;  ///< Index into KinetoTrace::names.
  std::int64_t stream = 0;
  KinetoSpan span;
  KinetoLaunch launch;
  int step = -1;  ///< Index of the step that holds the launch; -1 = none does.
};

struct KinetoCollective {
  std::string kind;                      ///< "all_reduce", …; see collective_kind_of_call().
  std::string dtype;                     ///< "float32", …; empty when not recorded.
  std::optional<std::int64_t> elements;  ///< Recorded as In msg nelems, or by the input's shape.
  /// The size of the whole buffer, as CollectiveKind says: an all-gather's output, else the input.
  std::optional<std::int64_t> bytes;
  /// Its number on its communicator, and that communicator ("Seq", "Comms Id"); absent and empty
  /// where the file does not say.
  std::optional<std::int64_t> number;
  std::string communicator;
  std::string group;             ///< The process group's name and ranks; empty = not recorded.
  std::vector<int> group_ranks;  ///< Empty when not recorded (or shortened) in the file.
  std::optional<int> group_size;
  std::int64_t stream = -1;  ///< -1 without a GPU (gloo).
  /// What the device recorded. It includes waiting for the other ranks, so it is no transfer time.
  KinetoSpan span;
  KinetoLaunch launch;  ///< With gloo it equals `span`.
  int step = -1;        ///< Index of the step that holds the launch; -1 = none does.
  /// The end of the compute that the host launched before it; absent when there was none.
  std::optional<std::int64_t> ready_ns;
  /// Whether it is the all-reduce of a DDP bucket: DDP runs in this trace, and the call came from
  /// the thread of the backward pass, which is not the main one.
  bool bucket = false;
};

/// One rank's trace, in the order of launches.
struct KinetoTrace {
  std::string file;
  KinetoHeader header;
  std::vector<KinetoStep> steps;  ///< Sorted by start.
  std::vector<KinetoCollective> collectives;
  std::vector<KinetoOp> ops;
  /// Sorted by start, the longest first where starts are equal; without those named INVALID.
  std::vector<KinetoCall> calls;
  std::vector<KinetoPhase> phases;    ///< Sorted by start.
  std::vector<KinetoTensor> tensors;  ///< Sorted by start.
  std::vector<std::string> names;     ///< The kernels' names, each once.
  std::vector<std::int64_t> streams;  ///< The streams of GPU operations, ascending.

  std::int64_t events = 0;          ///< The rows of traceEvents.
  std::int64_t rows = 0;            ///< Complete events of the categories that are read.
  std::int64_t without_launch = 0;  ///< GPU rows whose launch is not there; left out of `ops`.
  /// [stream] The end of what was launched before the recording; see kineto_backlog().
  std::map<std::int64_t, std::int64_t> launched_before_ns;
  std::set<std::string> other_runtimes;  ///< Categories of launches that are not read.
  std::int64_t unusable = 0;             ///< Complete events without a time or of negative length.
  std::vector<std::string> warnings;
};

/// The index of the step that holds `time`; -1 when none does. `steps` are sorted by start.
[[nodiscard]] int step_at(const std::vector<KinetoStep>& steps, std::int64_t time);

/// Reads one rank's trace of PyTorch's profiler (Kineto), old and new schema, gzip or not. Memory
/// grows with the GPU operations, the runtime's calls, the nodes of autograd and the few kinds of
/// ops in KinetoTensorOf only.
///
/// Raises InputError as read_kineto_events() does, and for an unknown element type and a
/// device whose launches are not read.
[[nodiscard]] KinetoTrace read_kineto(const std::string& path,
                                      const ProgressCallback& on_progress = {});

}  // namespace stepsim
