#include "sim/batching/policy.h"

#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "sim/batching/policies/policies.h"
#include "sim/batching/policies/policy_rows.h"
#include "sim/batching/policies/tensorflow.h"

namespace stepsim {
namespace {

const PolicyRow& find_row(std::string_view kind) {
  std::vector<std::string> known;
  for (const auto& row : policy_rows()) {
    if (row.info.kind == kind) {
      return row;
    }
    known.push_back(row.info.kind);
  }
  throw InputError(unknown_name("policy kind", kind, known));
}

void check_weighting(std::string_view weighting) {
  const auto known = weightings();
  if (std::find(known.begin(), known.end(), weighting) == known.end()) {
    throw InputError(unknown_name("weighting", weighting, known));
  }
}

}  // namespace

std::span<const PolicyInfo> policy_table() {
  static const std::vector<PolicyInfo> kInfos = [] {
    std::vector<PolicyInfo> result;
    for (const auto& row : policy_rows()) {
      result.push_back(row.info);
    }
    return result;
  }();
  return kInfos;
}

const PolicyInfo& policy_info(std::string_view kind) {
  return find_row(kind).info;
}

std::span<const std::string> policy_parameter_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const auto& row : policy_rows()) {
      for (const auto& parameter : row.info.parameters) {
        if (std::find(names.begin(), names.end(), parameter.name) == names.end()) {
          names.push_back(parameter.name);
        }
      }
    }
    return names;
  }();
  return kNames;
}

BatchingPolicy make_policy(const PolicySpec& spec) {
  const PolicyRow& row = find_row(spec.kind);
  PolicyParameters parameters = spec.parameters.completed(spec.kind, row.info.parameters);
  if (row.check != nullptr) {
    row.check(parameters);
  }
  check_weighting(spec.weighting);
  if (spec.pad_to_multiple_of < 1) {
    throw InputError(fmt::format("pad_to_multiple_of: {} is below 1", spec.pad_to_multiple_of));
  }
  return {std::move(parameters), row.epoch, spec.pad_to_multiple_of};
}

EpochPlan BatchingPolicy::epoch(const PolicyInput& input) const {
  if (const auto* cutting = std::get_if<Cutting>(&form_)) {
    EpochPlan plan = (*cutting)(parameters_, input);
    if (!plan.pieces.empty() && !input.targets.empty()) {
      throw InputError(
          "cuts samples that have second lengths: what belongs to each part is not known; leave "
          "data.targets out or data.lengths.cap in");
    }
    return plan;
  }
  return {std::get<Whole>(form_)(parameters_, input), {}};
}

std::optional<double> BatchingPolicy::token_budget() const {
  if (parameters_.has("batch_type") && parameters_.text("batch_type") == "tokens") {
    return parameters_.number("batch_size");
  }
  for (const char* name :
       {"max_tokens", "max_duration", "batch_bins", "capacity", "token_budget"}) {
    if (parameters_.has(name)) {
      return parameters_.number(name);
    }
  }
  return std::nullopt;
}

std::int64_t BatchingPolicy::padded_length(std::int64_t longest) const {
  if (longest > 0 && parameters_.has("pad_to_bucket_boundary") &&
      parameters_.flag("pad_to_bucket_boundary")) {
    longest = bucket_padded_length({parameters_.integers("bucket_boundaries"), {}}, longest);
  }
  return padded_to_multiple(longest, pad_to_multiple_of_);
}

std::vector<Piece> EpochPlan::pieces_of(std::span<const std::int64_t> batch,
                                        std::span<const std::int64_t> lengths) const {
  std::vector<Piece> result;
  result.reserve(batch.size());
  for (const std::int64_t id : batch) {
    const auto at = static_cast<std::size_t>(id);
    result.push_back(pieces.empty() ? Piece{id, 0, lengths[at]} : pieces[at]);
  }
  return result;
}

std::span<const std::string> weightings() {
  static const std::array<std::string, 3> kNames = {"none", "sample", "token"};
  return kNames;
}

double loss_scale(std::string_view weighting, double own, double all, int ranks) {
  check_weighting(weighting);
  if (weighting == "none") {
    return 1;
  }
  if (!(all > 0)) {
    throw InputError(fmt::format("weighting '{}': the step holds no {}s", weighting, weighting));
  }
  return ranks * own / all;
}

std::vector<double> loss_scales(std::string_view weighting, std::span<const BatchShape> ranks) {
  const auto units = [weighting](const BatchShape& shape) {
    return static_cast<double>(weighting == "sample" ? shape.samples : shape.useful_tokens);
  };
  double all = 0;
  for (const auto& shape : ranks) {
    all += units(shape);
  }
  std::vector<double> scales;
  scales.reserve(ranks.size());
  for (const auto& shape : ranks) {
    scales.push_back(loss_scale(weighting, units(shape), all, static_cast<int>(ranks.size())));
  }
  return scales;
}

}  // namespace stepsim
