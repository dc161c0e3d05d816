#include "costmodel/records/profile_cost_model.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/compute/op_cost.h"
#include "costmodel/io/json_file.h"
#include "costmodel/network/collective_table.h"

namespace stepsim {
namespace {

bool attention_class(OpClass op_class) {
  return op_class == OpClass::AttentionScores || op_class == OpClass::Softmax ||
         op_class == OpClass::AttentionContext || op_class == OpClass::Attention;
}

/// Returns an op's name for messages: "gemm forward (n=144, k=48, f32)".
std::string described(const Op& op) {
  const std::array<std::pair<std::string_view, std::int64_t>, 4> sizes = {
      {{"n", op.n}, {"k", op.k}, {"heads", op.heads}, {"head_dim", op.head_dim}}};
  std::string text = fmt::format("{} {} (", name_of(op.op_class), name_of(op.pass));
  for (const auto& [name, size] : sizes) {
    if (size != 0) {
      text += fmt::format("{}={}, ", name, size);
    }
  }
  return text + fmt::format("{})", name_of(op.dtype));
}

std::string_view variable_name(const OpCost& cost, const Op& op) {
  return form_row(cost.form).over_length ? "padded length" : name_of(op.rows);
}

}  // namespace

std::string compute_prices_origin(const Profile& profile) {
  const Json* provenance = &*profile.provenance;
  std::string name = profile.name;
  while (provenance->is_object() && provenance->contains("base")) {  // Each has one less in it.
    const Json& base = provenance->at("base");
    if (!base.is_object() || !base.contains("provenance")) {
      return "";
    }
    if (base.contains("name") && base.at("name").is_string()) {
      name = base.at("name").get<std::string>();
    }
    provenance = &base.at("provenance");
  }
  if (!provenance->is_object() || !provenance->contains("method") ||
      !provenance->at("method").is_string()) {
    return "";
  }
  const std::string method = provenance->at("method").get<std::string>();
  return name == profile.name ? method : fmt::format("those of {}, {}", name, method);
}

bool prices_empty_blocks(const Profile& profile) {
  return std::ranges::any_of(profile.ops, [](const OpCost& cost) {
    const auto& features = cost.features;
    return cost.op_class == OpClass::Attention &&
           std::ranges::find(features, "empty_blocks") != features.end();
  });
}

ProfileCostModel::ProfileCostModel(Profile profile, double max_extrapolation)
    : profile_(std::move(profile)), max_extrapolation_(max_extrapolation) {
  for (std::size_t i = 0; i < profile_.ops.size(); ++i) {
    const OpCost& cost = profile_.ops[i];
    index_.emplace_back(
        Key{cost.op_class, cost.pass, cost.dtype, cost.n, cost.k, cost.heads, cost.head_dim}, i);
  }
  std::ranges::sort(index_);
}

const OpCost* ProfileCostModel::at(const Key& key) const {
  const auto found = std::lower_bound(index_.begin(), index_.end(), std::pair(key, std::size_t{0}));
  return found != index_.end() && found->first == key ? &profile_.ops[found->second] : nullptr;
}

ProfileCostModel::Found ProfileCostModel::find(const Op& op) const {
  const auto key = [&op](std::int64_t n, std::int64_t k, std::int64_t heads, std::int64_t dim) {
    return Key{op.op_class, op.pass, op.dtype, n, k, heads, dim};
  };
  if (const OpCost* cost = at(key(op.n, op.k, op.heads, op.head_dim)); cost != nullptr) {
    return {cost, true};
  }
  if (attention_class(op.op_class)) {
    if (const OpCost* cost = at(key(0, 0, 0, op.head_dim)); cost != nullptr) {
      return {cost, false};
    }
  }
  return {at(key(0, 0, 0, 0)), op.rows == RowUnit::Elements};
}

/// "bf16 and f16": the types in which an op has a cost.
std::string ProfileCostModel::other_types(const Op& op) const {
  std::vector<std::string> types;
  for (const Dtype dtype : {Dtype::Bf16, Dtype::F16, Dtype::F32, Dtype::Tf32, Dtype::F64}) {
    Op other = op;
    other.dtype = dtype;
    if (dtype != op.dtype && find(other).cost != nullptr) {
      types.emplace_back(name_of(dtype));
    }
  }
  return fmt::format("{}", fmt::join(types, " and "));
}

/// "model.attention = \"flash\"": what a scenario has to say of attention in this type; empty where
/// it may have both kinds, or none is priced.
std::string ProfileCostModel::priced_attention(Dtype dtype) const {
  const auto has = [&](OpClass op_class) {
    return std::ranges::any_of(profile_.ops, [&](const OpCost& cost) {
      return cost.op_class == op_class && cost.dtype == dtype;
    });
  };
  const bool flash = has(OpClass::Attention);
  const bool dense = has(OpClass::AttentionScores);
  return flash == dense ? "" : fmt::format("model.attention = \"{}\"", flash ? "flash" : "dense");
}

/// ", but of bf16: write model.dtype = \"bf16\" and model.attention = \"flash\", or ": what the
/// profile has in place of an op; ": " where it has nothing like it.
std::string ProfileCostModel::in_place_of(const Op& op) const {
  const std::string attention = priced_attention(op.dtype);
  if (attention_class(op.op_class) && !attention.empty()) {
    return fmt::format(", but of another kind of attention: write {}, or ", attention);
  }
  const std::string others = other_types(op);
  if (others.empty()) {
    return ": ";
  }
  const std::string first = others.substr(0, others.find(' '));
  const bool of_parameters = op.rows == RowUnit::Elements;
  const std::string also = of_parameters ? "" : priced_attention(parse_dtype(first));
  return fmt::format(", but of {}: write {} = \"{}\"{}, or ",
                     others,
                     of_parameters ? "model.parameter_dtype" : "model.dtype",
                     first,
                     also.empty() ? "" : " and " + also);
}

/// What to do about an op that is too large for what the profile has.
std::string ProfileCostModel::larger_advice(const OpCost& cost, const Op& op) const {
  const bool of_parameters = op.rows == RowUnit::Elements;
  const bool of_length = form_row(cost.form).over_length;
  if (!compute_prices_origin(profile_).empty()) {
    return fmt::format(
        "these are no measurements but published figures; take {}, or measure your "
        "machine with: python3 -m stepsim.torch.measure …",
        of_parameters ? "a smaller model"
        : of_length   ? "shorter samples"
                      : "smaller batches");
  }
  if (of_parameters) {
    return "they are the model's own, so measure a model as large with: python3 -m "
           "stepsim.torch.measure …, or take a profile of one";
  }
  return of_length ? "measure longer samples" : "measure larger batches";
}

Cost ProfileCostModel::op(const Op& op, const BatchShape& batch) const {
  if (op.rows != RowUnit::Elements && batch.samples == 0) {
    return {};
  }
  const Found found = find(op);
  if (found.cost == nullptr) {
    throw InputError(
        "profile {} has no cost for {}{}measure it with: python3 -m stepsim.torch.measure …",
        printable(profile_.name),
        described(op),
        in_place_of(op));
  }
  Cost cost = evaluate(*found.cost, op, batch);
  if (cost.extrapolation > max_extrapolation_ && !cost.smaller) {
    throw InputError(
        "profile {}: {} was measured for {} from {} to {}; this is {:.2f} times beyond, and more "
        "than {} times is refused: {}",
        printable(profile_.name),
        described(op),
        variable_name(*found.cost, op),
        found.cost->range_lo,
        found.cost->range_hi,
        cost.extrapolation,
        max_extrapolation_,
        larger_advice(*found.cost, op));
  }
  if (!(cost.seconds <= kMaxCostSeconds)) {
    throw InputError("profile {}: {} would take {:.3g} s; more than 1 hour is refused",
                     printable(profile_.name),
                     described(op),
                     cost.seconds);
  }
  if (!found.exact) {
    cost.unseen_shape = true;
    cost.relative_error = std::max(cost.relative_error, kUnseenShapeError);
    cost.shared_error = cost.relative_error;
  }
  return cost;
}

CollectivePricer collective_pricer(const Profile& profile,
                                   std::optional<Topology> topology,
                                   PricerLimits limits) {
  return {profile.name, profile.collectives, std::move(topology), limits, profile.links};
}

void replace_table(Profile& profile, CollectiveCost table) {
  std::erase_if(profile.collectives, [&table](const CollectiveCost& other) {
    return other.kind == table.kind && other.ranks == table.ranks && other.nodes == table.nodes;
  });
  profile.collectives.push_back(std::move(table));
}

}  // namespace stepsim
