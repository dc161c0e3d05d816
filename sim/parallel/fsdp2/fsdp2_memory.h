#pragma once

#include <optional>
#include <span>
#include <vector>

#include "sim/parallel/fsdp2/fsdp2_program.h"
#include "sim/parallel/fsdp2/held_bytes.h"
#include "sim/parallel/fsdp2/shard_sequence.h"

namespace stepsim {

/// What is held when something has been allocated or freed.
struct HeldMoment {
  HeldBytes held;
  int micro_batch = 0;
  bool backward = false;
  int ops = 0;                  ///< Of the pass, begun by now.
  std::optional<ShardAct> act;  ///< What the host does; None: it runs an op.
  int unit = 0;                 ///< Whose act or op it is.
};

/// The bytes that the first rank, whose shard is as large as any, holds over one optimizer step,
/// in the order in which its host allocates and frees; PyTorch's caching allocator accounts in that
/// order, too. The step begins without gradients and ends before zero_grad(), and the optimizer's
/// state is there from the start.
///
/// Checked against PyTorch 2.15's FSDPMemTracker. In a forward the buffer of a gather is kept until
/// the next one has arrived, in a backward until it is copied out. Gradients are of the gathered
/// type and unpadded until they are copied into a reduce-scatter's input, of which
/// `options.reduce_buffers` are held. Temporary tensors of the optimizer are not counted. With
/// offload only what is on the device counts, which of the shards are copies that a gather reads.
///
/// `model` and `units` as for fsdp2_program(). `micro_batches`: those of the step.
/// `optimizer_bytes`: what the optimizer keeps of an element.
[[nodiscard]] std::vector<HeldMoment> fsdp2_memory(const TrainedModel& model,
                                                   std::span<const ShardUnit> units,
                                                   const Fsdp2Options& options,
                                                   int micro_batches,
                                                   double optimizer_bytes);

}  // namespace stepsim
