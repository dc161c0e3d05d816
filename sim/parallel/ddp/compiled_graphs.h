#pragma once

#include <cstddef>
#include <vector>

#include "sim/parallel/ddp/ddp_options.h"
#include "sim/parallel/trained_model.h"

namespace stepsim {

/// Returns where the graphs of a compiled DDP module end: [graph] the backward op after its last
/// one, in the order of the backward. All gradients of a graph become ready when it has ended.
///
/// With no_optimization there is one graph. Dynamo's DDPOptimizer goes through the forward from its
/// end and begins a new graph before the op that follows once the graph has reached its limit: 1
/// MiB for the first, ddp.bucket_cap for all others, whatever the first bucket of DDP's reducer.
/// The reducer's buckets may be others. Ops at the end of the backward without a parameter join the
/// graph before them. Every op's output is taken to be used by another graph, without which
/// DDPOptimizer makes a graph longer; a tied weight counts where its gradient is complete.
///
/// Source: DDPOptimizer.compile_fn in torch/_dynamo/backends/distributed.py, read in a public copy
/// of about 2025 that names no version.
[[nodiscard]] std::vector<std::size_t> compiled_graphs(const TrainedModel& model,
                                                       const DdpOptions& options);

/// Returns the model with gradients that become ready at the ends of its compiled graphs; the model
/// itself where nothing is compiled.
[[nodiscard]] TrainedModel with_compiled_graphs(TrainedModel model, const DdpOptions& options);

}  // namespace stepsim
