#pragma once

#include <cstdint>

#include "calibrate/cuda/device/device.h"
#include "calibrate/training/activation_kind.h"

/// Our own kernels, each one launch (or two) in stream order. Arrays are F32, Bf16 or F16; sums and
/// functions are taken in fp32. Unless said otherwise all arrays of a call share one dtype; others
/// raise InputError.
namespace stepsim::cuda {

/// Where a result goes: over what was there, or added to it.
enum class Store { Assign, Add };

// ---- filling: fill.cu

/// Uniform in [center - bound, center + bound): the same numbers for a seed on every device.
void fill_uniform(const Stream& stream,
                  Array out,
                  std::int64_t count,
                  float bound,
                  float center,
                  std::uint64_t seed);
/// Normal with mean 0 and the given deviation: what timed kernels work on (never zeros: they draw
/// less power and run faster).
void fill_normal(
    const Stream& stream, Array out, std::int64_t count, float deviation, std::uint64_t seed);

// ---- rows of `width` features: rows.cu

/// out[row] = table[index[row]]; table and out may differ in dtype.
void gather_rows(const Stream& stream,
                 Array out,
                 ConstArray table,
                 const std::int32_t* index,
                 std::int64_t rows,
                 std::int64_t width);
/// dtable[index[row]] += dout[row], by atomic additions; dtypes may differ.
void scatter_add_rows(const Stream& stream,
                      Array dtable,
                      ConstArray dout,
                      const std::int32_t* index,
                      std::int64_t rows,
                      std::int64_t width);
/// total[column] += sum over rows; dtypes may differ. `scratch` holds at least
/// column_sums_scratch(rows, width) floats.
void add_column_sums(const Stream& stream,
                     Array total,
                     ConstArray x,
                     std::int64_t rows,
                     std::int64_t width,
                     float* scratch);
[[nodiscard]] std::int64_t column_sums_scratch(std::int64_t rows, std::int64_t width);

/// Sequences of a batch in memory: padded (row = sample * length + position) or packed.
struct SequenceRows {
  std::int64_t samples = 0;
  std::int64_t length = 0;                ///< Padded length, or the longest when packed.
  const std::int32_t* offsets = nullptr;  ///< [samples + 1] first row of each; null = padded.
  const std::int32_t* lengths = nullptr;  ///< [samples] useful tokens.
};

/// out[sample] = mean over the useful tokens (`mean`), or the first token; 0 for a sample without
/// useful tokens.
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

/// out = a + b (+ c, when c.data is not null): the residual sum.
void add_elements(
    const Stream& stream, Array out, ConstArray a, ConstArray b, ConstArray c, std::int64_t count);
/// out = factor * a, or out += factor * a; dtypes may differ (a cast, a bucket copy).
void scaled_copy(
    const Stream& stream, Array out, ConstArray a, float factor, std::int64_t count, Store store);
/// Inverted dropout: each element is kept with probability 1 - p and divided by it. The mask comes
/// from (seed, index), so that the backward is the same call on the gradient.
void dropout(
    const Stream& stream, Array out, ConstArray x, float p, std::uint64_t seed, std::int64_t count);

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
/// position; `cosine` and `sine` are [position][head_dim / 2]. `inverse` for the backward.
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

/// Parameters and their gradients may have another dtype than the activations; null data = none.
struct NormWeights {
  ConstArray gain;
  ConstArray bias;
};
struct NormGradients {
  Array gain;
  Array bias;
};
/// Layer norm, or RMS norm when `rms`; epsilon 1e-5. Keeps (mean, 1/deviation) in `saved` [row][2].
void norm_forward(const Stream& stream,
                  bool rms,
                  Array out,
                  float* saved,
                  ConstArray x,
                  const NormWeights& weights,
                  std::int64_t rows,
                  std::int64_t width);
/// dx is assigned or added to; the parameters' gradients are added to. `scratch` holds at least
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

/// Which keys a query of a score matrix [sample][head][query][key] may see.
struct ScoreMask {
  const std::int32_t* lengths = nullptr;  ///< [sample] useful tokens; null = all.
  bool causal = false;
  std::int64_t window = 0;  ///< |query - key| < window, both sides unless causal; 0 = no window.
};
/// scores = softmax(scale * scores) over the keys that the mask leaves, in place; a row that sees
/// nothing becomes zero.
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

/// A row without a target (padding).
constexpr std::int32_t kNoTarget = -1;
/// losses[row] = -log softmax(logits)[target], 0 without one; keeps (max, log sum) in `saved`
/// [row][2].
void cross_entropy_forward(const Stream& stream,
                           float* losses,
                           float* saved,
                           ConstArray logits,
                           const std::int32_t* targets,
                           std::int64_t rows,
                           std::int64_t classes);
/// dlogits = scale * (softmax(logits) - one at the target); 0 for rows without one. In place when
/// dlogits is logits.
void cross_entropy_backward(const Stream& stream,
                            Array dlogits,
                            ConstArray logits,
                            const float* saved,
                            const std::int32_t* targets,
                            float scale,
                            std::int64_t rows,
                            std::int64_t classes);
/// *total = sum of `values`, in one block.
void sum_floats(const Stream& stream, float* total, const float* values, std::int64_t count);

// ---- dense attention's copies, as eager PyTorch makes them before a batched product: heads.cu

/// out [sample][head][position][head_dim] = x; head h of `heads` reads kv head h * kv_heads /
/// heads.
void split_heads(const Stream& stream,
                 Array out,
                 ConstHeads x,
                 std::int64_t samples,
                 std::int64_t length,
                 std::int64_t heads,
                 std::int64_t kv_heads,
                 std::int64_t head_dim);
/// The inverse; the heads that share a kv head are summed.
void merge_heads(const Stream& stream,
                 Heads out,
                 ConstArray x,
                 std::int64_t samples,
                 std::int64_t length,
                 std::int64_t heads,
                 std::int64_t kv_heads,
                 std::int64_t head_dim);

// ---- optimizer: adamw.cu

/// PyTorch's defaults, but for the learning rate.
struct AdamW {
  float learning_rate = 2e-3F;
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
  float weight_decay = 0.01F;
};
/// One fused update of `count` weights; `step` counts from 1. Weights, moments and gradient share a
/// dtype; when `copy.data` is not null the new weights are also written there in its dtype.
/// Source: Loshchilov and Hutter 1711.05101; torch.optim.AdamW(fused=True).
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

/// Holds the stream until *flag (of a HostBuffer) is not 0, or `longest` seconds have passed: work
/// queues up behind it, so that launches cost the measured time nothing.
void hold_stream(const Stream& stream, const volatile std::uint32_t* flag, double longest);
/// Nothing, in one block: the floor of a launch.
void launch_nothing(const Stream& stream);
/// Reads and writes `bytes` at `buffer`: with twice the L2 size nothing of before is left in it.
void flush_cache(const Stream& stream, void* buffer, std::int64_t bytes);
/// Keeps `channels` blocks of 512 threads resident, as a collective does: first `wait` seconds
/// spinning (peers have not come), then for `transfer` seconds moving memory of `buffer` at
/// `bytes_per_second` (0 = none; as fast as these blocks can at most). Every byte is read and
/// written once and counts once; the buffer then holds at least 128 KiB a channel. Stands in for
/// NCCL on one card.
void stand_in_collective(const Stream& stream,
                         int channels,
                         double wait,
                         double transfer,
                         void* buffer,
                         std::int64_t buffer_bytes,
                         double bytes_per_second);

}  // namespace stepsim::cuda
