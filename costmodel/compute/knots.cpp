#include "costmodel/compute/knots.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"
#include "costmodel/compute/cost_model.h"
#include "costmodel/io/json_numbers.h"

namespace stepsim {
namespace {

/// The slope b of the line b x with the least squared relative residuals.
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

}  // namespace

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

double table_value(const Knots& knots, double x) {
  if (knots.empty()) {
    return 0;
  }
  const auto& [last_x, last_seconds] = knots.back();
  return x > last_x ? last_seconds + tail_slope(knots) * (x - last_x) : interpolate(knots, x);
}

Knots read_knots(JsonReader& reader, std::string_view key) {
  const Json& list = reader.get(key);
  if (!list.is_array() || list.empty()) {
    reader.fail(key, "expected an array of at least one knot [x, seconds]");
  }
  Knots knots;
  for (const Json& knot : list) {
    const std::size_t i = knots.size();
    if (!knot.is_array() || knot.size() != 2 || !knot[0].is_number() || !knot[1].is_number()) {
      reader.fail(key, i, "expected a knot [x, seconds]");
    }
    const std::pair<double, double> value(knot[0].get<double>(), knot[1].get<double>());
    if (value.first < 0 || value.second < 0) {
      reader.fail(key, i, fmt::format("[{}, {}] is negative", value.first, value.second));
    }
    if (key == "knots_s" && value.second > kMaxCostSeconds) {
      reader.fail(key, i, fmt::format("{} s is too long; expected at most 1 hour", value.second));
    }
    if (i > 0 && value.first <= knots.back().first) {
      reader.fail(
          key, i, fmt::format("knots must ascend, {} follows {}", value.first, knots.back().first));
    }
    knots.push_back(value);
  }
  return knots;
}

Json knots_json(const Knots& knots) {
  return mapped(knots, [](const auto& knot) {
    return Json::array({finite(knot.first), finite(knot.second)});
  });
}

}  // namespace stepsim
