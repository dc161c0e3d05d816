#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "costmodel/base/units.h"
#include "costmodel/network/collective_cost.h"
#include "costmodel/network/interference.h"
#include "sim/engine/program.h"
#include "sim/parallel/iteration.h"
#include "sim/parallel/trained_model.h"

namespace stepsim {

/// One launch on the device.
struct Kernel {
  Duration launch{0};  ///< The host is busy for so long.
  Duration work{0};
  Bound bound = Bound::Compute;
  std::int32_t blocks = 0;  ///< compute_slowdown()
  std::int32_t label = -1;  ///< TrainedModel::labels
};

/// The ranks of a collective: all of them, or groups of so many ranks that are `stride` apart. Each
/// group has a communicator of its own.
struct RankGroup {
  int communicator = 0;  ///< That of the first group; those of the others follow.
  int ranks = 0;         ///< 0: all ranks of the job.
  int stride = 1;

  /// Which of the groups a rank is in.
  [[nodiscard]] int of(int rank) const {
    return ranks == 0 ? 0 : rank / (ranks * stride) * stride + rank % stride;
  }
};

/// What a host spends on the units of sharded training.
struct UnitHost {
  Duration forward{0};         ///< The hooks of a unit in its forward,
  Duration forward_tensor{0};  ///< and more of it for each of its tensors.
  Duration backward{0};        ///< Likewise in its backward, before and after it in equal parts.
  Duration backward_tensor{0};
  Duration optimizer_tensor{0};  ///< The optimizer spends so much more on a sharded tensor.
  /// On a CPU, for each byte that copies around gathers and reductions read or write, where no
  /// price of the profile's says it.
  double byte_seconds = 0;
};

/// Costs of what DDP itself does. The last argument of the kernels is the slowness of the rank.
struct StepPrices {
  /// A copy, a zeroing or an optimizer over so many elements of gradient.
  std::function<Kernel(OpClass, std::int64_t, double)> elements;
  /// A memory-bound kernel that reads and writes so many bytes together.
  std::function<Kernel(double, double)> memory;
  /// A copy of so many bytes between the host and the device.
  std::function<Kernel(double)> host_copy = [](double) { return Kernel{}; };
  double host_optimizer = 0;  ///< Seconds that the optimizer takes for an element on the host.
  /// The time of a collective of so many bytes from the last rank's arrival to the end.
  std::function<Duration(CollectiveKind, double, const RankGroup&)> transfer;
  /// Multiprocessors that a collective of so many bytes holds.
  std::function<int(double)> channels = [](double) { return 0; };
  Duration enqueue{0};      ///< Host time to enqueue one collective.
  Duration hook{0};         ///< Host time per gradient that becomes ready.
  Duration python_hook{0};  ///< Host time per bucket of a hook written in Python.
  UnitHost unit_host = {};
  Duration traversal_per_op{0};  ///< Host time per op of the graph with find_unused_parameters.
  Duration sync{0};              ///< From the device's end to the host going on after a sync.
};

/// What the host thread of a rank waits for.
struct StepHost {
  bool is_device = false;              ///< CPU: the host thread computes, so it never runs ahead.
  bool waits_for_collectives = false;  ///< gloo: the host waits for collectives, not the stream.
  bool syncs_each_step = false;  ///< The host waits for the device after a step (loss.item()).
};

/// What holds up the first op of a pass: its launch takes longer, and its work.
struct PassStall {
  Duration host{0};
  Duration device{0};

  bool operator==(const PassStall&) const = default;
};

/// One micro-batch on one rank.
struct MicroBatchWork {
  Duration collate{0};           ///< Host: build the batch.
  std::optional<SimTime> ready;  ///< The loader's workers have it no earlier.
  Kernel copy_input;             ///< Host to device.
  std::vector<Kernel> forward;
  std::vector<Kernel> backward;
  bool joined = false;  ///< The rank is out of inputs and takes part in collectives only.
};

/// One rank in one optimizer step.
struct RankWork {
  std::vector<MicroBatchWork> micro_batches;
  double factor = 1;  ///< Slowness of the rank, for the kernels that DDP adds.
  /// Parameter elements whose optimizer state this rank owns: all of them without ZeRO.
  std::int64_t owned_elements = 0;
};

/// One optimizer step of all ranks.
struct StepWork {
  std::vector<RankWork> ranks;
  std::vector<Iteration> iterations;  ///< [micro-batch]
  /// Global index of the step from 0: warm-up of hooks and their periods count it.
  int step = 0;
  /// The rows and indices of a sparse gradient, of all ranks together.
  double sparse_bytes = 0;
  bool joining = false;  ///< Inside join(): ranks may run out of inputs.
  bool last_of_join = false;
  bool first_rank_only = false;  ///< The program of rank 0 is all that is wanted.
  /// Is given the instructions of each rank when they are there, and may take them.
  std::function<void(std::vector<Instruction>&)> on_rank = [](std::vector<Instruction>&) {};

  /// The ranks of which a program is wanted: those before this one.
  [[nodiscard]] int wanted_ranks() const {
    return first_rank_only ? 1 : static_cast<int>(ranks.size());
  }
};

}  // namespace stepsim
