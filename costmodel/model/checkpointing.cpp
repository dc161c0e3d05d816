#include "costmodel/model/checkpointing.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>

#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

constexpr std::array kKinds = {std::pair(CheckpointKind::None, std::string_view("false")),
                               std::pair(CheckpointKind::Full, std::string_view("full")),
                               std::pair(CheckpointKind::Layers, std::string_view("layers")),
                               std::pair(CheckpointKind::Ops, std::string_view("ops"))};

/// The forward ops of each layer, in the order of the layers.
std::vector<std::pair<std::string, std::vector<Op>>> ops_by_layer(const TransformerConfig& config,
                                                                  const StepOps& ops) {
  std::vector<std::pair<std::string, std::vector<Op>>> layers;
  for (const Op& op : ops.forward) {
    const std::string layer(layer_of(op, config.family));
    if (layer.empty()) {
      continue;
    }
    auto known = std::ranges::find(layers, layer, [](const auto& one) { return one.first; });
    if (known == layers.end()) {
      known = layers.insert(layers.end(), {layer, {}});
    }
    known->second.push_back(op);
  }
  return layers;
}

bool is_router(const Op& op) {
  return op.name.ends_with(".router");
}

/// Whether torchtitan's policy counts a product: an aten.mm that has not the shape of a router's.
bool is_counted(const Op& product, const std::vector<Op>& layer) {
  const bool is_mm = !product.biased && product.matrices == 1;
  return is_mm && std::ranges::none_of(layer, [&](const Op& op) {
           return is_router(op) && op.n == product.n && op.k == product.k;
         });
}

}  // namespace

std::string_view name_of(CheckpointKind kind) {
  return std::ranges::find(kKinds, kind, [](const auto& one) { return one.first; })->second;
}

CheckpointKind parse_checkpoint_kind(std::string_view name) {
  const std::string_view known = name == "true" ? "full" : name;
  const auto* const found =
      std::ranges::find(kKinds, known, [](const auto& one) { return one.second; });
  if (found == kKinds.end()) {
    throw InputError("unknown checkpointing '{}'; known: false, true or full, layers, ops",
                     printable(std::string(name)));
  }
  return found->first;
}

bool Checkpointing::checkpoints(std::int64_t index) const {
  switch (kind) {
    case CheckpointKind::None:
      return false;
    case CheckpointKind::Layers:
      return (index + 1) % every == 0;
    case CheckpointKind::Full:
    case CheckpointKind::Ops:
      break;
  }
  return true;
}

std::vector<Op> kept_ops(const Checkpointing& checkpointing, const std::vector<Op>& layer) {
  std::vector<Op> kept;
  if (checkpointing.kind != CheckpointKind::Ops) {
    return kept;
  }
  std::int64_t products = 0;
  const auto is_again = [&](const Op& op) {
    return checkpointing.every > 0 &&
           (!is_counted(op, layer) || ++products % checkpointing.every == 0);
  };
  for (const Op& op : layer) {
    const bool is_product = op.op_class == OpClass::Gemm;
    if ((is_product && !is_again(op)) || op.op_class == OpClass::Attention) {
      kept.push_back(op);
    }
  }
  return kept;
}

StepOps checkpointed_step_ops(const TransformerConfig& config, const Checkpointing& checkpointing) {
  StepOps ops = step_ops(config);
  if (checkpointing.kind == CheckpointKind::None) {
    return ops;
  }
  std::map<std::string, std::vector<Op>> again;
  std::int64_t index = 0;
  for (auto& [layer, forward] : ops_by_layer(config, ops)) {
    if (checkpointing.checkpoints(index++)) {
      const std::vector<Op> kept = kept_ops(checkpointing, forward);
      std::erase_if(forward, [&](const Op& op) {
        return std::ranges::find(kept, op.name, &Op::name) != kept.end();
      });
      again.emplace(layer, std::move(forward));
    }
  }
  std::vector<Op> backward;
  for (Op& op : ops.backward) {
    if (const auto layer = again.find(std::string(layer_of(op, config.family)));
        layer != again.end()) {
      backward.insert(backward.end(), layer->second.begin(), layer->second.end());
      again.erase(layer);
    }
    backward.push_back(std::move(op));
  }
  ops.backward = std::move(backward);
  return ops;
}

}  // namespace stepsim
