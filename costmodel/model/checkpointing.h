#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "costmodel/model/transformer.h"

namespace stepsim {

/// Which activations a backward computes again in place of keeping them.
enum class CheckpointKind {
  None,
  Full,    ///< Every layer keeps its input alone.
  Layers,  ///< Every n-th layer keeps its input alone, the others keep all.
  Ops      ///< Every layer keeps its input, and what some of its ops put out.
};
[[nodiscard]] std::string_view name_of(CheckpointKind kind);  ///< "false", "full", "layers", "ops"
/// Accepts "true" for "full". Raises InputError for an unknown name and lists the known ones.
[[nodiscard]] CheckpointKind parse_checkpoint_kind(std::string_view name);

/// Activation checkpointing as `torch.utils.checkpoint` does it around each layer.
///
/// - Layers: layer n, 2 n, 3 n, … counted from 1 are checkpointed, as by torchtitan's
///   `selective_ac_option = "n"`.
/// - Ops: PyTorch's selective checkpointing (`create_selective_checkpoint_contexts` with a
///   `CheckpointPolicy`) by torchtitan's policy of `selective_ac_option = "op"`: fused attention
///   and the products of matrices are kept, but of the products of a layer every n-th is computed
///   again, in the order of the forward; torchtitan's n is 2. 0: all products are kept. The outputs
///   of collectives are kept, too; data parallelism has none inside a layer. Attention that builds
///   its scores is computed again.
///
/// Sources: torch.utils.checkpoint of PyTorch, and `apply_ac` in torchtitan's parallelize code of
/// December 2024. Neither text was at hand when this was written [unverified]; the memory that
/// torchtitan printed is in tests/published/MFU.md beside what follows from these rules.
struct Checkpointing {
  CheckpointKind kind = CheckpointKind::None;
  std::int64_t every = 2;

  /// Whether layer `index`, counted from 0, computes something again.
  [[nodiscard]] bool checkpoints(std::int64_t index) const;
  bool operator==(const Checkpointing&) const = default;
};

/// Returns the ops of a layer's forward whose outputs are kept beside the layer's input. `layer`:
/// the forward ops of one layer in order. Only with CheckpointKind::Ops there are any.
[[nodiscard]] std::vector<Op> kept_ops(const Checkpointing& checkpointing,
                                       const std::vector<Op>& layer);

/// Returns the ops of a step: what a checkpointed layer does not keep runs once more, as ops of the
/// forward pass, right before the layer's backward. This is use_reentrant=True. Without re-entrance
/// the newest PyTorch stops the recomputation at the last tensor that the backward needs, which
/// saves the last Gemm of the layer; that saving is not modelled.
[[nodiscard]] StepOps checkpointed_step_ops(const TransformerConfig& config,
                                            const Checkpointing& checkpointing);

}  // namespace stepsim
