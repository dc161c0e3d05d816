#pragma once

#include <cstdint>
#include <memory>

#include "calibrate/cuda/kernels/gemm.h"

namespace stepsim::cuda {

/// Products without a bias by cuBLAS, as PyTorch calls it: cublasGemmEx, for a batch
/// cublasGemmStridedBatchedEx, with the default algorithm and math mode, which let a product that
/// is split along k add its parts in 16 bit. One thread and one stream at a time.
/// Source: PyTorch, aten/src/ATen/cuda/CUDABlas.cpp, gemm_internal_cublas and
/// bgemm_internal_cublas.
class CublasGemm {
 public:
  explicit CublasGemm(std::int64_t workspace_bytes);
  ~CublasGemm();
  CublasGemm(const CublasGemm&) = delete;
  CublasGemm& operator=(const CublasGemm&) = delete;

  /// Raises EnvironmentFault: cuBLAS refuses the product.
  void run(const Stream& stream, const GemmCall& call);
  [[nodiscard]] std::int64_t workspace_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace stepsim::cuda
