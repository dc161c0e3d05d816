#include "calibrate/cuda/attention/cudnn_plan.h"

#include <array>
#include <optional>

#include "costmodel/base/input_error.h"

namespace stepsim::cuda {
namespace {

cudnnDataType_t type_of(GraphType type) {
  switch (type) {
    case GraphType::F32:
      return CUDNN_DATA_FLOAT;
    case GraphType::Bf16:
      return CUDNN_DATA_BFLOAT16;
    case GraphType::F16:
      return CUDNN_DATA_HALF;
    case GraphType::Int32:
      return CUDNN_DATA_INT32;
    case GraphType::Int64:
      return CUDNN_DATA_INT64;
    case GraphType::Boolean:
      return CUDNN_DATA_BOOLEAN;
  }
  return CUDNN_DATA_FLOAT;
}

/// None for the modes that are no pointwise operation.
std::optional<cudnnPointwiseMode_t> pointwise_mode(GraphMode mode) {
  switch (mode) {
    case GraphMode::Add:
      return CUDNN_POINTWISE_ADD;
    case GraphMode::Subtract:
      return CUDNN_POINTWISE_SUB;
    case GraphMode::Multiply:
      return CUDNN_POINTWISE_MUL;
    case GraphMode::Divide:
      return CUDNN_POINTWISE_DIV;
    case GraphMode::Exp:
      return CUDNN_POINTWISE_EXP;
    case GraphMode::Log:
      return CUDNN_POINTWISE_LOG;
    case GraphMode::Identity:
      return CUDNN_POINTWISE_IDENTITY;
    case GraphMode::RowIndex:
    case GraphMode::ColumnIndex:
      return CUDNN_POINTWISE_GEN_INDEX;
    case GraphMode::Less:
      return CUDNN_POINTWISE_CMP_LT;
    case GraphMode::Greater:
      return CUDNN_POINTWISE_CMP_GT;
    case GraphMode::GreaterEqual:
      return CUDNN_POINTWISE_CMP_GE;
    case GraphMode::And:
      return CUDNN_POINTWISE_LOGICAL_AND;
    case GraphMode::Select:
      return CUDNN_POINTWISE_BINARY_SELECT;
    case GraphMode::MatMul:
    case GraphMode::Max:
    case GraphMode::Sum:
    case GraphMode::Transpose:
      break;
  }
  return std::nullopt;
}

bool by_value(GraphRole role) {
  return role >= GraphRole::Scale;
}

std::int64_t get_int64(const CudnnDescriptor& descriptor, cudnnBackendAttributeName_t name) {
  std::int64_t count = 0;
  std::int64_t value = 0;
  check_cudnn(
      cudnnBackendGetAttribute(descriptor.handle(), name, CUDNN_TYPE_INT64, 1, &count, &value),
      "cudnnBackendGetAttribute");
  return value;
}

std::int64_t engine_index(const CudnnDescriptor& configuration) {
  const CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t handle = engine.handle();
  std::int64_t count = 0;
  check_cudnn(cudnnBackendGetAttribute(configuration.handle(),
                                       CUDNN_ATTR_ENGINECFG_ENGINE,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                       1,
                                       &count,
                                       &handle),
              "cuDNN engine of a configuration");
  return get_int64(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
}

}  // namespace

void check_cudnn(cudnnStatus_t status, const std::string& what) {
  if (status == CUDNN_STATUS_SUCCESS) {
    return;
  }
  std::array<char, 1024> detail{};
  cudnnGetLastErrorString(detail.data(), detail.size());
  throw EnvironmentFault(what + ": " + cudnnGetErrorString(status) + ", " + detail.data());
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  check_cudnn(cudnnBackendCreateDescriptor(type, &handle_), "cudnnBackendCreateDescriptor");
}

CudnnDescriptor::~CudnnDescriptor() {
  if (handle_ != nullptr) {
    cudnnBackendDestroyDescriptor(handle_);
  }
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name,
                          cudnnBackendAttributeType_t type,
                          std::int64_t count,
                          const void* values) {
  check_cudnn(cudnnBackendSetAttribute(handle_, name, type, count, values),
              "cudnnBackendSetAttribute " + std::to_string(static_cast<int>(name)));
}
void CudnnDescriptor::set(cudnnBackendAttributeName_t name, std::int64_t value) {
  set(name, CUDNN_TYPE_INT64, 1, &value);
}
void CudnnDescriptor::set(cudnnBackendAttributeName_t name, bool value) {
  set(name, CUDNN_TYPE_BOOLEAN, 1, &value);
}
void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
  set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}
void CudnnDescriptor::set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.handle_);
}

