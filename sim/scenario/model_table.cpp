#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <utility>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/io/json_file.h"
#include "costmodel/model/model_presets.h"
#include "costmodel/model/tensor_list.h"
#include "costmodel/records/profile.h"
#include "costmodel/records/shipped.h"
#include "sim/scenario/tables.h"

namespace stepsim {
namespace {

constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;
constexpr std::int64_t kMaxElements = 1'000'000'000'000;  // The most elements of one tensor.

/// Sizes that equal blocks and recorded models do not have.
constexpr std::array kTransformerSizes = {"hidden",
                                          "heads",
                                          "kv_heads",
                                          "ffn",
                                          "vocab",
                                          "max_length",
                                          "classes",
                                          "window",
                                          "tied_embeddings",
                                          "sparse_embeddings"};

/// Raises InputError at the first of these keys that the table has.
void refuse_keys(const TomlReader& table,
                 std::span<const char* const> keys,
                 const std::string& reason) {
  for (const char* key : keys) {
    if (table.has(key)) {
      table.fail(key, reason);
    }
  }
}

void read_blocks(const TomlReader& table, TransformerConfig& model) {
  refuse_keys(table,
              kTransformerSizes,
              "has no effect: blocks have layers and block_elements, or tensors, and nothing else "
              "of a transformer");
  if (!table.has("tensors")) {
    model.layers = table.integer("layers", 1, kMaxSize);
    model.block_elements = table.integer("block_elements", 1, kMaxElements);
    return;
  }
  refuse_keys(table, std::array{"layers", "block_elements"}, "the list in tensors has its own");
  TensorList list = read_tensor_list(resolved_path(table, "tensors"));
  model.tensors = std::move(list.tensors);
  model.frozen = std::move(list.frozen);
  model.parameter_dtype = list.dtype.value_or(model.parameter_dtype);
  model.layers = static_cast<std::int64_t>(model.tensors.size());
}

/// Sizes that every model has: required with `kind`, else the preset's.
void read_sizes(const TomlReader& table, bool has_preset, TransformerConfig& model) {
  if (model.family == ModelFamily::Blocks) {
    read_blocks(table, model);
    return;
  }
  refuse_keys(table, std::array{"tensors", "block_elements"}, "only for kind = \"blocks\"");
  const auto size = [&](const char* key, std::int64_t& field) {
    if (table.has(key) || !has_preset) {
      field = table.integer(key, 1, kMaxSize);
    }
  };
  const bool had_plain_heads = model.kv_heads == model.heads;
  size("layers", model.layers);
  size("hidden", model.hidden);
  size("heads", model.heads);
  size("vocab", model.vocab);
  model.kv_heads =
      table.integer_or("kv_heads", had_plain_heads ? model.heads : model.kv_heads, 1, kMaxSize);
  model.ffn = table.integer_or("ffn", has_preset ? model.ffn : 4 * model.hidden, 1, kMaxSize);
  model.max_length = table.integer_or("max_length", model.max_length, 1, kMaxSize);
  model.classes = table.integer_or("classes", model.classes, 0, kMaxSize);
  model.window = table.integer_or("window", model.window, 0, kMaxSize);
}

/// What the architecture of a family says where the file says nothing.
TransformerConfig family_defaults(ModelFamily family) {
  TransformerConfig model;
  model.family = family;
  model.name = std::string(name_of(family));
  if (family == ModelFamily::Blocks) {
    // Blocks have no sizes but their own; any batch fits.
    model.hidden = model.heads = model.kv_heads = model.ffn = model.vocab = 1;
    model.max_length = std::int64_t{1} << 20;
  }
  model.tied_embeddings = family == ModelFamily::Gpt2;
  model.causal = family == ModelFamily::Gpt2 || family == ModelFamily::Llama ||
                 family == ModelFamily::Nanochat;
  return model;
}

bool is_config(const TomlReader& table) {
  return table.has("config");
}

/// The model of a config.json of transformers.
TransformerConfig config_model(const TomlReader& table) {
  refuse_keys(table, std::array{"preset", "kind"}, "give it or config, not both");
  constexpr std::array kOthers = {"layers", "block_elements", "tensors", "causal"};
  for (const std::span<const char* const> keys :
       {std::span<const char* const>(kOthers), std::span<const char* const>(kTransformerSizes)}) {
    refuse_keys(table, keys, "config.json has the sizes; change them there");
  }
  const std::string path = resolved_path(table, "config");
  try {
    return transformers_model(read_text(path), table.text_or("architecture", ""), path);
  } catch (const InputError& error) {
    if (error.has_place()) {
      throw;
    }
    table.fail("config", error);
  }
}

bool is_recorded(const TomlReader& table) {
  return table.has("kind") && table.text("kind") == "recorded";
}

/// The profile's model. Where its steps are of samples without lengths, each counts as one token.
TransformerConfig model_of(const RecordedModel& recorded) {
  TransformerConfig model = recorded.model;
  const bool of_samples = recorded.forward.length == std::pair(1.0, 1.0);
  model.tokens_unknown =
      of_samples && model.family != ModelFamily::Blocks && !has_own_tokens(model);
  return model;
}

/// The model that the profile was recorded from. Batches can be planned before it is there.
TransformerConfig recorded_model(const TomlReader& table, Scenario& scenario) {
  if (scenario.profile.empty()) {
    table.fail(
        "kind", "the model of the profile's record; name it as cluster.profile", Lookup::Profiles);
  }
  constexpr std::array kOthers = {
      "layers", "block_elements", "tensors", "dtype", "parameter_dtype", "attention", "kernels"};
  for (const std::span<const char* const> keys :
       {std::span<const char* const>(kOthers), std::span<const char* const>(kTransformerSizes)}) {
    refuse_keys(table, keys, "the recorded model has its own");
  }
  if (std::error_code error;
      !is_name_alone(scenario.profile) && !std::filesystem::exists(scenario.profile, error)) {
    scenario.model_is_unknown = true;
    TransformerConfig unknown = family_defaults(ModelFamily::Blocks);
    unknown.layers = unknown.block_elements = 1;
    return unknown;
  }
  const Profile profile = read_profile(scenario.profile);
  if (!profile.recorded) {
    table.fail("kind",
               fmt::format("{} holds no recorded model; make one: stepcal import run-record --help",
                           printable(scenario.profile)));
  }
  return model_of(*profile.recorded);
}

std::vector<std::pair<std::string, std::vector<std::int64_t>>> names_and_shapes(
    const TransformerConfig& model) {
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> list;
  for (const Parameter& parameter : parameters(model)) {
    list.emplace_back(parameter.name, parameter.shape);
  }
  return list;
}

/// "true" and "false" without quotes, or a text.
Checkpointing read_checkpointing(const TomlReader& table) {
  Checkpointing checkpointing;
  if (table.has("checkpointing")) {
    checkpointing.kind =
        table.value("checkpointing").kind == TomlValue::Kind::Text
            ? table.parsed("checkpointing",
                           [](const std::string& name) { return parse_checkpoint_kind(name); })
        : table.boolean_or("checkpointing", false) ? CheckpointKind::Full
                                                   : CheckpointKind::None;
  }
  const std::int64_t least = checkpointing.kind == CheckpointKind::Layers ? 1 : 0;
  checkpointing.every = table.integer_or("checkpoint_every", checkpointing.every, least);
  return checkpointing;
}

/// Whether the loss takes the logits as they are.
bool read_loss_dtype(const TomlReader& table) {
  const std::array<std::string, 2> names = {"f32", "own"};
  return table.has("loss_dtype") && read_choice(table, "loss_dtype", "f32", names) == "own";
}

/// Where the profile was recorded from this very model, as whole steps, that one: it has the times.
TransformerConfig as_recorded(const TomlReader& table,
                              Scenario& scenario,
                              const TransformerConfig& model) {
  std::error_code error;
  if (!std::filesystem::exists(scenario.profile, error)) {
    return model;
  }
  const Profile profile = read_profile(scenario.profile);
  if (!profile.recorded || names_and_shapes(profile.recorded->model) != names_and_shapes(model)) {
    return model;
  }
  refuse_keys(table,
              std::array{"dtype",
                         "parameter_dtype",
                         "attention",
                         "kernels",
                         "checkpointing",
                         "checkpoint_every",
                         "loss_dtype"},
              "the profile was recorded from this model, which has its own");
  scenario.described = model;
  return model_of(*profile.recorded);
}

/// A preset that is a config.json, whose sizes only that file can change.
TransformerConfig sized_preset(const TomlReader& table,
                               Scenario& scenario,
                               const TransformerConfig& model) {
  constexpr std::array kOthers = {"layers", "block_elements", "tensors", "causal"};
  for (const std::span<const char* const> keys :
       {std::span<const char* const>(kOthers), std::span<const char* const>(kTransformerSizes)}) {
    refuse_keys(
        table,
        keys,
        "the preset is a config.json of transformers, which has the sizes; for others write "
        "config = \"config.json\" with a file of your own");
  }
  return as_recorded(table, scenario, model);
}

TransformerConfig start_of(const TomlReader& table, Scenario& scenario) {
  if (is_config(table)) {
    return as_recorded(table, scenario, config_model(table));
  }
  if (table.has("architecture")) {
    table.fail("architecture", "only with config: the class of transformers to train");
  }
  if (table.has("preset") && table.has("kind")) {
    table.fail("kind", "give preset or kind, not both: a preset has its kind");
  }
  if (table.has("preset")) {
    const TransformerConfig model =
        table.parsed("preset", [](const std::string& name) { return model_preset(name); });
    return model.family == ModelFamily::Transformers ? sized_preset(table, scenario, model) : model;
  }
  if (!table.has("kind")) {
    table.fail("expected preset = \"gpt2-small\", or kind with layers, hidden, heads and vocab" +
               other_models_hint());
  }
  if (is_recorded(table)) {
    return recorded_model(table, scenario);
  }
  return family_defaults(table.parsed("kind", [](const std::string& name) {
    try {
      const ModelFamily family = parse_family(name);
      if (family == ModelFamily::Transformers) {
        throw InputError("give config = \"config.json\" in place of it");
      }
      return family;
    } catch (const InputError& error) {
      throw with_other_models(InputError(std::string(error.what()) + ", recorded", Lookup::Models));
    }
  }));
}

/// Elements of the model's buffers by dtype, as { f32 = 53120, i64 = 53 }.
void read_buffers(const TomlReader& table, Scenario& scenario) {
  const TomlReader buffers = table.table("buffers");
  for (const TomlValue& item : table.value("buffers").children) {
    const std::int64_t elements = buffers.integer(item.key, 1, kMaxElements);
    std::int64_t size = 8;
    if (item.key != "i64") {
      try {
        size = element_size(parse_dtype(item.key));
      } catch (const InputError& error) {
        buffers.fail(item.key, error);
      }
    }
    scenario.buffer_bytes.push_back(elements * size);
  }
}

/// Raises InputError at the key that is wrong, or at the table when the file leaves that key out.
void check_model(const TomlReader& table, const TransformerConfig& model) {
  try {
    check(model);
  } catch (const FieldError& error) {
    if (!table.has(error.field())) {
      table.fail(error);
    }
    table.fail(error.field(), error.reason());
  }
}

}  // namespace

VarlenCall read_varlen(const TomlReader& owner, const VarlenCall& fallback) {
  VarlenCall call = fallback;
  if (!owner.has("varlen")) {
    return call;
  }
  const TomlReader table = owner.table("varlen");
  call.max_num_docs = table.integer_or("max_num_docs", call.max_num_docs, 1, kMaxSize);
  call.max_seq_len = table.integer_or("max_seq_len", call.max_seq_len, 1, kMaxSampleLength);
  call.block_rows = table.integer_or("block_rows", call.block_rows, 1, kMaxSize);
  if (table.has("overflow")) {
    const std::string name = read_choice(table, "overflow", "error", overflow_names());
    const auto names = overflow_names();
    call.overflow = static_cast<Overflow>(std::ranges::find(names, name) - names.begin());
  }
  if (table.has("empty_block")) {
    call.empty_block_seconds =
        table.parsed("empty_block", [](const std::string& text) { return parse_seconds(text); });
    if (*call.empty_block_seconds > to_seconds(kMaxScenarioDuration)) {
      table.fail("empty_block", "too long; expected at most 1 hour");
    }
  }
  return call;
}

std::vector<Key> model_keys() {
  return {
      described("preset", "`\"gpt2-small\"`, …: `stepsim models` lists them", ""),
      described(
          "kind",
          "`token_classifier`, `distilbert`, `bert`, `gpt2`, `llama`, `nanochat`; `blocks`: a "
          "chain of `layers` equal ops with one tensor each and no other sizes, for studies "
          "of the schedule; `recorded`: the model of the profile that `stepcal import run-record` "
          "made, without keys for its sizes; batches can be planned before that is there",
          ""),
      described("config",
                "in place of `preset` and `kind`: a `config.json` of transformers, whose "
                "`model_type` is one that `stepsim models` lists; relative to this file. All sizes "
                "are its own; `name`, `dtype`, `parameter_dtype`, `attention`, `kernels`, "
                "`checkpointing`, `checkpoint_every`, `loss_dtype`, `returns_loss`, "
                "`flops_per_token`, `buffers` and "
                "`varlen` may stand beside it; a profile of whole "
                "steps of this model has its times",
                ""),
      described("architecture",
                "with `config`: the class to train, as `\"BertForSequenceClassification\"`",
                "the file's `architectures`"),
      described("name", "text for reports", "the kind"),
      described("layers", "blocks of the model, at least 1", ""),
      described("hidden", "width, at least 1", ""),
      described("heads", "attention heads, at least 1", ""),
      described("kv_heads", "key and value heads", "`heads`"),
      described("ffn", "inner width of the MLP", "4 times `hidden`"),
      described("vocab", "size of the vocabulary, at least 1", ""),
      described("max_length", "positions the model takes; longer samples are refused", ""),
      described("classes", "outputs of a classification head", "0 (none)"),
      described("tied_embeddings", "the output layer shares the embedding", "true for `gpt2`"),
      described("causal", "attention looks back only", "true for `gpt2`, `llama`, `nanochat`"),
      described("window", "sliding attention window in tokens; 0: unlimited", "0"),
      touching(Stage::Planned,
               described("dtype",
                         "compute: `f32`, `tf32`, `bf16`, `f16`, `f64`",
                         "`f32`; a preset has its own")),
      touching(Stage::Planned,
               described("parameter_dtype",
                         "parameters and gradients, so also what is reduced",
                         "`f32`; a preset has its own")),
      described("attention", "`dense`, `flash`, `varlen`", "`dense`; a preset has its own"),
      described("kernels",
                "what `stepcal` runs on a GPU for the ops of the plan: `torch_eager`, as PyTorch "
                "without `torch.compile`, or `fused`, the fewest kernels",
                "`torch_eager`"),
      touching(
          Stage::Planned,
          described("checkpointing",
                    "what a layer keeps for the backward, which computes the rest once more: less "
                    "memory, longer steps. `false`: all; `true` or `\"full\"`: its input alone; "
                    "`\"layers\"`: every n-th layer its input alone; `\"ops\"`: its input, fused "
                    "attention and all products of matrices but every n-th, which is PyTorch's "
                    "selective checkpointing by torchtitan's policy, see below",
                    "false")),
      touching(Stage::Planned,
               described("checkpoint_every",
                         "the n of `checkpointing = \"layers\"` and `\"ops\"`; 0 with `\"ops\"`: "
                         "all products are "
                         "kept",
                         "2")),
      touching(
          Stage::Planned,
          described("loss_dtype",
                    "of the logits that the loss takes, for memory alone: `f32`, to which they are "
                    "cast first, or `\"own\"`, that of compute",
                    "`f32`")),
      touching(
          Stage::Planned,
          described(
              "returns_loss",
              "the model's forward takes the labels and returns the loss, as the classes of "
              "transformers do; false: the loop computes it from the logits, as torchtitan's. "
              "For memory under `fsdp2`: the root is gathered during the backward of a loss that "
              "is inside of it",
              "true for a `config.json` and the presets that are one")),
      touching(
          Stage::Played,
          described("flops_per_token",
                    "of a mean useful token, forward and backward, attention included; for "
                    "TFLOP/s and MFU, times do not depend on it. 6 for each weight that is "
                    "multiplied with the token, and 12 x layers x width x length for attention",
                    "three times the forward's products, where the model states them")),
      described("buffers",
                "elements of the model's buffers by dtype, `{ f32 = 53120, i64 = 53 }`: what "
                "`ddp.broadcast_buffers` sends",
                "none"),
      described("block_elements", "with `blocks`: elements of each tensor", ""),
      described("sparse_embeddings",
                "the embeddings' gradients are sparse: rows and indices are gathered, not reduced; "
                "not with tied embeddings",
                "false"),
      described("tensors",
                "with `blocks`, in place of `layers` and `block_elements`: a CSV file of a model's "
                "own tensors, for any model with measured `[times]`, see below",
                "none"),
      described("varlen", "with `varlen`: the call as it is compiled, see below", "not compiled"),
  };
}

std::vector<Key> varlen_keys() {
  return {
      described(
          "max_num_docs",
          "slots, at least 1; `stepsim run`, `plan` and `compare` print the most documents of "
          "a batch in an epoch",
          "as many as the batch has documents"),
      described("max_seq_len", "longest document", "the longest of the batch"),
      described("overflow",
                "longer documents and batches of more documents: `\"error\"`; `\"merge\"`: "
                "documents are cut to `max_seq_len`, and the two neighbours that are shortest "
                "together become one, which attends across, until all fit; `\"discard\"`: "
                "documents are cut, the batch is left out and the rank goes on with its next one",
                "`\"error\"`"),
      described("block_rows", "rows of a thread block's tile, forward and backward", "128"),
      holding(Quantity::Time,
              described("empty_block",
                        "what one empty block adds to its kernel, as `\"0.5 ns\"`; a profile whose "
                        "attention has the feature `empty_blocks` comes first",
                        "0, and a warning")),
  };
}

void read_model(const TomlReader& root, Scenario& scenario) {
  const TomlReader table = required_table(root, "model");
  TransformerConfig model = start_of(table, scenario);
  const bool is_sized_preset =
      table.has("preset") && model_preset(table.text("preset")).family == ModelFamily::Transformers;
  if (!is_recorded(table) && !is_config(table) && !is_sized_preset) {
    read_sizes(table, table.has("preset"), model);
  }
  model.name = table.text_or("name", model.name);
  model.tied_embeddings = table.boolean_or("tied_embeddings", model.tied_embeddings);
  model.causal = table.boolean_or("causal", model.causal);
  model.sparse_embeddings = table.boolean_or("sparse_embeddings", false);
  if (table.has("buffers")) {
    read_buffers(table, scenario);
  }
  const auto dtype = [](const std::string& name) { return parse_dtype(name); };
  if (table.has("dtype")) {
    model.dtype = table.parsed("dtype", dtype);
  }
  if (table.has("parameter_dtype")) {
    if (model.family == ModelFamily::Blocks && model.parameter_dtype != Dtype::F32) {
      table.fail("parameter_dtype", "the list in tensors has its own");
    }
    model.parameter_dtype = table.parsed("parameter_dtype", dtype);
  }
  if (table.has("attention")) {
    model.attention =
        table.parsed("attention", [](const std::string& name) { return parse_attention(name); });
  }
  if (table.has("kernels")) {
    model.kernels =
        table.parsed("kernels", [](const std::string& name) { return parse_kernels(name); });
  }
  check_model(table, model);
  scenario.varlen = read_varlen(table, {});
  scenario.checkpointing = read_checkpointing(table);
  scenario.loss_in_own_dtype = read_loss_dtype(table);
  scenario.returns_loss =
      table.boolean_or("returns_loss", model.family == ModelFamily::Transformers);
  if (table.has("flops_per_token")) {
    scenario.flops_per_token = read_number(table, "flops_per_token", positive_number());
  }
  scenario.model = model;
}

}  // namespace stepsim
