#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stepsim {

/// What a GPU operation does, as far as its name tells.
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

/// "ncclDevKernel_…", "nccl:all_reduce": any case.
[[nodiscard]] bool is_nccl(std::string_view name);

/// "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "gather",
/// "scatter", "barrier", "send", "recv" of what PyTorch calls it ("allreduce",
/// "_reduce_scatter_base", "nccl:all_to_all"); another name as it is; empty for "".
[[nodiscard]] std::string collective_kind_of_call(std::string_view call);

/// The same of a kernel's name; empty where it hides the kind (RCCL's Generic, SendRecv).
[[nodiscard]] std::string collective_kind_of_kernel(std::string_view kernel);

/// Bytes of an element: "Float", "long int", "c10::BFloat16", …; empty for an unknown name.
[[nodiscard]] std::optional<std::int64_t> element_bytes(std::string_view dtype);

/// The element names of both schemas as one: "float32", "bfloat16"; an unknown one as it is.
[[nodiscard]] std::string dtype_name(std::string_view dtype);

}  // namespace stepsim
