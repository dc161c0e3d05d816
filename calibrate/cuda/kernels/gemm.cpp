#include "calibrate/cuda/kernels/gemm.h"

#include <compare>
#include <cstdlib>
#include <map>
#include <optional>

#include <cublasLt.h>

#include "calibrate/cuda/kernels/cublas_gemm.h"
#include "calibrate/cuda/kernels/gemm_layout.h"
#include "calibrate/cuda/kernels/torch_workspace.h"
#include "costmodel/base/input_error.h"

namespace stepsim::cuda {
namespace {

constexpr std::int64_t kMebibyte = 1 << 20;

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw EnvironmentFault(std::string(call) + ": " + cublasLtGetStatusString(status));
  }
}
#define CUBLAS_CHECK(call) check(call, #call)

cudaDataType_t cublas_type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::Bf16:
      return CUDA_R_16BF;
    case Dtype::F16:
      return CUDA_R_16F;
    default:
      return CUDA_R_32F;
  }
}

/// What a plan depends on: all of a call but its pointers, and how these are aligned.
struct GemmKey {
  std::int64_t m, n, k;
  std::int64_t lda, ldb, ldc;
  std::int64_t batch, stride_a, stride_b, stride_c;
  Dtype operands, result;
  bool transpose_a, transpose_b;
  bool adds, tf32;
  GemmEpilogue epilogue;
  std::uint32_t align_a, align_b, align_c, align_bias, align_aux;  ///< Bytes.
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 finds a 0 in what the compiler writes.
  auto operator<=>(const GemmKey&) const = default;
};

/// Bytes; 256 is the most that kernels ask for.
std::uint32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  std::uint32_t alignment = 256;
  while (address % alignment != 0) {
    alignment /= 2;
  }
  return alignment;
}

GemmKey key_of(const GemmCall& call) {
  return {.m = call.m,
          .n = call.n,
          .k = call.k,
          .lda = call.lda,
          .ldb = call.ldb,
          .ldc = call.ldc,
          .batch = call.batch,
          .stride_a = call.stride_a,
          .stride_b = call.stride_b,
          .stride_c = call.stride_c,
          .operands = call.a.dtype,
          .result = call.c.dtype,
          .transpose_a = call.transpose_a,
          .transpose_b = call.transpose_b,
          .adds = call.beta != 0,
          .tf32 = call.tf32,
          .epilogue = call.epilogue,
          .align_a = alignment_of(call.a.data),
          .align_b = alignment_of(call.b.data),
          .align_c = alignment_of(call.c.data),
          .align_bias = alignment_of(call.bias.data),
          .align_aux = alignment_of(call.aux.data)};
}

std::string describe(const GemmCall& call) {
  return std::to_string(call.m) + " x " + std::to_string(call.n) + " x " + std::to_string(call.k) +
         " (m x n x k), batch " + std::to_string(call.batch) + ", " +
         std::string(name_of(call.a.dtype)) + " to " + std::string(name_of(call.c.dtype));
}

/// A cublasLt handle of one kind, destroyed by `destroy`.
template <typename Handle, cublasStatus_t (*destroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  ~Owned() {
    if (handle_ != nullptr) {
      destroy(handle_);
    }
  }
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&&) = delete;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  [[nodiscard]] Handle get() const { return handle_; }
  [[nodiscard]] Handle* out() { return &handle_; }

 private:
  Handle handle_ = nullptr;
};
using GemmLibrary = Owned<cublasLtHandle_t, cublasLtDestroy>;
using Product = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

Layout layout_of(const ColumnMajorMatrix& matrix, Dtype dtype, std::int64_t batch) {
  Layout layout;
  CUBLAS_CHECK(cublasLtMatrixLayoutCreate(layout.out(),
                                          cublas_type_of(dtype),
                                          static_cast<std::uint64_t>(matrix.rows),
                                          static_cast<std::uint64_t>(matrix.columns),
                                          matrix.leading));
  if (batch > 1) {
    const auto count = static_cast<std::int32_t>(batch);
    CUBLAS_CHECK(cublasLtMatrixLayoutSetAttribute(
        layout.get(), CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
    CUBLAS_CHECK(cublasLtMatrixLayoutSetAttribute(layout.get(),
                                                  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                  &matrix.stride,
                                                  sizeof matrix.stride));
  }
  return layout;
}

template <typename T>
void set(const Product& product, cublasLtMatmulDescAttributes_t name, const T& value) {
  CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(product.get(), name, &value, sizeof value));
}

template <typename T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t name, const T& value) {
  CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(preference.get(), name, &value, sizeof value));
}

