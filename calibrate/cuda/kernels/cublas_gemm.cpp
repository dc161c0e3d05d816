#include "calibrate/cuda/kernels/cublas_gemm.h"

#include <cublas_v2.h>

#include "calibrate/cuda/kernels/gemm_layout.h"
#include "costmodel/base/input_error.h"

namespace stepsim::cuda {
namespace {

void check_cublas(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw EnvironmentFault(std::string(call) + ": " + cublasGetStatusString(status));
  }
}

cudaDataType_t cublas_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::Bf16:
      return CUDA_R_16BF;
    case Dtype::F16:
      return CUDA_R_16F;
    default:
      return CUDA_R_32F;
  }
}

cublasOperation_t operation(bool transpose) {
  return transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
}

}  // namespace

struct CublasGemm::State {
  cublasHandle_t handle = nullptr;
  DeviceBuffer workspace;
};

CublasGemm::CublasGemm(std::int64_t workspace_bytes) : state_(std::make_unique<State>()) {
  check_cublas(cublasCreate(&state_->handle), "cublasCreate");
  state_->workspace.reserve(static_cast<std::size_t>(workspace_bytes));
}

CublasGemm::~CublasGemm() {
  if (state_->handle != nullptr) {
    cublasDestroy(state_->handle);
  }
}

std::int64_t CublasGemm::workspace_bytes() const {
  return static_cast<std::int64_t>(state_->workspace.bytes());
}

void CublasGemm::run(const Stream& stream, const GemmCall& call) {
  const ColumnMajorGemm shape = column_major(call);
  const cublasHandle_t handle = state_->handle;
  // A new stream takes the workspace away from the handle.
  check_cublas(cublasSetStream(handle, static_cast<cudaStream_t>(stream.handle())),
               "cublasSetStream");
  check_cublas(cublasSetWorkspace(handle, state_->workspace.data(), state_->workspace.bytes()),
               "cublasSetWorkspace");
  const float alpha = 1.0F;
  const cublasComputeType_t compute = call.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  if (call.batch > 1) {
    check_cublas(cublasGemmStridedBatchedEx_64(handle,
                                               operation(shape.transpose_a),
                                               operation(shape.transpose_b),
                                               shape.m,
                                               shape.n,
                                               shape.k,
                                               &alpha,
                                               call.b.data,
                                               cublas_type(call.b.dtype),
                                               shape.a.leading,
                                               shape.a.stride,
                                               call.a.data,
                                               cublas_type(call.a.dtype),
                                               shape.b.leading,
                                               shape.b.stride,
                                               &call.beta,
                                               call.c.data,
                                               cublas_type(call.c.dtype),
                                               shape.d.leading,
                                               shape.d.stride,
                                               call.batch,
                                               compute,
                                               CUBLAS_GEMM_DEFAULT_TENSOR_OP),
                 "cublasGemmStridedBatchedEx");
    return;
  }
  check_cublas(cublasGemmEx_64(handle,
                               operation(shape.transpose_a),
                               operation(shape.transpose_b),
                               shape.m,
                               shape.n,
                               shape.k,
                               &alpha,
                               call.b.data,
                               cublas_type(call.b.dtype),
                               shape.a.leading,
                               call.a.data,
                               cublas_type(call.a.dtype),
                               shape.b.leading,
                               &call.beta,
                               call.c.data,
                               cublas_type(call.c.dtype),
                               shape.d.leading,
                               compute,
                               CUBLAS_GEMM_DEFAULT_TENSOR_OP),
               "cublasGemmEx");
}

}  // namespace stepsim::cuda
