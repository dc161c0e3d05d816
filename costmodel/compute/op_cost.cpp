#include "costmodel/compute/op_cost.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "costmodel/base/input_error.h"
#include "costmodel/compute/tile_feature.h"

namespace stepsim {
namespace {

using Knots = std::vector<std::pair<double, double>>;

const std::array<std::string, 10> kFeatures = {"1",
                                               "samples",
                                               "tokens",
                                               "elements",
                                               "samples*length",
                                               "samples*length^2",
                                               "tokens*length",
                                               "empty_blocks",
                                               "flops",
                                               "bytes"};

double squared_lengths(const Op& op, const BatchShape& batch) {
  const auto length = static_cast<double>(batch.max_length);
  return op.varlen ? batch.sum_squares : static_cast<double>(batch.samples) * length * length;
}

/// A table's value, with the fitted slope beyond its end.
double table_value(const Knots& knots, double x) {
  if (knots.empty()) {
    return 0;
  }
  const auto& [last_x, last_seconds] = knots.back();
  return x > last_x ? last_seconds + tail_slope(knots) * (x - last_x) : interpolate(knots, x);
}

double feature_sum(const OpCost& cost, const Op& op, const BatchShape& batch) {
  double seconds = 0;
  for (std::size_t i = 0; i < cost.features.size(); ++i) {
    seconds += cost.coefficients[i] * feature_value(cost.features[i], op, batch, cost.processors);
  }
  return std::max(seconds, 0.0);
}

/// The ratio at x: constant outside its knots.
double ratio_value(const Knots& knots, double x) {
  return knots.empty() ? 1 : interpolate(knots, std::min(x, knots.back().first));
}

double roofline_ratio(const GemmRatio& ratio, const Op& op, const BatchShape& batch) {
  return gemm_ratio(ratio,
                    std::max(rows_of(op, batch), 1.0),
                    static_cast<double>(op.n),
                    static_cast<double>(op.k));
}

/// The slope b of b x with the least squared relative residuals.
double proportional_slope(std::span<const std::pair<double, double>> knots) {
  double sum = 0;
  double squares = 0;
  for (const auto& [x, seconds] : knots) {
    if (seconds > 0) {
      sum += x / seconds;
      squares += x / seconds * (x / seconds);
    }
  }
  return squares > 0 ? sum / squares : 0;
}

/// The variable whose measured range the file states.
double range_variable(const OpCost& cost, const Op& op, const BatchShape& batch) {
  return cost.form == CostForm::PerSampleTable ? static_cast<double>(batch.max_length)
                                               : variable_of(op, batch);
}

}  // namespace

double variable_of(const Op& op, const BatchShape& batch) {
  return op.rows == Rows::Elements ? static_cast<double>(op.n) : rows_of(op, batch);
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
  return std::any_of(features.begin(), features.end(), [](const std::string& feature) {
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
    over_tokens.rows = Rows::Tokens;
    return rows_of(over_tokens, batch);
  }
  if (feature == "tokens*length" || feature == "samples*length^2") {
    return squared_lengths(op, batch);
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
      throw InputError(fmt::format("the feature '{}' needs a number of processors", feature));
    }
    return tile_feature_value(
        *tile,
        {rows_of(op, batch), ratio_variable(op, batch), static_cast<double>(op.n), processors});
  }
  throw InputError(unknown_name("feature", feature, kFeatures));
}

double interpolate(const Knots& knots, double x) {
  if (knots.empty()) {
    return 0;
  }
  if (knots.size() == 1 || x <= knots.front().first) {
    return knots.front().second;
  }
  const auto above =
      std::upper_bound(knots.begin() + 1, knots.end() - 1, x, [](double value, const auto& knot) {
        return value < knot.first;
      });
  const auto& [x0, y0] = *(above - 1);
  const auto& [x1, y1] = *above;
  return y0 + (y1 - y0) * ((x - x0) / (x1 - x0));
}

double relative_slope(std::span<const std::pair<double, double>> knots) {
  // Minimise sum ((a + b x) / t - 1)^2: normal equations with weights w = 1 / t^2, in x relative
  // to its weighted mean so that large byte counts lose no digits.
  double weights = 0;
  double mean_x = 0;
  double mean_t = 0;
  for (const auto& [x, seconds] : knots) {
    if (seconds > 0) {
      const double weight = 1 / (seconds * seconds);
      weights += weight;
      mean_x += weight * x;
      mean_t += weight * seconds;
    }
  }
  if (weights == 0) {
    return 0;
  }
  mean_x /= weights;
  mean_t /= weights;
  double xx = 0;
  double xt = 0;
  for (const auto& [x, seconds] : knots) {
    if (seconds > 0) {
      const double weight = 1 / (seconds * seconds);
      xx += weight * (x - mean_x) * (x - mean_x);
      xt += weight * (x - mean_x) * (seconds - mean_t);
    }
  }
  return xx > 0 ? std::max(xt / xx, 0.0) : 0.0;
}

double tail_slope(const Knots& knots, double window, std::size_t fewest) {
  if (knots.empty()) {
    return 0;
  }
  const double last_x = knots.back().first;
  if (knots.size() == 1) {
    return last_x > 0 ? knots.back().second / last_x : 0;
  }
  std::size_t first = knots.size() - std::min(fewest, knots.size());
  while (first > 0 && knots[first - 1].first >= last_x / window) {
    --first;
  }
  const auto tail = std::span(knots).subspan(first);
  // The line through the origin is the best one whenever the best without bounds starts below it;
  // the steeper of the two slopes belongs to that one.
  return std::min(relative_slope(tail), proportional_slope(tail));
}

double shared_error(const FitErrors& errors, int samples) {
  const double scattered =
      errors.random.value_or(0) / std::sqrt(std::max(1.0, static_cast<double>(samples)));
  return std::hypot(errors.bias.value_or(errors.random.value_or(0)), scattered);
}

Cost evaluate(const OpCost& cost, const Op& op, const BatchShape& batch) {
  Cost result;
  switch (cost.form) {
    case CostForm::Table:
      result.seconds = table_value(cost.knots, variable_of(op, batch));
      break;
    case CostForm::PerSampleTable:
      if (op.varlen) {
        throw InputError(
            fmt::format("{} {}: a table over the padded length cannot price attention without "
                        "padding; it needs a fit on features",
                        name_of(op.op_class),
                        name_of(op.pass)));
      }
      result.seconds = static_cast<double>(batch.samples) *
                       table_value(cost.knots, static_cast<double>(batch.max_length));
      break;
    case CostForm::Features:
    case CostForm::Roofline:
      result.seconds = feature_sum(cost, op, batch);
      break;
    case CostForm::FeaturesRatio:
      result.seconds =
          feature_sum(cost, op, batch) * ratio_value(cost.knots, ratio_variable(op, batch));
      break;
    case CostForm::RooflineRatio:
      result.seconds = feature_sum(cost, op, batch) * roofline_ratio(cost.gemm_ratio, op, batch);
      break;
  }
  const double inside = cost.errors.random.value_or(0);
  result.relative_error = inside;
  result.shared_error = shared_error(cost.errors, cost.samples);
  const double x = range_variable(cost, op, batch);
  if (cost.range_hi > 0 && x > cost.range_hi) {
    result.extrapolation = x / cost.range_hi;
    result.relative_error =
        std::max(cost.errors.beyond.value_or(inside), inside) * result.extrapolation;
    result.shared_error = result.relative_error;
  }
  return result;
}

}  // namespace stepsim
