#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "costmodel/architecture/described_model.h"
#include "costmodel/base/units.h"
#include "costmodel/model/batch_shape.h"
#include "costmodel/model/checkpointing.h"
#include "costmodel/model/transformer.h"

namespace stepsim {

/// What a rank holds at a moment of a step, beside the optimizer's state.
struct MemoryMoment {
  Bytes parameters;
  Bytes gradients;
  Bytes buckets;  ///< Buffers of reductions.
  Bytes gathered;
  double layers = 1;  ///< Share of the layers whose activations are there.
  /// Share of what the loss has of the logits: 1 in its backward; half of it before and behind,
  /// logits and log-probabilities, then logits and their gradient; 0 while no logits are there.
  double loss = 1;
};

/// The choices of a training job that decide what it keeps in device memory.
struct MemoryOptions {
  bool gradient_as_bucket_view = false;      ///< True: the buckets are the only gradient copy.
  double optimizer_bytes_per_parameter = 8;  ///< 8 is AdamW in fp32, which keeps two moments.
  bool optimizer_on_host = false;            ///< True: it takes none of the device.
  double master_bytes_per_parameter = 0;     ///< 4 with fp32 master weights (mixed precision).
  Checkpointing checkpointing;
  bool loss_in_own_dtype = false;  ///< The loss takes logits in the dtype of compute.
  // The ranks that each is spread over; 1: every rank has all of it.
  int optimizer_shards = 1;  ///< Optimizer state and master weights.
  int gradient_shards = 1;
  int parameter_shards = 1;
  /// The gradients that are reduced at a time; a larger tensor is held, too. None: all of them.
  std::optional<Bytes> working_bucket;
  Bytes gathered{0};  ///< Parameters of other ranks that are there at the peak.
  /// Moments of a step, one of which has the peak, whatever the batch. Where there are some, the
  /// shards of parameters and gradients, the working bucket and `gathered` do not count.
  std::vector<MemoryMoment> moments;
  /// Autocast copies weights; false: they are gathered in 16 bit, as by fully_shard's param_dtype,
  /// and all of the model computes in 16 bit, norms included.
  bool casts_weights = true;
  Bytes fixed{0};  ///< Added as given: library workspaces, mask buffers, the device's context.
};

/// The memory of one rank at the peak of a step, by purpose.
struct MemoryUse {
  Bytes parameters;
  Bytes gradients;
  Bytes optimizer;  ///< Optimizer moments and master weights.
  Bytes buckets;
  Bytes gathered;       ///< Parameters of other ranks.
  Bytes weight_copies;  ///< Autocast: 16-bit weights that the backward of linear layers needs.
  Bytes activations;
  Bytes logits;
  Bytes fixed;
  [[nodiscard]] Bytes total() const;
};

/// Returns what one rank keeps of the parameters, gradients and optimizer state of a model with
/// `elements` parameters; the other members are zero.
///
/// Let a parameter take p bytes of weight, g of gradient and o of optimizer state (master weight
/// included), and let N be the number of ranks. Stages 0 to 3 of ZeRO, which shard nothing, the
/// optimizer, gradients too and parameters too, take p + g + o, p + g + o/N, p + (g + o)/N and
/// (p + g + o)/N bytes a parameter; shards are rounded up. For mixed precision Adam (2, 2, 12)
/// these are 16, 4 + 12/N, 2 + 14/N and 16/N. Source: Rajbhandari et al. 1910.02054.
///
/// Raises:
///     InputError: something is spread over less than one rank.
[[nodiscard]] MemoryUse state_memory(std::int64_t elements,
                                     Dtype parameter_dtype,
                                     const MemoryOptions& options);

/// Whether the memory of a batch is known. A chain of blocks or tensors has work, but no sizes of
/// what it keeps: of it only states and buckets count, as of a model whose samples have an unknown
/// length.
[[nodiscard]] bool states_activations(const TransformerConfig& config);

/// Whether the model says how many tokens every sample has, as one of images does.
[[nodiscard]] bool has_own_tokens(const TransformerConfig& config);

/// True when the model computes as under PyTorch's autocast: in 16 bit on fp32 parameters.
[[nodiscard]] bool autocast(const TransformerConfig& config);

/// The parameters of the largest layer; a tensor outside the layers counts as one of its own.
[[nodiscard]] Bytes largest_layer(const TransformerConfig& config);

/// The peak memory of a step, for many batches of one job. It is reached at the start of the
/// backward pass, when the states, all kept activations and the loss are in memory.
///
/// States are those of state_memory(). Buckets hold a second copy of the gradients unless the
/// gradients are views of them, or there is one working bucket.
///
/// Activations, for T tokens (padded; useful ones with varlen), hidden size h, a heads, B samples
/// of length s:
/// - In one dtype they follow Korthikanti et al. 2205.05198, with dropout. In 16 bit a layer keeps
///   T h (34 + 5 a s/h) bytes with dense attention and 34 T h with flash attention; fp32 doubles
///   all but the masks.
/// - Under autocast norms and softmax stay in fp32, and no dropout is counted: a layer keeps
///   36 T h + 6 a B s^2 dense and 36 T h with flash, plus 6 T h after the last layer. The linear
///   layers' weights are kept once more in 16 bit.
/// - A Llama of eager PyTorch keeps what autograd saves of norms that are written out: with H heads
///   and K and V of width k, T (20 h + 4 k + 8 ffn + 4 H + 8) in 16 bit, T (30 h + …) under
///   autocast and T (32 h + 8 k + 16 ffn + 4 H + 8) in fp32. With `kernels` fused it is T h (17 + 8
///   ffn / h).
/// - Of a config.json's model each kind of layer counts by its own sizes: those with a gate as a
///   Llama's, the others as BERT's; experts by those that a token passes.
/// - A checkpointed layer keeps its input, of CheckpointKind::Ops also the output of each kept op
///   in the dtype of compute (2 h of the products of a Llama and so on, and 4 bytes for a head of
///   fused attention). One such layer is there in full while it is computed again; by then the
///   logits are gone, so that the peak is the larger of the two moments.
/// - Of models that do not say what they keep (states_activations()) none count.
/// The logits of a language model with vocabulary V take 10 T V in 16 bit and under autocast, those
/// of a Llama in eager PyTorch 12 T V, and 8 T V in fp32 or where the loss takes them in 16 bit:
/// logits, log-probabilities, and the gradients of both.
///
/// Where the options have moments, the peak is that of the worst one: with its shards and buffers,
/// and its share of the layers' activations.
///
/// The framework's context, workspaces and allocator slack count only as `fixed`.
class PeakMemory {
 public:
  PeakMemory(TransformerConfig config, const MemoryOptions& options);
  [[nodiscard]] MemoryUse at(const BatchShape& batch) const;

