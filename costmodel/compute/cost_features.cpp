#include "costmodel/compute/cost_features.h"

#include <algorithm>
#include <array>

#include "costmodel/base/input_error.h"
#include "costmodel/compute/tile_feature.h"

namespace stepsim {
namespace {

const std::array<std::string, 11> kFeatures = {"1",
                                               "samples",
                                               "tokens",
                                               "elements",
                                               "samples*length",
                                               "samples*length^2",
                                               "tokens*length",
                                               "padded*length^2",
                                               "empty_blocks",
                                               "flops",
                                               "bytes"};

}  // namespace

double variable_of(const Op& op, const BatchShape& batch) {
  const bool without_rows = op.rows == RowUnit::Elements && op.op_class != OpClass::Gemm;
  return without_rows ? static_cast<double>(op.n) : rows_of(op, batch);
}

std::span<const std::string> feature_names() {
  return kFeatures;
}

double ratio_variable(const Op& op, const BatchShape& batch) {
  if (op.op_class != OpClass::Attention) {
    return variable_of(op, batch);
  }
  const double tokens = rows_of(op, batch);
  return tokens > 0 ? squared_lengths(op, batch) / tokens : 0;
}

bool needs_processors(std::span<const std::string> features) {
  return std::ranges::any_of(features, [](const std::string& feature) {
    const auto tile = parse_tile_feature(feature);
    return tile && tile->is_waves();
  });
}

double feature_value(std::string_view feature,
                     const Op& op,
                     const BatchShape& batch,
                     std::int64_t processors) {
  if (feature == "1") {
    return 1;
  }
  if (feature == "samples") {
    return static_cast<double>(batch.samples);
  }
  if (feature == "tokens" || feature == "samples*length") {
    Op over_tokens = op;
    // An image's patches are rows of their own, whatever the batch's tokens are.
    const bool own_rows = op.rows != RowUnit::Tokens && op.each > 1;
    over_tokens.rows = own_rows ? op.rows : RowUnit::Tokens;
    return rows_of(over_tokens, batch);
  }
  if (feature == "tokens*length" || feature == "samples*length^2") {
    return squared_lengths(op, batch);
  }
  if (feature == "padded*length^2") {
    return !op.varlen && batch.has_padding() ? squared_lengths(op, batch) : 0;
  }
  if (feature == "elements") {
    return rows_of(op, batch) * static_cast<double>(op.n);
  }
  if (feature == "empty_blocks") {
    return op.varlen ? static_cast<double>(op.heads * batch.empty_blocks) : 0;
  }
  if (feature == "flops") {
    return op_flops(op, batch);
  }
  if (feature == "bytes") {
    return op_bytes(op, batch);
  }
  if (const auto tile = parse_tile_feature(feature)) {
    if (tile->is_waves() && processors <= 0) {
      throw InputError("the feature '{}' needs a number of processors", feature);
    }
    return tile_feature_value(
        *tile,
        {rows_of(op, batch), ratio_variable(op, batch), static_cast<double>(op.n), processors});
  }
  throw InputError(unknown_name("feature", feature, kFeatures));
}

}  // namespace stepsim