/// The library's A is the call's B, and its B the call's A.
cublasLtEpilogue_t cublas_epilogue(GemmEpilogue epilogue) {
  switch (epilogue) {
    case GemmEpilogue::None:
      break;
    case GemmEpilogue::Bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case GemmEpilogue::BiasGelu:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case GemmEpilogue::GeluGradient:
      return CUBLASLT_EPILOGUE_DGELU;
    case GemmEpilogue::SumsOfA:
      return CUBLASLT_EPILOGUE_BGRADB;
    case GemmEpilogue::SumsOfB:
      return CUBLASLT_EPILOGUE_BGRADA;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

/// The pointers are those of this call, also where another call's plan is used.
void set_pointers(const Product& product, const GemmCall& call) {
  if (call.bias.data != nullptr) {
    set(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias.data);
  }
  if (call.aux.data != nullptr) {
    set(product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call.aux.data);
  }
}

Product product_of(const GemmCall& call, const ColumnMajorGemm& shape) {
  Product product;
  CUBLAS_CHECK(cublasLtMatmulDescCreate(
      product.out(), call.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
  set(product, CUBLASLT_MATMUL_DESC_TRANSA, shape.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(product, CUBLASLT_MATMUL_DESC_TRANSB, shape.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(product, CUBLASLT_MATMUL_DESC_EPILOGUE, cublas_epilogue(call.epilogue));
  if (call.bias.data != nullptr) {
    set(product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, cublas_type_of(call.bias.dtype));
  }
  if (call.aux.data != nullptr) {
    set(product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, call.ldc);
  }
  set_pointers(product, call);
  return product;
}

struct Plan {
  Product product;
  Layout a, b, d;
  cublasLtMatmulAlgo_t algorithm{};
};

Preference preference_of(const GemmCall& call, std::int64_t workspace_bytes) {
  Preference preference;
  CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(preference.out()));
  set(preference,
      CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      static_cast<std::uint64_t>(workspace_bytes));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(call.b.data));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(call.a.data));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(call.c.data));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(call.c.data));
  return preference;
}

Plan make_plan(const GemmLibrary& library, const GemmCall& call, std::int64_t workspace_bytes) {
  const ColumnMajorGemm shape = column_major(call);
  Plan plan{product_of(call, shape),
            layout_of(shape.a, call.b.dtype, call.batch),
            layout_of(shape.b, call.a.dtype, call.batch),
            layout_of(shape.d, call.c.dtype, call.batch)};
  const Preference preference = preference_of(call, workspace_bytes);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(library.get(),
                                                               plan.product.get(),
                                                               plan.a.get(),
                                                               plan.b.get(),
                                                               plan.d.get(),
                                                               plan.d.get(),
                                                               preference.get(),
                                                               1,
                                                               &result,
                                                               &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && found == 0)) {
    throw EnvironmentFault("cuBLASLt has no kernel for the product " + describe(call));
  }
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  plan.algorithm = result.algo;
  return plan;
}

}  // namespace

struct Gemm::State {
  GemmRoute route = GemmRoute::Lt;
  std::optional<CublasGemm> cublas;  ///< By GemmRoute::Torch.
  GemmLibrary library;
  DeviceBuffer workspace;
  std::map<GemmKey, Plan> plans;
};

Gemm::Gemm(GemmRoute route) : state_(std::make_unique<State>()) {
  CUBLAS_CHECK(cublasLtCreate(state_->library.out()));
  state_->route = route;
  const DeviceInfo info = device_info();
  std::int64_t bytes = (info.compute_major >= 9 ? 32 : 4) * kMebibyte;
  if (route == GemmRoute::Torch) {
    const std::int64_t cublas = torch_cublas_workspace(
        info.compute_major, info.compute_minor, std::getenv("CUBLAS_WORKSPACE_CONFIG"));
    bytes = torch_cublaslt_workspace(std::getenv("CUBLASLT_WORKSPACE_SIZE"), cublas);
    state_->cublas.emplace(cublas);
  }
  state_->workspace.reserve(static_cast<std::size_t>(bytes));
}
Gemm::~Gemm() = default;

std::int64_t Gemm::cublaslt_workspace_bytes() const {
  return static_cast<std::int64_t>(state_->workspace.bytes());
}

std::int64_t Gemm::cublas_workspace_bytes() const {
  return state_->cublas ? state_->cublas->workspace_bytes() : 0;
}

void Gemm::run(const Stream& stream, const GemmCall& call) {
  if (!by_cublaslt(state_->route, call)) {
    state_->cublas->run(stream, call);
    return;
  }
  const GemmKey key = key_of(call);
  auto found = state_->plans.find(key);
  if (found == state_->plans.end()) {
    found = state_->plans.emplace(key, make_plan(state_->library, call, cublaslt_workspace_bytes()))
                .first;
  }
  const Plan& plan = found->second;
  set_pointers(plan.product, call);
  const float alpha = 1.0F;
  CUBLAS_CHECK(cublasLtMatmul(state_->library.get(),
                              plan.product.get(),
                              &alpha,
                              call.b.data,
                              plan.a.get(),
                              call.a.data,
                              plan.b.get(),
                              &call.beta,
                              call.c.data,
                              plan.d.get(),
                              call.c.data,
                              plan.d.get(),
                              &plan.algorithm,
                              state_->workspace.data(),
                              state_->workspace.bytes(),
                              static_cast<cudaStream_t>(stream.handle())));
}

std::string cublas_version() {
  const std::size_t version = cublasLtGetVersion();
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace stepsim::cuda