 private:
  void read_layers();
  void read_kept_ops();
  /// With activations of a share of the layers, and the share of the `loss`, or where that is 0
  /// those of a layer that is computed again.
  [[nodiscard]] MemoryUse with_batch(MemoryUse use,
                                     const BatchShape& batch,
                                     double share,
                                     double loss) const;

  TransformerConfig config_;
  std::vector<LayerStack> stacks_;          ///< All layers, by kind.
  std::vector<std::int64_t> checkpointed_;  ///< [stack] layers that compute something again.
  std::vector<std::pair<Op, double>>
      kept_;  ///< Ops whose outputs are kept, and how many are alike.
  RowUnit logit_rows_ = RowUnit::Tokens;
  std::int64_t logit_columns_ = 0;
  Checkpointing checkpointing_;
  bool loss_in_own_dtype_ = false;
  std::vector<MemoryMoment> moments_;
  MemoryUse constant_;  ///< Everything but activations and logits.
  Bytes frozen_;        ///< Of parameters without gradients, and what other types take more.
};

/// Returns the most padded tokens that a micro-batch of samples of `length` tokens each may have so
/// that its peak is at most `capacity`. The result is an exact multiple of `length`; it is 0 when
/// not even one sample fits.
///
/// Raises:
///     InputError: `length` is below 1, or nothing states the model's activations.
[[nodiscard]] std::int64_t largest_token_budget(const TransformerConfig& config,
                                                const MemoryOptions& options,
                                                Bytes capacity,
                                                std::int64_t length);

}  // namespace stepsim
