#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <cudnn.h>

#include "calibrate/cuda/attention/sdpa_graph.h"

namespace stepsim::cuda {

/// Raises EnvironmentFault with cuDNN's own explanation.
void check_cudnn(cudnnStatus_t status, const std::string& what);

/// One descriptor of cuDNN's backend API.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  ~CudnnDescriptor();
  CudnnDescriptor(CudnnDescriptor&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)) {}
  CudnnDescriptor& operator=(CudnnDescriptor&&) = delete;
  CudnnDescriptor(const CudnnDescriptor&) = delete;
  CudnnDescriptor& operator=(const CudnnDescriptor&) = delete;

  [[nodiscard]] cudnnBackendDescriptor_t handle() const { return handle_; }
  void set(cudnnBackendAttributeName_t name, std::int64_t value);
  void set(cudnnBackendAttributeName_t name, bool value);
  void set(cudnnBackendAttributeName_t name, cudnnDataType_t value);
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value);
  void set(cudnnBackendAttributeName_t name,
           cudnnBackendAttributeType_t type,
           std::int64_t count,
           const void* values);
  void finalize(const std::string& what);

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

/// What cuDNN plans for: the device of a handle, or one described in JSON (no device needed).
[[nodiscard]] CudnnDescriptor describe_device(cudnnHandle_t handle);
[[nodiscard]] CudnnDescriptor describe_device(const std::string& json);

/// What plans are made for. A description of the device is shared by threads; cuDNN's own frontend
/// gives the handle instead, one thread at a time, which is the way out where the description is
/// refused.
struct CudnnTarget {
  const CudnnDescriptor* device = nullptr;
  cudnnHandle_t handle = nullptr;  ///< Where there is no description.

  CudnnTarget(const CudnnDescriptor& description) : device(&description) {}  // NOLINT: implicit
  explicit CudnnTarget(cudnnHandle_t of_device) : handle(of_device) {}
};

/// An engine that the heuristics propose for a graph, with its configuration.
struct CudnnEngine {
  CudnnDescriptor configuration;
  std::int64_t index = 0;
  std::int64_t workspace_bytes = 0;
};

/// A graph as cuDNN's descriptors.
///
/// Graphs of fixed shapes: cuDNN 9.19 reuses compiled kernels only for graphs of dynamic shape, and
/// for these it has no backward engine.
class CudnnGraph {
 public:
  /// `handle`: of the device to plan for; null where a description says it.
  explicit CudnnGraph(const SdpaGraph& graph, cudnnHandle_t handle = nullptr);

  /// Best first; empty: cuDNN has no fused kernel for this graph.
  [[nodiscard]] std::vector<CudnnEngine> engines(const CudnnTarget& target) const;

 private:
  cudnnBackendDescriptor_t tensor(const GraphTensor* tensor_of_graph);
  void bind(CudnnDescriptor& to, cudnnBackendAttributeName_t name, const GraphTensor* operand);
  CudnnDescriptor operation(const GraphOperation& step);
  CudnnDescriptor transpose(const GraphOperation& step);
  CudnnDescriptor pointwise(const GraphOperation& step);
  CudnnDescriptor matrix_product(const GraphOperation& step);
  CudnnDescriptor reduction(const GraphOperation& step);

  std::vector<CudnnDescriptor> parts_;  ///< What operations refer to.
  std::vector<std::pair<const GraphTensor*, CudnnDescriptor>> tensors_;
  std::vector<CudnnDescriptor> operations_;
  std::unique_ptr<CudnnDescriptor> graph_;
};

/// Compiles an engine's kernels: 0.3 s of a core and more. Threads may compile side by side.
[[nodiscard]] CudnnDescriptor execution_plan(const CudnnEngine& engine, const CudnnTarget& target);

}  // namespace stepsim::cuda
