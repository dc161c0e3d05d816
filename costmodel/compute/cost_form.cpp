#include "costmodel/compute/cost_form.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/row_named.h"
#include "costmodel/compute/cost_features.h"
#include "costmodel/compute/op_cost.h"
#include "costmodel/compute/tile_feature.h"
#include "costmodel/io/json_numbers.h"

namespace stepsim {
namespace {

/// Features of tiles came with version 2 of the format.
constexpr int kTileVersion = 2;

// ---- What several forms hold: knots, features.

void refuse(JsonReader& entry, std::string_view key, CostForm form) {
  if (entry.has(key)) {
    entry.fail(key, fmt::format("has no place in the form '{}'", form_row(form).name));
  }
}

/// What the first number of a knot counts: "length", "elements", or "rows" (the op's tokens or
/// samples).
std::string_view variable_label(const OpCost& cost) {
  const bool ratio_over_length =
      cost.form == CostForm::FeaturesRatio && cost.op_class == OpClass::Attention;
  if (form_row(cost.form).over_length || ratio_over_length) {
    return "length";
  }
  switch (cost.op_class) {
    case OpClass::ZeroGradient:
    case OpClass::GradientCopyIn:
    case OpClass::GradientCopyOut:
    case OpClass::Optimizer:
      return "elements";
    default:
      return "rows";
  }
}

void read_table(JsonReader& entry, OpCost& cost) {
  refuse(entry, "features", cost.form);
  refuse(entry, "coefficients_s", cost.form);
  cost.knots = read_knots(entry, "knots_s");
  const std::string_view label = variable_label(cost);
  if (entry.text_or("variable", std::string(label)) != label) {
    entry.fail("variable", fmt::format("the knots of this entry are over {}", label));
  }
}

void write_table(const OpCost& cost, Json& entry) {
  entry["variable"] = variable_label(cost);
  entry["knots_s"] = knots_json(cost.knots);
}

void read_sum(JsonReader& entry,
              OpCost& cost,
              std::span<const std::string> known,
              bool tiles_allowed) {
  refuse(entry, "knots_s", cost.form);
  cost.features = entry.texts("features");
  cost.coefficients = entry.numbers("coefficients_s");
  if (cost.features.empty() || cost.features.size() != cost.coefficients.size()) {
    entry.fail(
        "coefficients_s",
        fmt::format(
            "{} coefficients for {} features", cost.coefficients.size(), cost.features.size()));
  }
  for (std::size_t i = 0; i < cost.features.size(); ++i) {
    const std::string& feature = cost.features[i];
    const bool tile = tiles_allowed && parse_tile_feature(feature);
    if (!tile && std::ranges::find(known, feature) == known.end()) {
      entry.fail("features", i, unknown_name("feature", feature, known));
    }
  }
}

void write_sum(const OpCost& cost, Json& entry) {
  entry["features"] = cost.features;
  entry["coefficients_s"] = numbers_json(cost.coefficients);
}

double sum_of_features(const OpCost& cost, const Op& op, const BatchShape& batch) {
  double seconds = 0;
  for (std::size_t i = 0; i < cost.features.size(); ++i) {
    seconds += cost.coefficients[i] * feature_value(cost.features[i], op, batch, cost.processors);
  }
  return std::max(seconds, 0.0);
}

void read_processors(JsonReader& entry, OpCost& cost) {
  if (needs_processors(cost.features)) {
    cost.processors = entry.integer_in("processors", 1, kMaxInt);
  }
}

void write_processors(const OpCost& cost, Json& entry) {
  if (needs_processors(cost.features)) {
    entry["processors"] = cost.processors;
  }
}

// ---- The forms, in the order of the table below.

double table_seconds(const OpCost& cost, const Op& op, const BatchShape& batch) {
  return table_value(cost.knots, variable_of(op, batch));
}

double per_sample_seconds(const OpCost& cost, const Op& op, const BatchShape& batch) {
  if (op.varlen) {
    throw InputError(
        "{} {}: a table over the padded length cannot price attention without "
        "padding; it needs a fit on features",
        name_of(op.op_class),
        name_of(op.pass));
  }
  return static_cast<double>(batch.samples) *
         table_value(cost.knots, static_cast<double>(batch.max_length));
}

void read_features(JsonReader& entry, OpCost& cost) {
  read_sum(entry, cost, feature_names(), true);
  read_processors(entry, cost);
}

void write_features(const OpCost& cost, Json& entry) {
  write_sum(cost, entry);
  write_processors(cost, entry);
}

void read_roofline(JsonReader& entry, OpCost& cost) {
  static const std::vector<std::string> kKnown = {"1", "flops", "bytes"};
  read_sum(entry, cost, kKnown, false);
}

double features_ratio_seconds(const OpCost& cost, const Op& op, const BatchShape& batch) {
  const double sum = sum_of_features(cost, op, batch);
  const double x = ratio_variable(op, batch);
  return cost.knots.empty() ? sum
                            : sum * interpolate(cost.knots, std::min(x, cost.knots.back().first));
}

void read_features_ratio(JsonReader& entry, OpCost& cost) {
  read_sum(entry, cost, feature_names(), true);
  cost.knots = read_knots(entry, "ratio_knots");
  read_processors(entry, cost);
}

void write_features_ratio(const OpCost& cost, Json& entry) {
  write_sum(cost, entry);
  entry["variable"] = variable_label(cost);
  entry["ratio_knots"] = knots_json(cost.knots);
  write_processors(cost, entry);
}

double roofline_ratio_seconds(const OpCost& cost, const Op& op, const BatchShape& batch) {
  return sum_of_features(cost, op, batch) * gemm_ratio(cost.gemm_ratio,
                                                       std::max(rows_of(op, batch), 1.0),
                                                       static_cast<double>(op.n),
                                                       static_cast<double>(op.k));
}

/// A number, or several in an array.
std::vector<std::int64_t> read_processor_counts(JsonReader& reader) {
  if (!reader.get("processors").is_array()) {
    return {reader.integer_in("processors", 1, kMaxInt)};
  }
  std::vector<std::int64_t> counts = reader.integers("processors");
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] < 1 || counts[i] > kMaxInt) {
      reader.fail("processors", i, fmt::format("{} is not from 1 to {}", counts[i], kMaxInt));
    }
  }
  if (counts.empty()) {
    reader.fail("processors", "expected at least one number");
  }
  return counts;
}

