#pragma once

#include <cstdint>

#include "sim/parallel/step_program.h"
#include "sim/parallel/zero/module_trace.h"

namespace stepsim {

/// The elements that ranks gather or reduce for a parameter: its own, padded to a multiple of the
/// ranks.
[[nodiscard]] std::int64_t padded_to_ranks(std::int64_t elements, int ranks);

/// The first micro-batches of a training, which gather without knowing what comes.
inline constexpr int kUnknownBatches = 2;

/// Writes what every rank's host does in one optimizer step of DeepSpeed's ZeRO-3. `model` has
/// units by add_leaf_modules().
///
/// Gathers: a stream of their own has the copies around them; a gather of one parameter needs none.
/// A run waits for its own parameters' gathers with all that these hold, then the next ones are
/// prefetched; see module_trace(). Before a wait the host waits until at most two earlier ones are
/// unfinished. Gradients: each is copied to a bucket on the stream of reductions; before a gradient
/// that the bucket has no room for, and at the end of each micro-batch, the bucket is copied to the
/// order of ranks, divided, reduce-scattered, and copied or added to the shard's gradients. The
/// host waits before a reduction until at most two are unfinished, and for all of them at the end
/// of the backward. After the optimizer the parameters' own type is made of the shard, and each
/// persistent parameter is gathered.
///
/// Without overlap both streams are the compute stream. On a CPU a reduction holds its host, and a
/// gather does where it is waited for. One rank has none of this. Throws std::invalid_argument when
/// the work does not fit the model.
[[nodiscard]] StepProgram zero_program(const TrainedModel& model,
                                       const ZeroOptions& options,
                                       const StepHost& host,
                                       const StepPrices& prices,
                                       const StepWork& step);

}  // namespace stepsim
