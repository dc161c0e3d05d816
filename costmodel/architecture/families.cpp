#include "costmodel/architecture/families.h"

#include <algorithm>
#include <array>
#include <iterator>

#include <fmt/format.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"

namespace stepsim {
namespace {

struct HeadName {
  Head head;
  std::string_view suffix;
};

constexpr std::array kHeadNames = {HeadName{Head::CausalLm, "ForCausalLM"},
                                   HeadName{Head::Generation, "ForConditionalGeneration"},
                                   HeadName{Head::MaskedLm, "ForMaskedLM"},
                                   HeadName{Head::Sequence, "ForSequenceClassification"},
                                   HeadName{Head::Tokens, "ForTokenClassification"},
                                   HeadName{Head::Questions, "ForQuestionAnswering"},
                                   HeadName{Head::MultipleChoice, "ForMultipleChoice"},
                                   HeadName{Head::PreTraining, "ForPreTraining"},
                                   HeadName{Head::Images, "ForImageClassification"},
                                   HeadName{Head::Base, "Model"}};

std::string class_of(const Family& family, Head head) {
  if (family.class_prefix == "GPT2" && head == Head::CausalLm) {
    return "GPT2LMHeadModel";
  }
  const auto* name = std::ranges::find(kHeadNames, head, &HeadName::head);
  return family.class_prefix + std::string(name->suffix);
}

constexpr const char* kOtherWays =
    "; any other model: kind = \"recorded\" with the profile of a recorded training (three lines "
    "of stepsim_recorder.py, then stepcal import run-record), or of its step times (stepcal import "
    "step-times with --tensors: a list of its named_parameters())";

const Family& family_of(const ConfigFile& config) {
  const auto all = families();
  const auto found = std::ranges::find(all, config.model_type(), &Family::model_type);
  if (found == all.end()) {
    const auto known = mapped(all, [](const Family& family) { return family.model_type; });
    const std::string part = config.part_type("text_config");
    if (std::ranges::find(known, part) != known.end()) {
      throw InputError(
          "model_type '{}' has several models; its text_config is one that is known ('{}'): a file "
          "with that part alone describes the language model",
          printable(config.model_type()),
          part);
    }
    throw InputError(unknown_name("model_type", config.model_type(), known) + kOtherWays,
                     Lookup::Models);
  }
  return *found;
}

Head head_of(const Family& family, const std::string& architecture) {
  for (const Head head : family.heads) {
    if (class_of(family, head) == architecture) {
      return head;
    }
  }
  throw InputError(
      unknown_name("class of " + family.model_type, architecture, classes_of(family)) + kOtherWays,
      Lookup::Models);
}

void check_elements(const DescribedModel& model) {
  constexpr double kMost = 1e15;
  double elements = 0;
  for (const DescribedParameter& described : model.parameters) {
    double size = 1;
    for (const std::int64_t length : described.parameter.shape) {
      if (length < 1) {
        throw InputError("{} would have a size of {}", described.parameter.name, length);
      }
      size *= static_cast<double>(length);
    }
    elements += size;
  }
  if (elements > kMost) {
    throw InputError("more than {:.0f} parameters", kMost);
  }
}

}  // namespace

std::span<const Family> families() {
  static const std::vector<Family> kFamilies = [] {
    std::vector<Family> all;
    for (auto rows : {decoder_families(),
                      gpt_families(),
                      encoder_families(),
                      deberta_families(),
                      modernbert_families(),
                      vision_families(),
                      speech_families(),
                      t5_families()}) {
      std::ranges::move(rows, std::back_inserter(all));
    }
    return all;
  }();
  return kFamilies;
}

std::vector<std::string> classes_of(const Family& family) {
  return mapped(family.heads, [&](Head head) { return class_of(family, head); });
}

DescribedModel described_model(const ConfigFile& config,
                               const std::string& architecture,
                               const DescribedRun& run) {
  const Family& family = family_of(config);
  const std::string& wanted = architecture.empty() ? config.architecture() : architecture;
  const Head head = wanted.empty() ? family.heads.front() : head_of(family, wanted);
  ModelBuilder builder(run);
  builder.model.architecture = class_of(family, head);
  family.build(config, head, builder);
  check_elements(builder.model);
  return std::move(builder.model);
}

}  // namespace stepsim
