#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stepsim {

/// What a GPU operation does, as far as its name says.
enum class KinetoClass {
  Gemm,
  Attention,
  Convolution,
  Norm,
  Softmax,
  Optimizer,
  Embedding,
  Reduction,
  Elementwise,
  Memcpy,
  Memset,
  Other
};

inline constexpr int kKinetoClasses = 12;

[[nodiscard]] std::string_view name_of(KinetoClass kind);  ///< "gemm", "attention", …

/// The class of a compute kernel by its name: cuBLAS, cuDNN, CUTLASS, PyTorch and Triton.
[[nodiscard]] KinetoClass class_of_kernel(std::string_view name);

/// Whether a name such as "ncclDevKernel_…" or "nccl:all_reduce", in any case, is NCCL's.
[[nodiscard]] bool is_nccl(std::string_view name);

/// Finds the kind of collective in what PyTorch calls it ("allreduce", "_reduce_scatter_base",
/// "nccl:all_to_all"): "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",
/// "all_to_all", "gather", "scatter", "barrier", "send" or "recv". Other names stay as they are.
[[nodiscard]] std::string collective_kind_of_call(std::string_view call);

/// Finds it in a kernel's name; empty where the name hides the kind (RCCL's Generic, SendRecv).
[[nodiscard]] std::string collective_kind_of_kernel(std::string_view kernel);

/// The bytes of an element of type "Float", "long int", "c10::BFloat16", …; absent for others.
[[nodiscard]] std::optional<std::int64_t> element_bytes(std::string_view dtype);

/// Turns the element names of both schemas into one: "float32", "bfloat16". Others stay as they
/// are.
[[nodiscard]] std::string dtype_name(std::string_view dtype);

}  // namespace stepsim
