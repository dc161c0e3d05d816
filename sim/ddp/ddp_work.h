#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "costmodel/base/units.h"
#include "costmodel/network/collective_cost.h"
#include "costmodel/network/communication_hook.h"
#include "costmodel/network/interference.h"
#include "sim/ddp/bucket_assignment.h"
#include "sim/ddp/iteration.h"

namespace stepsim {

/// One launch on the device.
struct Kernel {
  Duration launch{0};  ///< Of the host.
  Duration work{0};
  Bound bound = Bound::Compute;
  std::int32_t blocks = 0;  ///< compute_slowdown()
  std::int32_t label = -1;  ///< DdpModel::labels
};

/// The model as DDP sees it.
struct DdpModel {
  std::vector<BucketParameter> parameters;
  std::vector<std::vector<std::int64_t>> shapes;  ///< [parameter]
  std::vector<std::vector<int>> completes;        ///< [backward op] gradients it completes.
  std::vector<int> forward_unit;                  ///< [forward op] unit of fully sharded training.
  std::vector<int> backward_unit;                 ///< [backward op]
  std::vector<std::vector<int>> units;            ///< [unit] parameters; unit 0 is the root.
  std::vector<std::int64_t> buffer_bytes;         ///< One entry a dtype of the buffers.
  std::vector<std::string> labels;                ///< Names of ops, for traces.

  [[nodiscard]] std::int64_t elements(int parameter) const;
  [[nodiscard]] std::int64_t total_bytes() const;
};

/// Costs of what DDP itself does. Kernels are those of a rank of ordinary speed.
struct DdpPrices {
  /// Copies, zeroing, optimizer over so many elements of gradient.
  std::function<Kernel(OpClass, std::int64_t)> elements;
  /// A memory-bound kernel that reads and writes so many bytes together.
  std::function<Kernel(double)> memory;
  /// From the last arrival to the end. `whole_world`: all ranks, else a subgroup
  /// of post-local SGD.
  std::function<Duration(CollectiveKind, double, bool)> transfer;
  /// Multiprocessors that a collective of so many bytes holds.
  std::function<int(double)> channels = [](double) { return 0; };
  Duration enqueue{0};           ///< Host time to enqueue one collective.
  Duration hook{0};              ///< Host time per gradient that becomes ready.
  Duration python_hook{0};       ///< Host time per bucket of a hook written in Python.
  Duration traversal_per_op{0};  ///< Host time per op of the graph with find_unused_parameters.
  Duration sync{0};              ///< From the device's end to the host going on after a sync.
};

/// How the gradients are synchronised; the scenario's [ddp] table.
struct SyncOptions {
  bool gradient_as_bucket_view = false;
  bool set_to_none = true;
  bool batched_grad_copy = false;
  bool optimizer_in_backward = false;
  bool overlap = true;          ///< false: everything is launched after the backward.
  bool step_sync = false;       ///< The host waits for the device after each step (loss.item()).
  bool host_blocks = false;     ///< gloo: the host waits for collectives, not the stream.
  bool host_is_device = false;  ///< CPU: the host thread computes.
  CommunicationHook hook = CommunicationHook::None;
  HookOptions hook_options;
  double reduce_scale = 1;        ///< Bytes on the wire over bytes of the parameters: 0.5 for bf16.
  double gradient_scale = 1;      ///< Bytes of a gradient over bytes of its parameter.
  bool casts_parameters = false;  ///< Native mixed precision: parameters are cast in the forward.
  int zero_stage = 0;
  bool broadcast_by_bucket = false;  ///< ZeRO-1 sends one broadcast a rank, not one a parameter.
  std::vector<int> unused;           ///< Parameters without a gradient, ascending.
  bool divide_by_initial_world_size =
      true;  ///< false: join() waits for the number of active ranks.
};

/// One micro-batch on one rank.
struct MicroBatchWork {
  Duration collate{0};  ///< Host: build the batch.
  SimTime ready{};      ///< The loader has it no earlier.
  Kernel copy_input;    ///< Host to device.
  std::vector<Kernel> forward;
  std::vector<Kernel> backward;
  bool joined = false;  ///< The rank is out of inputs and takes part in collectives only.
};

/// One rank in one optimizer step.
struct RankWork {
  std::vector<MicroBatchWork> micro_batches;
  double factor = 1;  ///< Slowness of the rank, for the kernels that DDP adds.
  /// Sum of parameter elements whose optimizer state this rank owns (all, without ZeRO).
  std::int64_t owned_elements = 0;
};

/// One optimizer step of all ranks.
struct DdpStep {
  std::vector<RankWork> ranks;
  std::vector<Iteration> iterations;  ///< [micro-batch]
  /// Global index of the step from 0: warm-up of hooks and their periods count it.
  int step = 0;
  /// All ranks' rows and indices of a sparse gradient together.
  double sparse_bytes = 0;
  bool joining = false;  ///< Inside join(): ranks may run out of inputs.
  bool last_of_join = false;
};

}  // namespace stepsim
