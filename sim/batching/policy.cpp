#include "sim/batching/policy.h"

#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "costmodel/input_error.h"
#include "sim/batching/policies/policies.h"

namespace stepsim {
namespace {

struct PolicyRow {
  PolicyInfo info;
  std::unique_ptr<BatchingPolicy> (*make)(const PolicySpec&);
};

/// Every policy there is. A new one is a file in policies/ and a row here.
const std::array<PolicyRow, 3>& rows() {
  static const std::array<PolicyRow, 3> kTable = {{
      {{"fixed",
        "the same number of samples in every batch, padded to the longest of the batch",
        {"batch_size"},
        "PyTorch BatchSampler with a padding collator"},
       make_fixed},
      {{"bucketed",
        "each rank sorts its samples by length and cuts batches of equal count, then shuffles them",
        {"batch_size"},
        "token-skew lab, strategy bucket"},
       make_bucketed},
      {{"token_budget",
        "each rank sorts its samples by length and fills batches up to a budget of padded tokens",
        {"max_tokens"},
        "token-skew lab, strategy token"},
       make_token_budget},
  }};
  return kTable;
}

const PolicyRow& find_row(std::string_view kind) {
  std::vector<std::string> known;
  for (const auto& row : rows()) {
    if (row.info.kind == kind) {
      return row;
    }
    known.push_back(row.info.kind);
  }
  throw InputError(unknown_name("policy kind", kind, known));
}

void check_parameter(const PolicyInfo& info, const std::string& name, std::int64_t value) {
  const bool taken = std::count(info.parameters.begin(), info.parameters.end(), name) > 0;
  if (taken && value < 1) {
    throw InputError(value == 0
                         ? fmt::format("policy kind '{}' needs {} (at least 1)", info.kind, name)
                         : fmt::format("{}: {} is negative; expected at least 1", name, value));
  }
  if (!taken && value != 0) {
    throw InputError(fmt::format("{} does not apply to policy kind '{}'; it takes: {}",
                                 name,
                                 info.kind,
                                 info.parameters.front()));
  }
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
    for (const auto& row : rows()) {
      result.push_back(row.info);
    }
    return result;
  }();
  return kInfos;
}

const PolicyInfo& policy_info(std::string_view kind) {
  return find_row(kind).info;
}

std::unique_ptr<BatchingPolicy> make_policy(const PolicySpec& spec) {
  const PolicyRow& row = find_row(spec.kind);
  check_parameter(row.info, "batch_size", spec.batch_size);
  check_parameter(row.info, "max_tokens", spec.max_tokens);
  check_weighting(spec.weighting);
  return row.make(spec);
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
