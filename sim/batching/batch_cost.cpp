#include "sim/batching/batch_cost.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "costmodel/base/input_error.h"

namespace stepsim {

namespace {

constexpr int kPoints = 24;

/// Ascending whole numbers from 1 to `most`, about evenly spaced on a logarithmic scale.
std::vector<double> grid(std::int64_t most) {
  std::vector<double> points;
  const double step = std::log(static_cast<double>(most)) / (kPoints - 1);
  for (int i = 0; i < kPoints; ++i) {
    const double point = std::round(std::exp(step * i));
    if (points.empty() || point > points.back()) {
      points.push_back(point);
    }
  }
  return points;
}

/// Where x lies: index of the point below, and the share of the way to the next.
std::pair<std::size_t, double> place(const std::vector<double>& points, double x) {
  if (x >= points.back()) {
    return {points.size() - 1, 0.0};
  }
  const auto above = std::upper_bound(points.begin(), points.end(), x);
  const auto low = static_cast<std::size_t>(above - points.begin()) - 1;
  return {low, (x - points[low]) / (points[low + 1] - points[low])};
}

}  // namespace

BatchCost::BatchCost(const std::function<double(const BatchShape&)>& seconds,
                     std::int64_t most_samples,
                     std::int64_t longest)
    : samples_(grid(most_samples)), lengths_(grid(longest)) {
  for (const double samples : samples_) {
    for (const double length : lengths_) {
      BatchShape shape;
      shape.samples = static_cast<std::int64_t>(samples);
      shape.max_length = static_cast<std::int64_t>(length);
      shape.useful_tokens = shape.padded_tokens();
      shape.sum_squares = samples * length * length;
      double cost = std::numeric_limits<double>::infinity();
      try {
        cost = seconds(shape);
      } catch (const InputError&) {
        if (seconds_.empty()) {
          throw;
        }
      }
      seconds_.push_back(cost);
    }
  }
  for (std::size_t row = 0; row < samples_.size(); ++row) {
    for (std::size_t column = 0; column < lengths_.size(); ++column) {
      double& cost = seconds_[row * lengths_.size() + column];
      cost = std::max(
          {cost, row > 0 ? at(row - 1, column) : 0.0, column > 0 ? at(row, column - 1) : 0.0});
    }
  }
}

double BatchCost::operator()(std::int64_t samples, std::int64_t longest) const {
  if (samples <= 0) {
    return 0;
  }
  const auto tokens = static_cast<double>(samples) * static_cast<double>(longest);
  if (seconds_.empty()) {
    return tokens;
  }
  const double x = std::min(static_cast<double>(samples), samples_.back());
  const double y = std::min(static_cast<double>(longest), lengths_.back());
  const auto [row, right] = place(samples_, x);
  const auto [column, up] = place(lengths_, y);
  // Points without weight are left out, since infinity times zero is not a number. The bindings are
  // captured as new variables: Clang 14 cannot capture a structured binding itself.
  const auto along = [this, column = column, up = up](std::size_t line) {
    return up > 0 ? at(line, column) * (1 - up) + at(line, column + 1) * up : at(line, column);
  };
  const double inside = right > 0 ? along(row) * (1 - right) + along(row + 1) * right : along(row);
  return inside * (tokens / (x * y));
}

}  // namespace stepsim
