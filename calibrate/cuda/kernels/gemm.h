#pragma once

#include <cstdint>
#include <memory>

#include "calibrate/cuda/device/device.h"

namespace stepsim::cuda {

/// What becomes of a product on its way to C.
enum class GemmEpilogue {
  None,
  Bias,          ///< C = product + bias, [n], added to every row.
  BiasGelu,      ///< aux = product + bias, C = gelu(aux), by the tanh form.
  GeluGradient,  ///< C = product * gelu'(aux).
  /// Beside the product, bias [m] = the sums of op(A)'s rows: the bias gradient where A holds dy^T.
  SumsOfA,
  SumsOfB  ///< Beside the product, bias [n] = the sums of op(B)'s columns.
};

/// C = op(A) op(B) + beta C, all row-major; C is m x n, op(A) m x k, op(B) k x n. A transposed
/// operand lies in memory as the transpose (A: k x m, B: n x k). Leading dimensions are elements
/// from a row in memory to the next.
struct GemmCall {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  ConstArray a;
  ConstArray b;
  Array c;  ///< Has the dtype of a and b, or F32.
  std::int64_t lda = 0;
  std::int64_t ldb = 0;
  std::int64_t ldc = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  float beta = 0;          ///< 0 or 1.
  bool tf32 = false;       ///< F32 operands through TF32 tensor cores.
  std::int64_t batch = 1;  ///< Products side by side, with strides in elements between them.
  std::int64_t stride_a = 0;
  std::int64_t stride_b = 0;
  std::int64_t stride_c = 0;
  GemmEpilogue epilogue = GemmEpilogue::None;
  Array bias;  ///< Of C's dtype; read or written as the epilogue says.
  Array aux;   ///< Like C, with its leading dimension; likewise.
};

/// Which library multiplies.
enum class GemmRoute {
  Lt,    ///< cuBLASLt.
  Torch  ///< As PyTorch: cuBLASLt where a product has an epilogue, else cuBLAS.
};

/// Whether a product goes to cuBLASLt. Source: PyTorch, aten/src/ATen/native/cuda/Blas.cpp: addmm
/// of a linear layer takes cuBLASLt for its bias; mm, both backward products and bmm take cuBLAS
/// unless torch.backends.cuda.preferred_blas_library() says otherwise.
[[nodiscard]] inline bool by_cublaslt(GemmRoute route, const GemmCall& call) {
  return route == GemmRoute::Lt || call.epilogue != GemmEpilogue::None;
}

/// Matrix products by cuBLASLt or cuBLAS on the current device, with fp32 accumulation; a product
/// that is split along k may add its parts in the dtype of c, as PyTorch's defaults let it. Plans
/// (layouts and the first heuristic result) are kept by shape. One thread and one stream at a time.
/// Source of the layouts: cublasLt is column-major; a row-major R x C matrix is a column-major C x
/// R one.
class Gemm {
 public:
  /// The workspaces change which kernels are chosen. By GemmRoute::Torch they are PyTorch's, see
  /// torch_workspace.h, which reads its two environment variables; by GemmRoute::Lt what NVIDIA
  /// recommends: 32 MiB on Hopper and later, 4 MiB before.
  explicit Gemm(GemmRoute route = GemmRoute::Lt);
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  /// Raises EnvironmentFault: no kernel for this shape.
  void run(const Stream& stream, const GemmCall& call);
  [[nodiscard]] std::int64_t cublaslt_workspace_bytes() const;
  /// By GemmRoute::Lt 0.
  [[nodiscard]] std::int64_t cublas_workspace_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// "13.0.2": the version of cuBLASLt that is loaded.
[[nodiscard]] std::string cublas_version();

}  // namespace stepsim::cuda
