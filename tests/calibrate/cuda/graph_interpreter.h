#pragma once

#include <map>
#include <vector>

#include "calibrate/cuda/attention/sdpa_graph.h"

namespace stepsim::cuda {

/// Values of the tensors that a caller binds, in their memory layouts; integers as doubles.
using GraphMemory = std::map<GraphRole, std::vector<double>>;

/// Evaluates a graph operation by operation in double precision, each as cuDNN's documentation
/// defines it. Rows past the end of a packed sequence read as not-a-number and are not written.
/// Output arrays must be there and large enough.
void interpret(const SdpaGraph& graph, GraphMemory& memory);

}  // namespace stepsim::cuda