void CudnnDescriptor::finalize(const std::string& what) {
  check_cudnn(cudnnBackendFinalize(handle_), what);
}

CudnnDescriptor describe_device(cudnnHandle_t handle) {
  CudnnDescriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  device.set(CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  device.finalize("cuDNN device");
  return device;
}

CudnnDescriptor describe_device(const std::string& json) {
  CudnnDescriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  device.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
             CUDNN_TYPE_CHAR,
             static_cast<std::int64_t>(json.size()),
             json.c_str());
  device.finalize("cuDNN device");
  return device;
}

CudnnGraph::CudnnGraph(const SdpaGraph& graph, cudnnHandle_t handle) {
  std::vector<cudnnBackendDescriptor_t> handles;
  for (const GraphOperation& step : graph.operations) {
    operations_.push_back(operation(step));
    handles.push_back(operations_.back().handle());
  }
  graph_ = std::make_unique<CudnnDescriptor>(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph_->set(CUDNN_ATTR_OPERATIONGRAPH_OPS,
              CUDNN_TYPE_BACKEND_DESCRIPTOR,
              static_cast<std::int64_t>(handles.size()),
              handles.data());
  if (handle != nullptr) {
    graph_->set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  }
  graph_->finalize("cuDNN operation graph");
}

/// The tensor's descriptor, made when first asked for.
cudnnBackendDescriptor_t CudnnGraph::tensor(const GraphTensor* tensor_of_graph) {
  for (const auto& [known, descriptor] : tensors_) {
    if (known == tensor_of_graph) {
      return descriptor.handle();
    }
  }
  const GraphTensor& t = *tensor_of_graph;
  CudnnDescriptor descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, t.id);
  descriptor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type_of(t.type));
  descriptor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, t.dims.data());
  descriptor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, t.strides.data());
  descriptor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{16});
  descriptor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, t.role == GraphRole::Inner);
  descriptor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, by_value(t.role));
  bind(descriptor, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, t.offsets);
  descriptor.finalize("cuDNN tensor");
  tensors_.emplace_back(tensor_of_graph, std::move(descriptor));
  return tensors_.back().second.handle();
}

void CudnnGraph::bind(CudnnDescriptor& to,
                      cudnnBackendAttributeName_t name,
                      const GraphTensor* operand) {
  if (operand != nullptr) {
    const cudnnBackendDescriptor_t handle = tensor(operand);
    to.set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &handle);
  }
}

CudnnDescriptor CudnnGraph::operation(const GraphOperation& step) {
  switch (step.mode) {
    case GraphMode::MatMul:
      return matrix_product(step);
    case GraphMode::Max:
    case GraphMode::Sum:
      return reduction(step);
    case GraphMode::Transpose:
      return transpose(step);
    default:
      return pointwise(step);
  }
}