void read_roofline_ratio(JsonReader& entry, OpCost& cost) {
  read_roofline(entry, cost);
  JsonReader reader = entry.object("gemm_ratio");
  GemmRatio& ratio = cost.gemm_ratio;
  ratio.processors = read_processor_counts(reader);
  ratio.weights = reader.numbers("weights");
  const std::size_t width = ratio.processors.size() * gemm_ratio_width();
  if (ratio.weights.size() != width) {
    reader.fail("weights", fmt::format("{} weights for {} features", ratio.weights.size(), width));
  }
  ratio.m = reader.range("m_range", 1);
  ratio.n = reader.range("n_range", 1);
  ratio.k = reader.range("k_range", 1);
  if (cost.op_class != OpClass::Gemm) {
    entry.fail("form", "roofline_ratio prices a gemm only");
  }
}

void write_roofline_ratio(const OpCost& cost, Json& entry) {
  write_sum(cost, entry);
  const GemmRatio& ratio = cost.gemm_ratio;
  const bool one = ratio.processors.size() == 1;
  entry["gemm_ratio"] = {
      {"processors", one ? Json(ratio.processors.front()) : Json(ratio.processors)},
      {"m_range", range_json(ratio.m)},
      {"n_range", range_json(ratio.n)},
      {"k_range", range_json(ratio.k)},
      {"weights", numbers_json(ratio.weights)}};
}

// ---- The table.

// clang-format off
/// form, name, title, since version, over length?, seconds, read, write
constexpr std::array<CostFormRow, 6> kForms = {{
    {CostForm::Table, "table", "table", 1, false,
     table_seconds, read_table, write_table},
    {CostForm::PerSampleTable, "per_sample_table", "per-sample table", 1, true,
     per_sample_seconds, read_table, write_table},
    {CostForm::Features, "features", "features", 1, false,
     sum_of_features, read_features, write_features},
    {CostForm::Roofline, "roofline", "roofline", 1, false,
     sum_of_features, read_roofline, write_sum},
    {CostForm::FeaturesRatio, "features_ratio", "features x ratio", 2, false,
     features_ratio_seconds, read_features_ratio, write_features_ratio},
    {CostForm::RooflineRatio, "roofline_ratio", "roofline x ratio", 2, false,
     roofline_ratio_seconds, read_roofline_ratio, write_roofline_ratio},
}};
// clang-format on

constexpr bool in_order_of_the_enum() {
  for (std::size_t i = 0; i < kForms.size(); ++i) {
    if (static_cast<std::size_t>(kForms[i].form) != i) {
      return false;
    }
  }
  return true;
}
static_assert(in_order_of_the_enum());

}  // namespace

std::span<const CostFormRow> cost_form_rows() {
  return kForms;
}

const CostFormRow& form_row(CostForm form) {
  return kForms.at(static_cast<std::size_t>(form));
}

CostForm parse_cost_form(std::string_view name) {
  return row_named(kForms, &CostFormRow::name, "form", name).form;
}

double range_variable(CostForm form, const Op& op, const BatchShape& batch) {
  return form_row(form).over_length ? static_cast<double>(batch.max_length)
                                    : variable_of(op, batch);
}

int since_version(const OpCost& cost) {
  const int tiles = needs_processors(cost.features) ? kTileVersion : 1;
  const bool pads = std::ranges::count(cost.features, "padded*length^2") > 0;
  return std::max({form_row(cost.form).since_version, tiles, pads ? kPaddingVersion : 1});
}

}  // namespace stepsim
