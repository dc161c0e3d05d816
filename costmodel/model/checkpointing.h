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
///   `selective_ac_option = "n"`, whose default is "2".
/// - Ops: PyTorch's selective checkpointing (`create_selective_checkpoint_contexts` with a
///   `CheckpointPolicy`) by torchtitan's policy of `selective_ac_option = "op"`: the outputs of
///   fused attention and of `aten.mm` are kept, but every second `aten.mm` of a block, counted from
///   the block's first in the order of the forward, is computed again; 2 is our n. A product with a
///   bias is `aten.addmm`, those of all experts at once are `aten._grouped_mm`: neither is in the
///   list, so they are computed again and not counted. Products of the shape of a router's
///   (`per_op_sac_force_recompute_mm_shapes_by_fqns`, by default "moe.router.gate") are computed
///   again and not counted, too. The outputs of reduce-scatters are kept; data parallelism has none
///   inside a layer. Attention that builds its scores (`aten.bmm`) is computed again. 0: all
///   products are kept, as since the list is functorch's of compute-intensive ops (2026).
///
/// Sources: torch.utils.checkpoint of PyTorch; torchtitan's parallelize_llama.py of August 2024
/// (004b3148) and of the turn to 2025 (582fe7d1), and distributed/activation_checkpoint.py of
/// 2025 and 2026 (01db32e9 and before). The memory that torchtitan printed is in
/// tests/published/MFU.md beside what follows from these rules.
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
/// forward pass, right before the layer's backward. This is use_reentrant=True, and torchtitan of
/// 2025 on (`early_stop = false`). Without re-entrance PyTorch by default stops the recomputation
/// at the last tensor that the backward needs, which saves the last Gemm of the layer; that saving
/// is not modelled.
[[nodiscard]] StepOps checkpointed_step_ops(const TransformerConfig& config,
                                            const Checkpointing& checkpointing);

}  // namespace stepsim