CudnnDescriptor CudnnGraph::transpose(const GraphOperation& step) {
  CudnnDescriptor result(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  bind(result, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, step.x);
  bind(result, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, step.y);
  result.finalize("cuDNN transpose");
  return result;
}

CudnnDescriptor CudnnGraph::pointwise(const GraphOperation& step) {
  CudnnDescriptor kind(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  const cudnnPointwiseMode_t mode = *pointwise_mode(step.mode);
  kind.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  // Indices and comparisons are computed in the type of their result.
  const bool is_float = step.y->type != GraphType::Int32 && step.y->type != GraphType::Boolean;
  kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, is_float ? CUDNN_DATA_FLOAT : type_of(step.y->type));
  if (step.mode == GraphMode::RowIndex || step.mode == GraphMode::ColumnIndex) {
    kind.set(CUDNN_ATTR_POINTWISE_AXIS, std::int64_t{step.mode == GraphMode::RowIndex ? 2 : 3});
  }
  kind.finalize("cuDNN pointwise mode");
  parts_.push_back(std::move(kind));

  CudnnDescriptor result(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  result.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, parts_.back());
  bind(result, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, step.x);
  bind(result, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, step.b);
  bind(result, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, step.mask);
  bind(result, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, step.y);
  result.finalize("cuDNN pointwise operation");
  return result;
}

CudnnDescriptor CudnnGraph::matrix_product(const GraphOperation& step) {
  CudnnDescriptor kind(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  kind.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  kind.finalize("cuDNN matrix product");
  parts_.push_back(std::move(kind));

  CudnnDescriptor result(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  result.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, parts_.back());
  bind(result, CUDNN_ATTR_OPERATION_MATMUL_ADESC, step.x);
  bind(result, CUDNN_ATTR_OPERATION_MATMUL_BDESC, step.b);
  bind(result, CUDNN_ATTR_OPERATION_MATMUL_CDESC, step.y);
  bind(result, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, step.m);
  bind(result, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, step.n);
  bind(result, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, step.k);
  result.finalize("cuDNN matrix product operation");
  return result;
}

CudnnDescriptor CudnnGraph::reduction(const GraphOperation& step) {
  CudnnDescriptor kind(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  const cudnnReduceTensorOp_t mode =
      step.mode == GraphMode::Max ? CUDNN_REDUCE_TENSOR_MAX : CUDNN_REDUCE_TENSOR_ADD;
  kind.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
  kind.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  kind.finalize("cuDNN reduction");
  parts_.push_back(std::move(kind));

  CudnnDescriptor result(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  result.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, parts_.back());
  bind(result, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, step.x);
  bind(result, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, step.y);
  result.finalize("cuDNN reduction operation");
  return result;
}

std::vector<CudnnEngine> CudnnGraph::engines(const CudnnTarget& target) const {
  CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, *graph_);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (target.device != nullptr) {
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.device);
  }
  heuristics.finalize("cuDNN heuristics");
  const auto results = [&](std::int64_t capacity, cudnnBackendDescriptor_t* into) {
    std::int64_t count = 0;
    check_cudnn(cudnnBackendGetAttribute(heuristics.handle(),
                                         CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                         capacity,
                                         &count,
                                         into),
                "cuDNN heuristic results");
    return count;
  };
  std::vector<CudnnEngine> found;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (std::int64_t i = results(0, nullptr); i > 0; --i) {
    found.push_back({CudnnDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)});
    handles.push_back(found.back().configuration.handle());
  }
  if (!found.empty()) {
    const std::int64_t count = results(static_cast<std::int64_t>(handles.size()), handles.data());
    while (static_cast<std::int64_t>(found.size()) > count) {
      found.pop_back();
    }
  }
  for (CudnnEngine& engine : found) {
    engine.index = engine_index(engine.configuration);
    engine.workspace_bytes = get_int64(engine.configuration, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE);
  }
  return found;
}

CudnnDescriptor execution_plan(const CudnnEngine& engine, const CudnnTarget& target) {
  CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine.configuration);
  if (target.device != nullptr) {
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.device);
  } else {
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle);
  }
  plan.finalize("cuDNN execution plan");
  return plan;
}

}  // namespace stepsim::cuda
