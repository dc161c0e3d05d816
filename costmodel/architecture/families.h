#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "costmodel/architecture/config_file.h"
#include "costmodel/architecture/described_model.h"
#include "costmodel/architecture/model_builder.h"

namespace stepsim {

/// What stands on top of the layers, by the end of the class's name.
enum class Head {
  CausalLm,        ///< ForCausalLM, LMHeadModel
  Generation,      ///< ForConditionalGeneration
  MaskedLm,        ///< ForMaskedLM
  Sequence,        ///< ForSequenceClassification
  Tokens,          ///< ForTokenClassification
  Questions,       ///< ForQuestionAnswering
  MultipleChoice,  ///< ForMultipleChoice
  PreTraining,     ///< ForPreTraining
  Images,          ///< ForImageClassification
  Base             ///< Model
};

/// One kind of model of transformers.
struct Family {
  std::string model_type;    ///< As config.json has it: "qwen3".
  std::string class_prefix;  ///< "Qwen3" of Qwen3ForCausalLM.
  std::vector<Head> heads;   ///< The first is taken where the file names no class.
  std::function<void(const ConfigFile&, Head, ModelBuilder&)> build;
};

/// All families, in the order in which they are listed.
[[nodiscard]] std::span<const Family> families();

/// Returns the classes of a family: "BertForMaskedLM", ….
[[nodiscard]] std::vector<std::string> classes_of(const Family& family);

/// Returns the model that a config.json of transformers describes, with the tensors of
/// transformers 5.24 and PyTorch 2.15.
///
/// Args:
///     architecture: The class to train; empty: the one that the file names.
///
/// Raises:
///     InputError: no such file of transformers, or a model_type or class that is not known.
///     FieldError: a size is wrong.
[[nodiscard]] DescribedModel described_model(const ConfigFile& config,
                                             const std::string& architecture,
                                             const DescribedRun& run);

// The rows of families(), by what they have in common.
[[nodiscard]] std::vector<Family> decoder_families();
[[nodiscard]] std::vector<Family> gpt_families();
[[nodiscard]] std::vector<Family> encoder_families();
[[nodiscard]] std::vector<Family> deberta_families();
[[nodiscard]] std::vector<Family> modernbert_families();
[[nodiscard]] std::vector<Family> vision_families();
[[nodiscard]] std::vector<Family> speech_families();
[[nodiscard]] std::vector<Family> t5_families();

}  // namespace stepsim
