#include "calibrate/import/kineto/kineto_names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <initializer_list>
#include <utility>

namespace stepsim {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return result;
}

bool has_any(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(
      parts, [&](std::string_view part) { return text.find(part) != std::string_view::npos; });
}

struct Element {
  std::string_view name;  ///< Lower case.
  std::string_view dtype;
  std::int64_t bytes;
};

constexpr std::array<Element, 32> kElements = {{
    {"float", "float32", 4},
    {"float32", "float32", 4},
    {"double", "float64", 8},
    {"float64", "float64", 8},
    {"half", "float16", 2},
    {"float16", "float16", 2},
    {"c10::half", "float16", 2},
    {"bfloat16", "bfloat16", 2},
    {"c10::bfloat16", "bfloat16", 2},
    {"long", "int64", 8},
    {"long int", "int64", 8},
    {"int64", "int64", 8},
    {"int", "int32", 4},
    {"int32", "int32", 4},
    {"short", "int16", 2},
    {"short int", "int16", 2},
    {"byte", "uint8", 1},
    {"unsigned char", "uint8", 1},
    {"uint8", "uint8", 1},
    {"char", "int8", 1},
    {"signed char", "int8", 1},
    {"int8", "int8", 1},
    {"bool", "bool", 1},
    {"float8_e4m3fn", "float8_e4m3fn", 1},
    {"c10::float8_e4m3fn", "float8_e4m3fn", 1},
    {"float8_e5m2", "float8_e5m2", 1},
    {"c10::float8_e5m2", "float8_e5m2", 1},
    {"float8_e4m3fnuz", "float8_e4m3fnuz", 1},
    {"float8_e5m2fnuz", "float8_e5m2fnuz", 1},
    {"complexfloat", "complex64", 8},
    {"c10::complex<float>", "complex64", 8},
    {"complexdouble", "complex128", 16},
}};

const Element* find_element(std::string_view dtype) {
  const std::string name = lower(dtype);
  const auto* found =
      std::ranges::find_if(kElements, [&](const Element& element) { return element.name == name; });
  return found == kElements.end() ? nullptr : found;
}

/// torch.compile's kernels: triton_poi_fused_convolution_relu_0 is what follows a convolution and
/// none itself. "tem" are its templates of products, convolutions and attention, "for" goes over
/// lists of tensors as optimizers do, "red" and "per" reduce, "poi" is elementwise.
KinetoClass class_of_inductor(std::string_view name) {
  if (name.starts_with("triton_tem_") || name.starts_with("triton_mm") ||
      name.starts_with("triton_bmm")) {
    return has_any(name, {"attention", "flex", "sdpa"}) ? KinetoClass::Attention
           : has_any(name, {"convol"})                  ? KinetoClass::Convolution
                                                        : KinetoClass::Gemm;
  }
  if (name.starts_with("triton_for_")) {
    return KinetoClass::Optimizer;
  }
  if (name.starts_with("triton_red_") || name.starts_with("triton_per_") ||
      name.starts_with("triton_split_scan_")) {
    return has_any(name, {"layer_norm", "rms_norm", "batch_norm"})   ? KinetoClass::Norm
           : has_any(name, {"softmax", "nll_loss", "cross_entropy"}) ? KinetoClass::Softmax
                                                                     : KinetoClass::Reduction;
  }
  return name.starts_with("triton_poi_") ? KinetoClass::Elementwise : KinetoClass::Other;
}

}  // namespace

std::string_view name_of(KinetoClass kind) {
  constexpr std::array<std::string_view, kKinetoClasses> kNames = {"gemm",
                                                                   "attention",
                                                                   "convolution",
                                                                   "norm",
                                                                   "softmax",
                                                                   "optimizer",
                                                                   "embedding",
                                                                   "reduction",
                                                                   "elementwise",
                                                                   "memcpy",
                                                                   "memset",
                                                                   "other"};
  return kNames[static_cast<std::size_t>(kind)];
}

