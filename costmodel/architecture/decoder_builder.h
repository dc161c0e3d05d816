#pragma once

#include <cstdint>

#include "costmodel/architecture/families.h"

namespace stepsim {

/// Norms of queries and keys: none, of each head right after its projection or after all three, or
/// over the whole width.
enum class QkNorm { None, EachHead, EachHeadAfterAll, Whole };
/// Where the norms of a layer stand: before attention and MLP, also after them, or after them
/// alone.
enum class LayerNorms { Before, BeforeAndAfter, After };
/// Whose mixture of experts a layer has.
enum class Experts { None, Mixtral, Qwen, Llama4 };
/// Which layers have the window of `sliding_window`.
enum class Windows { None, All, AllIfUsed, UpperIfUsed, EverySecond, FiveOfSix };

/// What distinguishes one model_type, and the sizes that transformers 5.24 gives it where
/// config.json does not say.
struct Decoder {
  std::int64_t vocab = 32000;
  std::int64_t hidden = 4096;
  std::int64_t ffn = 11008;
  std::int64_t layers = 32;
  std::int64_t heads = 32;
  std::int64_t kv_heads = 0;  ///< 0: as many as heads.
  std::int64_t head_dim = 0;  ///< 0: hidden / heads.
  std::int64_t max_length = 2048;
  bool tied = false;
  bool qkv_bias = false;  ///< Always, whatever the file says.
  bool fused = false;     ///< One matrix for Q, K and V, one for gate and up.
  QkNorm qk_norm = QkNorm::None;
  LayerNorms norms = LayerNorms::Before;
  Experts experts = Experts::None;
  Windows windows = Windows::None;
  std::int64_t window = 4096;
};

/// Builds a decoder of the layout of Llama: projections of their own for queries, keys and values
/// (or one for all), rotated, and a gated MLP or experts.
void build_decoder(const Decoder& kind, const ConfigFile& config, Head head, ModelBuilder& builder);

}  // namespace stepsim
