#pragma once

#include <span>
#include <vector>

#include "sim/engine/program.h"
#include "sim/parallel/fsdp2/shard_sequence.h"
#include "sim/parallel/step_program.h"

namespace stepsim {

/// The options of fully_shard that decide when things happen, beside those of its units.
struct Fsdp2Options {
  ShardMesh mesh;
  /// Reduce-scatter inputs that may be held: so many reductions run behind the one that copies in
  /// (set_reduce_scatter_max_input_buffers).
  int reduce_buffers = 1;
  bool separate_reduce_group = false;        ///< set_separate_reduce_scatter_group(True)
  bool async_unshard = false;                ///< On a CPU: gathers run beside compute.
  std::vector<ShardSwitches> switches = {};  ///< [micro-batch]; those that are not there are on.
  bool offload = false;  ///< CPUOffloadPolicy: shards, gradients and optimizer are on the host.
};

[[nodiscard]] inline int replicas_of(const Fsdp2Options& options) {
  return options.mesh.replicates ? options.mesh.replicas : 1;
}

/// The communicators of its programs: all ranks, the shard groups, those of a separate
/// reduce-scatter group, the replica groups, and the groups of slices of `slice_ranks` (0: none).
[[nodiscard]] std::vector<Communicator> fsdp2_communicators(const Fsdp2Options& options,
                                                            int slice_ranks,
                                                            bool gloo);

/// Writes what every rank's host does in one optimizer step of FSDP2: the acts of ShardSequence
/// with the model's ops between them. Gathers, reductions and the copies around them have streams
/// of their own, which wait for one another as PyTorch's do. On a CPU each collective holds its
/// host.
///
/// With offload a shard is copied to the device before it is copied into its gather, on the same
/// stream, and a reduced gradient back to the host behind its reduction. The host waits for these
/// at the end of the backward, and at once for one that it adds to a gradient it has, in three
/// sevenths of what the optimizer takes for as many; then it runs the optimizer. Not for a CPU.
///
/// `units`: the parameters of unit u of `model`, in that order; the root is unit 0. Throws
/// std::invalid_argument when the work does not fit the model.
[[nodiscard]] StepProgram fsdp2_program(const TrainedModel& model,
                                        std::span<const ShardUnit> units,
                                        const Fsdp2Options& options,
                                        const StepHost& host,
                                        const StepPrices& prices,
                                        const StepWork& step);

}  // namespace stepsim
