#pragma once

#include "calibrate/cuda/kernels/gemm.h"
#include "calibrate/cuda/ops/op_memory.h"
#include "costmodel/model/transformer.h"

namespace stepsim::cuda {

/// The product of a linear layer in one pass over `rows` rows, on arrays of `memory`.
///
///   forward          y = x W (+ bias in the epilogue)
///   input gradient   dx = dy W^T
///   weight gradient  dW = x^T dy, and dy's column sums in the epilogue where there is a bias
///
/// GPT-2 keeps the weights of its blocks as [in][out], the others as [out][in]. Llama, nanochat and
/// heads over the vocabulary have no bias. By GemmRoute::Torch the weight gradient has no epilogue.
[[nodiscard]] GemmCall linear_call(const TransformerConfig& model,
                                   const Op& op,
                                   std::int64_t rows,
                                   GemmRoute route,
                                   OpMemory& memory);

/// Whether layers of n outputs have a bias.
[[nodiscard]] bool has_bias(const TransformerConfig& model, const Op& linear);

/// The product that an MLP's activation is a part of where kernels are fused: the forward of the
/// layer before it, or the input gradient of the layer behind it.
[[nodiscard]] Op product_of_activation(const TransformerConfig& model, const Op& activation);

}  // namespace stepsim::cuda
