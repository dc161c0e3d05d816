#pragma once

#include <cstdint>

#include "calibrate/cuda/kernels/kernels.h"

/// What eager PyTorch runs as several kernels where a fused one would do. Every function launches
/// all of them in stream order and returns at once; what autograd keeps between forward and
/// backward lies in `saved`, what PyTorch's allocator would reuse in `scratch`. Sources are files
/// of PyTorch and of Hugging Face's transformers. Arrays are F32, Bf16 or F16; all kernels compute
/// in fp32.
namespace stepsim::cuda {

// ---- gelu_new.cu

/// y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), operation by operation: 8 kernels forward
/// and 11 backward. Under autocast y is F32 and x of 16 bit, since pow is on autocast's list of
/// operations in F32: then the casts are kernels, too, 9 forward and 14 backward.
/// Sources: transformers, src/transformers/activations.py, NewGELUActivation; PyTorch,
/// aten/src/ATen/autocast_mode.h and tools/autograd/derivatives.yaml.
///
/// Args:
///     y: [count], F32 or the dtype of x.
///     saved: [count] entries of what gelu_new_saved() says.
///     scratch: gelu_new_scratch(count) floats.
/// Raises InputError: y has another dtype than F32 and that of x.
void gelu_new_forward(
    const Stream& stream, Array y, float* saved, float* scratch, ConstArray x, std::int64_t count);
/// Assigns dx, of the dtype of x. `dy` has the dtype of y.
void gelu_new_backward(const Stream& stream,
                       Array dx,
                       ConstArray dy,
                       ConstArray x,
                       const float* saved,
                       float* scratch,
                       std::int64_t count);
/// Floats that a row of `width` elements keeps.
[[nodiscard]] std::int64_t gelu_new_saved(Dtype x, Dtype y, std::int64_t width);
[[nodiscard]] std::int64_t gelu_new_scratch(std::int64_t count);

// ---- log_softmax.cu
// Where a row begins between packs of elements, the kernels take single ones up to the next pack,
// as PyTorch's do: 50 257 classes are no multiple of a pack.

/// *total = the sum over rows of -log softmax(logits)[target]: logits of 16 bit are cast to F32,
/// then come log_softmax and nll_loss, so 3 kernels, or 2 for logits in F32.
/// Sources: PyTorch, torch/nn/functional.py, cross_entropy, aten/src/ATen/autocast_mode.h (the loss
/// is computed in F32) and aten/src/ATen/native/cuda/Loss.cu and SoftMax.cu; transformers,
/// src/transformers/loss/loss_utils.py, where language models cast logits without autocast, too.
///
/// Args:
///     log_probabilities: [rows][classes] floats, kept for the backward.
///     scratch: rows * classes floats; logits in F32 need none.
void log_softmax_loss_forward(const Stream& stream,
                              float* total,
                              float* log_probabilities,
                              float* scratch,
                              ConstArray logits,
                              const std::int32_t* targets,
                              std::int64_t rows,
                              std::int64_t classes);
/// dlogits = scale * (softmax(logits) - one at the target), or 0 for a row without a target: the
/// gradient of nll_loss is zeroed and gets its entries, then come the gradient of log_softmax and,
/// for logits of 16 bit, its cast. `scratch` holds log_softmax_scratch() floats.
void log_softmax_loss_backward(const Stream& stream,
                               Array dlogits,
                               const float* log_probabilities,
                               float* scratch,
                               const std::int32_t* targets,
                               float scale,
                               std::int64_t rows,
                               std::int64_t classes);
/// Two arrays of rows * classes floats, both where a pack may start.
[[nodiscard]] std::int64_t log_softmax_scratch(std::int64_t rows, std::int64_t classes);

// ---- rms_norm.cu

/// The RMS norm of Llama with epsilon 1e-5, operation by operation: cast to F32, square, mean, sum
/// with epsilon, reciprocal root, product, cast back, product with the gain. Without casts, for x
/// in F32, these are 6 kernels.
/// Source: transformers, src/transformers/models/llama/modeling_llama.py, LlamaRMSNorm.
///
/// Args:
///     out: [rows][width], of the dtype of x and gain.
///     saved: [rows] entries of what rms_norm_saved() says.
///     scratch: rms_norm_scratch(rows, width) floats, here and backward.
void rms_norm_forward(const Stream& stream,
                      Array out,
                      float* saved,
                      float* scratch,
                      ConstArray x,
                      ConstArray gain,
                      std::int64_t rows,
                      std::int64_t width);
/// Assigns dx or adds to it, and adds to the gradient of the gain.
void rms_norm_backward(const Stream& stream,
                       Array dx,
                       Store store,
                       Array dgain,
                       ConstArray dout,
                       ConstArray x,
                       const float* saved,
                       ConstArray gain,
                       float* scratch,
                       std::int64_t rows,
                       std::int64_t width);
/// Floats that a row of `width` elements keeps.
[[nodiscard]] std::int64_t rms_norm_saved(Dtype x, std::int64_t width);
[[nodiscard]] std::int64_t rms_norm_scratch(std::int64_t rows, std::int64_t width);

// ---- foreach_adamw.cu

/// Updates `count` weights as torch.optim.AdamW does by default on a GPU: 8 operations, each over
/// all parameters in chunks of 65 536 elements, a block of 512 threads for a chunk, at most 2240
/// chunks a launch. They move 21 elements for every weight, where adamw_update() moves 7. The
/// tensors lie in one block of memory, and chunks go over their ends. `step` counts from 1.
/// Sources: PyTorch, torch/optim/adam.py, _multi_tensor_adam, and torch/optim/optimizer.py,
/// _default_to_fused_or_foreach; aten/src/ATen/native/cuda/MultiTensorApply.cuh (for CUDA 13).
///
/// Args:
///     weights, m, v, gradient: [count], of one dtype.
///     root: [count] of the same dtype, for the root of v, which PyTorch allocates.
void foreach_adamw(const Stream& stream,
                   const AdamW& options,
                   Array weights,
                   Array m,
                   Array v,
                   ConstArray gradient,
                   Array root,
                   std::int64_t count,
                   std::int64_t step);

/// The launches of foreach_adamw(): 8 for every 147 million weights begun.
[[nodiscard]] std::int64_t foreach_adamw_launches(std::int64_t count);

}  // namespace stepsim::cuda