KinetoClass class_of_kernel(std::string_view name) {
  const std::string text = lower(name);
  if (text.starts_with("triton_")) {
    return class_of_inductor(text);
  }
  // PyTorch's own templates first: the functor in their arguments may be called anything.
  if (has_any(text, {"multi_tensor_apply", "adam", "fused_sgd", "lamb_"})) {
    return KinetoClass::Optimizer;
  }
  if (has_any(text, {"elementwise_kernel", "catarray", "nchwtonhwc", "nhwctonchw"})) {
    return KinetoClass::Elementwise;
  }
  if (has_any(text,
              {"flash",
               "fmha",
               "attention",
               "sdpa",
               "attn_fwd",
               "attn_bwd",
               "bwd_kernel_dk",
               "bwd_kernel_dq",
               "bwd_preprocess"})) {
    return KinetoClass::Attention;
  }
  if (has_any(text,
              {"convol",
               "conv1d",
               "conv2d",
               "conv3d",
               "conv_",
               "4conv",
               "fprop",
               "dgrad",
               "wgrad",
               "winograd",
               "implicit_gemm",
               "asmconv",
               "igemm_fwd",
               "igemm_bwd",
               "igemm_wrw"})) {
    return KinetoClass::Convolution;
  }
  // "cijk_" is Tensile's, which rocBLAS and hipBLASLt launch.
  if (has_any(
          text,
          {"gemm", "gemv", "splitk", "cutlass", "cublas", "matmul", "nvjet", "cijk_", "rocblas"})) {
    return KinetoClass::Gemm;
  }
  if (has_any(
          text,
          {"layer_norm", "layernorm", "rms_norm", "batch_norm", "batchnorm", "bn_fw", "bn_bw"})) {
    return KinetoClass::Norm;
  }
  if (has_any(text, {"softmax", "nll_loss", "cross_entropy"})) {
    return KinetoClass::Softmax;
  }
  if (has_any(text, {"embedding", "indexselect", "index_"})) {
    return KinetoClass::Embedding;
  }
  if (has_any(text, {"reduce_kernel", "devicereduce", "rocprim"})) {
    return KinetoClass::Reduction;
  }
  if (has_any(text,
              {"elementwise", "copy", "fill", "dropout", "gelu", "optensor", "subtensorop"})) {
    return KinetoClass::Elementwise;
  }
  return KinetoClass::Other;
}

bool is_nccl(std::string_view name) {
  return has_any(lower(name), {"nccl"});
}

std::string collective_kind_of_call(std::string_view call) {
  std::string text = lower(call);
  if (const std::size_t colon = text.find(':'); colon != std::string::npos) {
    text.erase(0, colon + 1);
  }
  std::string letters = text;
  letters.erase(std::remove(letters.begin(), letters.end(), '_'), letters.end());
  // "reduce" stands in three names: the longer ones come first.
  for (const auto& [part, kind] : {std::pair("allreduce", "all_reduce"),
                                   std::pair("reducescatter", "reduce_scatter"),
                                   std::pair("allgather", "all_gather"),
                                   std::pair("alltoall", "all_to_all"),
                                   std::pair("broadcast", "broadcast"),
                                   std::pair("barrier", "barrier"),
                                   std::pair("reduce", "reduce"),
                                   std::pair("gather", "gather"),
                                   std::pair("scatter", "scatter"),
                                   std::pair("send", "send"),
                                   std::pair("recv", "recv")}) {
    if (letters.find(part) != std::string::npos) {
      return kind;
    }
  }
  return text;
}

std::string collective_kind_of_kernel(std::string_view kernel) {
  for (const auto& [part, kind] : {std::pair("AllReduce", "all_reduce"),
                                   std::pair("ReduceScatter", "reduce_scatter"),
                                   std::pair("AllGather", "all_gather"),
                                   std::pair("Broadcast", "broadcast"),
                                   std::pair("_Reduce_", "reduce")}) {
    if (kernel.find(part) != std::string_view::npos) {
      return kind;
    }
  }
  return "";
}

std::optional<std::int64_t> element_bytes(std::string_view dtype) {
  const Element* element = find_element(dtype);
  return element == nullptr ? std::nullopt : std::optional(element->bytes);
}

std::string dtype_name(std::string_view dtype) {
  const Element* element = find_element(dtype);
  return std::string(element == nullptr ? dtype : element->dtype);
}

}  // namespace stepsim
