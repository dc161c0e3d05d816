// Decoders of the layout of Llama, with the sizes that transformers 5.24 gives them.
#include "costmodel/architecture/decoder_builder.h"

namespace stepsim {
namespace {

Family family(const std::string& model_type, const std::string& prefix, const Decoder& kind) {
  return {model_type,
          prefix,
          {Head::CausalLm, Head::Sequence, Head::Tokens, Head::Base},
          [kind](const ConfigFile& config, Head head, ModelBuilder& builder) {
            build_decoder(kind, config, head, builder);
          }};
}

Decoder mistral() {
  Decoder kind;
  kind.ffn = 14336;
  kind.kv_heads = 8;
  kind.max_length = 131072;
  kind.windows = Windows::All;
  return kind;
}

Decoder mixtral() {
  Decoder kind = mistral();
  kind.experts = Experts::Mixtral;
  kind.window = 0;
  return kind;
}

Decoder qwen2() {
  Decoder kind;
  kind.vocab = 151936;
  kind.ffn = 22016;
  kind.max_length = 32768;
  kind.qkv_bias = true;
  kind.windows = Windows::UpperIfUsed;
  return kind;
}

Decoder qwen3() {
  Decoder kind = qwen2();
  kind.head_dim = 128;
  kind.qkv_bias = false;
  kind.qk_norm = QkNorm::EachHead;
  return kind;
}

Decoder qwen3_moe() {
  Decoder kind = qwen3();
  kind.hidden = 2048;
  kind.ffn = 6144;
  kind.layers = 24;
  kind.kv_heads = 4;
  kind.head_dim = 0;
  kind.experts = Experts::Qwen;
  kind.windows = Windows::AllIfUsed;
  return kind;
}

Decoder gemma() {
  Decoder kind;
  kind.vocab = 256000;
  kind.hidden = 3072;
  kind.ffn = 24576;
  kind.layers = 28;
  kind.heads = 16;
  kind.head_dim = 256;
  kind.max_length = 8192;
  kind.tied = true;
  return kind;
}

Decoder gemma2() {
  Decoder kind = gemma();
  kind.hidden = 2304;
  kind.ffn = 9216;
  kind.layers = 26;
  kind.heads = 8;
  kind.kv_heads = 4;
  kind.norms = LayerNorms::BeforeAndAfter;
  kind.windows = Windows::EverySecond;
  return kind;
}

Decoder gemma3() {
  Decoder kind = gemma2();
  kind.vocab = 262208;
  kind.max_length = 131072;
  kind.qk_norm = QkNorm::EachHeadAfterAll;
  kind.windows = Windows::FiveOfSix;
  return kind;
}

Decoder phi3() {
  Decoder kind;
  kind.vocab = 32064;
  kind.hidden = 3072;
  kind.ffn = 8192;
  kind.max_length = 4096;
  kind.fused = true;
  kind.windows = Windows::All;
  kind.window = 0;
  return kind;
}

Decoder olmo2() {
  Decoder kind;
  kind.vocab = 50304;
  kind.qk_norm = QkNorm::Whole;
  kind.norms = LayerNorms::After;
  return kind;
}

Decoder smollm3() {
  Decoder kind;
  kind.vocab = 128256;
  kind.hidden = 2048;
  kind.layers = 36;
  kind.heads = 16;
  kind.kv_heads = 4;
  kind.max_length = 32768;
  kind.tied = true;
  return kind;
}

Decoder llama4() {
  Decoder kind;
  kind.vocab = 202048;
  kind.hidden = 5120;
  kind.ffn = 16384;
  kind.layers = 48;
  kind.heads = 40;
  kind.kv_heads = 8;
  kind.head_dim = 128;
  kind.max_length = 131072;
  kind.experts = Experts::Llama4;
  return kind;
}

}  // namespace

std::vector<Family> decoder_families() {
  return {family("llama", "Llama", Decoder()),
          family("llama4_text", "Llama4", llama4()),
          family("mistral", "Mistral", mistral()),
          family("mixtral", "Mixtral", mixtral()),
          family("qwen2", "Qwen2", qwen2()),
          family("qwen3", "Qwen3", qwen3()),
          family("qwen3_moe", "Qwen3Moe", qwen3_moe()),
          family("gemma", "Gemma", gemma()),
          family("gemma2", "Gemma2", gemma2()),
          family("gemma3_text", "Gemma3", gemma3()),
          family("phi3", "Phi3", phi3()),
          family("olmo2", "Olmo2", olmo2()),
          family("smollm3", "SmolLM3", smollm3()),
          family("granite", "Granite", Decoder())};
}

}  // namespace stepsim
