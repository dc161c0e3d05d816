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

}  // namespace

SdpaPass::SdpaPass(const SdpaGraph& graph,
                   const SdpaShape& shape,
                   const CudnnTarget& target,
                   CompileEngine compile)
    : compile_(std::move(compile)),
      graph_(graph, target.handle),
      engines_(graph_.engines(target)),
      bound_(bound_tensors(graph)) {
  if (engines_.empty()) {
    throw no_kernel(shape);
  }
  if (!compile_from(0, target)) {
    throw EnvironmentFault("cuDNN could not compile fused attention for " + describe(shape) + ": " +
                           why_);
  }
}

bool SdpaPass::compile_from(std::size_t first, const CudnnTarget& target) {
  for (std::size_t i = first; i < engines_.size(); ++i) {
    try {
      plans_.push_back(compile_(engines_[i], target));
      chosen_ = i;
      described_ = target.device != nullptr;
      return true;
    } catch (const EnvironmentFault& fault) {
      why_ = fault.what();
    }
  }
  return false;
}

bool SdpaPass::use_next_plan(const CudnnTarget& target) {
  const bool is_retried = described_ && target.device == nullptr;
  return compile_from(is_retried ? chosen_ : chosen_ + 1, target);
}

SdpaShape compiled_shape(SdpaShape shape) {
  constexpr std::int64_t kTile = 64;
  if (shape.packed) {
    shape.length = (shape.length + kTile - 1) / kTile * kTile;
  }
  return shape;
}

SdpaPasses sdpa_passes(const SdpaShape& shape, const CudnnTarget& target) {
  if (shape.dtype != Dtype::Bf16 && shape.dtype != Dtype::F16) {
    throw no_kernel(shape);
  }
  return {SdpaPass(sdpa_backward_graph(shape), shape, target),
          SdpaPass(sdpa_forward_graph(shape), shape, target)};
}

}  // namespace stepsim::cuda
