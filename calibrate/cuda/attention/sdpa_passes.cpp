#include "calibrate/cuda/attention/sdpa_passes.h"

#include <string>

#include "costmodel/base/input_error.h"

namespace stepsim::cuda {
namespace {

EnvironmentFault no_kernel(const SdpaShape& shape) {
  return EnvironmentFault("cuDNN has no fused attention kernel for " + describe(shape));
}

std::vector<std::pair<std::int64_t, GraphRole>> bound_tensors(const SdpaGraph& graph) {
  std::vector<std::pair<std::int64_t, GraphRole>> bound;
  for (const GraphTensor& tensor : graph.tensors) {
    if (tensor.role != GraphRole::Inner) {
      bound.emplace_back(tensor.id, tensor.role);
    }
  }
  return bound;
}

/// The first engine that compiles.
SdpaPass make_pass(const SdpaGraph& graph, const SdpaShape& shape, const CudnnDescriptor& device) {
  CudnnGraph described(graph);
  std::string why;
  for (CudnnEngine& engine : described.engines(device)) {
    try {
      CudnnDescriptor plan = execution_plan(engine, device);
      return {std::move(described), std::move(engine), std::move(plan), bound_tensors(graph)};
    } catch (const EnvironmentFault& fault) {
      why = fault.what();
    }
  }
  if (why.empty()) {
    throw no_kernel(shape);
  }
  throw EnvironmentFault("cuDNN could not compile fused attention for " + describe(shape) + ": " +
                         why);
}

}  // namespace

SdpaShape compiled_shape(SdpaShape shape) {
  constexpr std::int64_t kTile = 64;
  if (shape.packed) {
    shape.length = (shape.length + kTile - 1) / kTile * kTile;
  }
  return shape;
}

SdpaPasses sdpa_passes(const SdpaShape& shape, const CudnnDescriptor& device) {
  if (shape.dtype != Dtype::Bf16 && shape.dtype != Dtype::F16) {
    throw no_kernel(shape);
  }
  // The backward first: it has the fewer kernels, and a refusal then costs no compilation.
  SdpaPass backward = make_pass(sdpa_backward_graph(shape), shape, device);
  return {make_pass(sdpa_forward_graph(shape), shape, device), std::move(backward)};
}

}  // namespace stepsim::cuda
