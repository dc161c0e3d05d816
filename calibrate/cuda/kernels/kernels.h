#pragma once

#include <cstdint>

#include "calibrate/cuda/device/device.h"
#include "calibrate/training/activation_kind.h"
#include "calibrate/training/kernel_arguments.h"

/// The project's own kernels. A call launches one or two kernels in stream order and returns at
/// once. Arrays are F32, Bf16 or F16; the kernels compute in fp32. Unless a comment says otherwise,
/// all arrays of a call share one dtype; a call with different dtypes raises InputError.
namespace stepsim::cuda {

// ---- filling: fill.cu

/// Fills `out` with uniform numbers in [center - bound, center + bound). A seed gives the same
/// numbers on every device.
void fill_uniform(const Stream& stream,
                  Array out,
                  std::int64_t count,
                  float bound,
                  float center,
                  std::uint64_t seed);
/// Fills `out` with normal numbers of mean 0 and the given standard deviation. Timed kernels work
/// on these and never on zeros, which draw less power and so run faster.
void fill_normal(
    const Stream& stream, Array out, std::int64_t count, float deviation, std::uint64_t seed);

// ---- rows of `width` features: rows.cu

/// out[row] = table[index[row]]. The table and `out` may differ in dtype.
void gather_rows(const Stream& stream,
                 Array out,
                 ConstArray table,
                 const std::int32_t* index,
                 std::int64_t rows,
                 std::int64_t width);
/// dtable[index[row]] += dout[row], by atomic additions. The dtypes may differ.
void scatter_add_rows(const Stream& stream,
                      Array dtable,
                      ConstArray dout,
                      const std::int32_t* index,
                      std::int64_t rows,
                      std::int64_t width);
/// total[column] += the sum over rows. The dtypes may differ. `scratch` holds at least
/// column_sums_scratch(rows, width) floats.
void add_column_sums(const Stream& stream,
                     Array total,
                     ConstArray x,
                     std::int64_t rows,
                     std::int64_t width,
                     float* scratch);
[[nodiscard]] std::int64_t column_sums_scratch(std::int64_t rows, std::int64_t width);

/// out[sample] = the mean over the useful tokens (`mean`) or the first token. A sample without
/// useful tokens gives 0.
void pool_forward(const Stream& stream,
                  Array out,
                  ConstArray x,
                  const SequenceRows& sequences,
                  std::int64_t width,
                  bool mean);
/// Assigns dx of every row, zero on padding.
void pool_backward(const Stream& stream,
                   Array dx,
                   ConstArray dout,
                   const SequenceRows& sequences,
                   std::int64_t width,
                   bool mean);

// ---- elementwise: elementwise.cu

/// out = a + b, or a + b + c when c.data is not null: the residual sum. The dtype of a may differ.
void add_elements(
    const Stream& stream, Array out, ConstArray a, ConstArray b, ConstArray c, std::int64_t count);
/// out = factor * a, or out += factor * a. The dtypes may differ: this is also a cast and a bucket
/// copy.
void scaled_copy(
    const Stream& stream, Array out, ConstArray a, float factor, std::int64_t count, Store store);
/// y = f(x).
void activation_forward(
    const Stream& stream, ActivationKind kind, Array y, ConstArray x, std::int64_t count);
/// dx = dy f'(x).
void activation_backward(const Stream& stream,
                         ActivationKind kind,
                         Array dx,
                         ConstArray dy,
                         ConstArray x,
                         std::int64_t count);
/// y = silu(gate) * up.
void swiglu_forward(
    const Stream& stream, Array y, ConstArray gate, ConstArray up, std::int64_t count);
void swiglu_backward(const Stream& stream,
                     Array dgate,
                     Array dup,
                     ConstArray dy,
                     ConstArray gate,
                     ConstArray up,
                     std::int64_t count);
/// Rotates pairs (i, i + head_dim / 2) of every head, in place, by the angle of the token's
/// position. The backward is the `inverse`. `cosine` and `sine` are [position][head_dim / 2].
void rotate(const Stream& stream,
            Heads x,
            std::int64_t heads,
            std::int64_t head_dim,
            const std::int32_t* positions,
            std::int64_t tokens,
            const float* cosine,
            const float* sine,
            bool inverse);

// ---- norms over `width` features: norm.cu

/// Parameters and their gradients may have another dtype than the activations. Null data means that
/// the norm has no such parameter.
struct NormWeights {
  ConstArray gain;
  ConstArray bias;
};
struct NormGradients {
  Array gain;
  Array bias;
};
/// Computes the layer norm, or the RMS norm when `rms`, with epsilon 1e-5. Keeps (mean,
/// 1/deviation) in `saved` [row][2].
void norm_forward(const Stream& stream,
                  bool rms,
                  Array out,
                  float* saved,
                  ConstArray x,
                  const NormWeights& weights,
                  std::int64_t rows,
                  std::int64_t width);
/// Assigns dx or adds to it, and adds to the parameters' gradients. `scratch` holds at least
/// norm_scratch(rows, width) floats.
void norm_backward(const Stream& stream,
                   bool rms,
                   Array dx,
                   Store store,
                   const NormGradients& gradients,
                   ConstArray dout,
                   ConstArray x,
                   const float* saved,
                   const NormWeights& weights,
                   std::int64_t rows,
                   std::int64_t width,
                   float* scratch);
[[nodiscard]] std::int64_t norm_scratch(std::int64_t rows, std::int64_t width);

// ---- softmax over scores, and the loss: softmax.cu

/// scores = softmax(scale * scores) over the keys that the mask leaves, in place. A row that sees
/// no key becomes zero.
void softmax_forward(const Stream& stream,
                     Array scores,
                     float scale,
                     const ScoreMask& mask,
                     std::int64_t samples,
                     std::int64_t heads,
                     std::int64_t length);
/// gradient = scale * p * (gradient - sum(gradient p)), in place.
void softmax_backward(const Stream& stream,
                      Array gradient,
                      ConstArray probabilities,
                      float scale,
                      std::int64_t rows,
                      std::int64_t length);

/// losses[row] = -log softmax(logits)[target], or 0 for a row without a target. Keeps (max, log
/// sum) in `saved` [row][2].
void cross_entropy_forward(const Stream& stream,
                           float* losses,
                           float* saved,
                           ConstArray logits,
                           const std::int32_t* targets,
                           std::int64_t rows,
                           std::int64_t classes);
/// dlogits = scale * (softmax(logits) - one at the target), or 0 for a row without a target. May
/// work in place, with dlogits = logits.
void cross_entropy_backward(const Stream& stream,
                            Array dlogits,
                            ConstArray logits,
                            const float* saved,
                            const std::int32_t* targets,
                            float scale,
                            std::int64_t rows,
                            std::int64_t classes);
/// *total = the sum of `values`, taken by one block of threads.
void sum_floats(const Stream& stream, float* total, const float* values, std::int64_t count);

// ---- dense attention's copies, as eager PyTorch makes them before a batched product: heads.cu

/// out [sample][head][position][head_dim] = x, where head h of `heads` reads the kv head
/// h * kv_heads / heads.
void split_heads(const Stream& stream,
                 Array out,
                 ConstHeads x,
                 std::int64_t samples,
                 std::int64_t length,
                 std::int64_t heads,
                 std::int64_t kv_heads,
                 std::int64_t head_dim);
/// The inverse of split_heads(); sums the heads that share a kv head.
void merge_heads(const Stream& stream,
                 Heads out,
                 ConstArray x,
                 std::int64_t samples,
                 std::int64_t length,
                 std::int64_t heads,
                 std::int64_t kv_heads,
                 std::int64_t head_dim);

// ---- optimizer: adamw.cu

/// Updates `count` weights in one fused kernel; `step` counts from 1. Weights, moments and gradient
/// share a dtype. When `copy.data` is not null, the kernel also writes the new weights there, in
/// the dtype of the copy. Source: Loshchilov and Hutter 1711.05101; torch.optim.AdamW(fused=True).
void adamw_update(const Stream& stream,
                  const AdamW& options,
                  Array weights,
                  Array m,
                  Array v,
                  ConstArray gradient,
                  Array copy,
                  std::int64_t count,
                  std::int64_t step);

// ---- what measuring needs: measuring.cu

/// Two words of a HostBuffer that a held stream and the host share.
struct HoldFlags {
  std::uint32_t released = 0;  ///< Not 0: the host lets the stream go on.
  std::uint32_t expired = 0;   ///< Not 0: the stream went on by itself.
};
/// Holds the stream until it is released or `longest` seconds have passed. Work queues up behind
/// the hold, so that launches add nothing to the measured time (StreamHold).
void hold_stream(const Stream& stream, volatile HoldFlags* flags, double longest);
/// Launches a kernel of one block that does nothing: the shortest time that a kernel can take.
void launch_nothing(const Stream& stream);
/// Stands in for a collective of NCCL on a single card: keeps `channels` blocks of 512 threads
/// resident. The blocks first spin for `wait` seconds, as if their peers were late, and then move
/// memory of `buffer` for `transfer` seconds at `bytes_per_second`, or as fast as they can where
/// that is less; 0 moves nothing. A byte that is read and written counts once. A buffer that is
/// moved holds at least 128 KiB for each channel.
void stand_in_collective(const Stream& stream,
                         int channels,
                         double wait,
                         double transfer,
                         void* buffer,
                         std::int64_t buffer_bytes,
                         double bytes_per_second);

}  // namespace stepsim::cuda
