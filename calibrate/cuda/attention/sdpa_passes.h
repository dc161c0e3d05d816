#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/cuda/attention/cudnn_plan.h"
#include "calibrate/cuda/attention/sdpa_graph.h"

namespace stepsim::cuda {

/// Makes an engine's plan. Raises EnvironmentFault when it cannot.
using CompileEngine = std::function<CudnnDescriptor(const CudnnEngine&, const CudnnTarget&)>;

/// One direction's compiled kernels, with the descriptors they were made of.
class SdpaPass {
 public:
  /// Compiles the first engine that can be. Raises EnvironmentFault: cuDNN has no kernel, or could
  /// not compile one.
  SdpaPass(const SdpaGraph& graph,
           const SdpaShape& shape,
           const CudnnTarget& target,
           CompileEngine compile = execution_plan);

  /// For a plan that was compiled but does not run. One that was made from the device's description
  /// is compiled once more where `target` is a handle: the description may lack something. Else the
  /// next engine that can be compiled takes its place. False: there is none, and the pass stays as
  /// it is.
  [[nodiscard]] bool use_next_plan(const CudnnTarget& target);

  [[nodiscard]] const CudnnDescriptor& plan() const { return plans_.back(); }
  [[nodiscard]] const CudnnEngine& engine() const { return engines_[chosen_]; }
  /// Tensors that the caller binds, by their id.
  [[nodiscard]] const std::vector<std::pair<std::int64_t, GraphRole>>& bound() const {
    return bound_;
  }

 private:
  /// Compiles the first engine from `first` on that can be; false: none.
  bool compile_from(std::size_t first, const CudnnTarget& target);

  CompileEngine compile_;
  CudnnGraph graph_;
  std::vector<CudnnEngine> engines_;  ///< Best first.
  std::size_t chosen_ = 0;
  bool described_ = false;              ///< Made from the device's description.
  std::vector<CudnnDescriptor> plans_;  ///< The last one is in use.
  std::string why_;                     ///< The last engine that could not be compiled.
  std::vector<std::pair<std::int64_t, GraphRole>> bound_;
};

struct SdpaPasses {
  SdpaPass backward;  ///< First: it has the fewer kernels, and a refusal then costs no compilation.
  SdpaPass forward;
};

/// The shape whose kernels serve `shape`. The longest packed sequence is rounded up to 64 tokens,
/// so that batches share kernels: packed arrays do not depend on it, and the number of tiles of 64
/// or 128 rows stays the same.
[[nodiscard]] SdpaShape compiled_shape(SdpaShape shape);

/// Compiles both directions. Raises EnvironmentFault, naming the shape: cuDNN has no kernel for it,
/// or could not compile one.
[[nodiscard]] SdpaPasses sdpa_passes(const SdpaShape& shape, const CudnnTarget& target);

}  // namespace stepsim::cuda
