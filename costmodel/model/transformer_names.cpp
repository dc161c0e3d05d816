#include <string_view>

#include "costmodel/architecture/value_names.h"
#include "costmodel/model/transformer.h"

namespace stepsim {
namespace {

constexpr Names<KernelChoice, 2> kKernels = {
    {{KernelChoice::TorchEager, "torch_eager"}, {KernelChoice::Fused, "fused"}}};

constexpr Names<ModelFamily, 8> kFamilies = {{{ModelFamily::TokenClassifier, "token_classifier"},
                                              {ModelFamily::DistilBert, "distilbert"},
                                              {ModelFamily::Bert, "bert"},
                                              {ModelFamily::Gpt2, "gpt2"},
                                              {ModelFamily::Llama, "llama"},
                                              {ModelFamily::Nanochat, "nanochat"},
                                              {ModelFamily::Blocks, "blocks"},
                                              {ModelFamily::Transformers, "transformers"}}};

}  // namespace

std::string_view name_of(KernelChoice kernels) {
  return name_in(kKernels, kernels);
}
KernelChoice parse_kernels(std::string_view name) {
  return parse_in(kKernels, "kernels", name);
}

std::string_view name_of(ModelFamily family) {
  return name_in(kFamilies, family);
}
ModelFamily parse_family(std::string_view name) {
  return parse_in(kFamilies, "model family", name);
}

}  // namespace stepsim
