#include "calibrate/samples/plan_shapes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "calibrate/samples/statistics.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"

namespace stepsim {
namespace {

/// A shape without the lengths of its samples.
using ShapeSize = std::pair<std::int64_t, std::int64_t>;

ShapeSize size_of(const MicroBatch& batch) {
  const BatchShape shape = batch.shape();
  return {shape.samples, shape.max_length};
}

/// The larger of the two ratios between two shapes, as a logarithm.
double log_distance(const ShapeSize& a, const ShapeSize& b) {
  const auto apart = [](std::int64_t x, std::int64_t y) {
    return std::abs(std::log(static_cast<double>(x) / static_cast<double>(y)));
  };
  return std::max(apart(a.first, b.first), apart(a.second, b.second));
}

/// The batches that hold samples, each shape once: the first batch of that shape.
std::map<ShapeSize, PlanShape> shapes_of(std::span<const Plan> plans) {
  std::map<ShapeSize, PlanShape> shapes;
  for (const Plan& plan : plans) {
    for (const MicroBatch& batch : plan.micro_batches) {
      const ShapeSize size = size_of(batch);
      if (size.first > 0) {
        shapes.try_emplace(size,
                           PlanShape{size.first, size.second, batch.attended(), plan.policy, 1});
      }
    }
  }
  return shapes;
}

/// A chosen shape, and how far it is.
struct NearestShape {
  std::size_t place = 0;
  double distance = std::numeric_limits<double>::infinity();
};

NearestShape nearest_to(const ShapeSize& size, std::span<const PlanShape> shapes) {
  NearestShape nearest;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const double distance = log_distance(size, {shapes[i].samples, shapes[i].length});
    if (distance < nearest.distance) {
      nearest = {i, distance};
    }
  }
  return nearest;
}

/// [batch] of all plans, those that hold samples.
std::vector<NearestShape> nearest_shapes(std::span<const PlanShape> shapes,
                                         std::span<const Plan> plans) {
  std::vector<NearestShape> nearest;
  for (const Plan& plan : plans) {
    for (const MicroBatch& batch : plan.micro_batches) {
      if (size_of(batch).first > 0) {
        nearest.push_back(nearest_to(size_of(batch), shapes));
      }
    }
  }
  return nearest;
}

void set_runs(std::span<const Plan> plans, std::vector<PlanShape>& shapes) {
  std::vector<double> batches(shapes.size(), 0.0);
  const std::vector<NearestShape> nearest = nearest_shapes(shapes, plans);
  for (const NearestShape& one : nearest) {
    ++batches[one.place];
  }
  const double mean = static_cast<double>(nearest.size()) / static_cast<double>(shapes.size());
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    shapes[i].runs = std::clamp(static_cast<int>(std::lround(batches[i] / mean)), 1, kMostRuns);
  }
}

/// Shapes that have to be measured, in the order of importance.
class Chooser {
 public:
  explicit Chooser(const std::map<ShapeSize, PlanShape>& shapes) {
    for (const auto& [size, shape] : shapes) {
      left_.push_back(size);
      nearest_.push_back(std::numeric_limits<double>::infinity());
    }
  }

  void take(std::size_t place) {
    for (std::size_t i = 0; i < left_.size(); ++i) {
      nearest_[i] = std::min(nearest_[i], log_distance(left_[i], left_[place]));
    }
    if (std::ranges::find(chosen_, left_[place]) == chosen_.end()) {
      chosen_.push_back(left_[place]);
    }
  }

  /// The shape for which `value` is largest.
  template <typename Value>
  void take_largest(Value value) {
    take(static_cast<std::size_t>(std::ranges::max_element(left_, {}, value) - left_.begin()));
  }

  void take_corners() {
    const auto attention = [](const ShapeSize& s) { return s.first * s.second * s.second; };
    const auto tokens = [](const ShapeSize& s) { return s.first * s.second; };
    take_largest(attention);
    take_largest(tokens);
    take_largest([](const ShapeSize& s) { return s.first; });
    take_largest([](const ShapeSize& s) { return s.second; });
    take_largest([&](const ShapeSize& s) { return -attention(s); });
    take_largest([&](const ShapeSize& s) { return -tokens(s); });
    take_largest([](const ShapeSize& s) { return -s.first; });
    take_largest([](const ShapeSize& s) { return -s.second; });
  }

  /// The batch of the plan with the median of tokens x length.
  void take_middle(const Plan& plan) {
    std::vector<ShapeSize> sizes;
    for (const MicroBatch& batch : plan.micro_batches) {
      if (size_of(batch).first > 0) {
        sizes.push_back(size_of(batch));
      }
    }
    if (sizes.empty()) {
      return;
    }
    const auto middle = sizes.begin() + std::ssize(sizes) / 2;
    std::ranges::nth_element(sizes, middle, {}, [](const ShapeSize& s) {
      return std::pair(s.first * s.second * s.second, s);
    });
    take(static_cast<std::size_t>(std::ranges::find(left_, *middle) - left_.begin()));
  }

  /// The shape that is farthest from all chosen; false when all are chosen.
  bool take_farthest() {
    const auto farthest = std::ranges::max_element(nearest_);
    if (!(*farthest > 0)) {
      return false;
    }
    take(static_cast<std::size_t>(farthest - nearest_.begin()));
    return true;
  }

  [[nodiscard]] const std::vector<ShapeSize>& chosen() const { return chosen_; }

 private:
  std::vector<ShapeSize> left_;  ///< All shapes.
  std::vector<double> nearest_;  ///< [left_] The distance to the nearest chosen shape.
  std::vector<ShapeSize> chosen_;
};

}  // namespace

std::vector<PlanShape> choose_plan_shapes(std::span<const Plan> plans, std::size_t count) {
  for (const Plan& plan : plans) {
    if (plan.ranks != plans.front().ranks) {
      throw InputError("the plans of policies '{}' and '{}' differ in ranks",
                       printable(plan.policy),
                       printable(plans.front().policy));
    }
  }
  const std::map<ShapeSize, PlanShape> shapes = shapes_of(plans);
  if (shapes.empty()) {
    throw InputError("no batches to choose from: give plans with at least one step");
  }
  Chooser chooser(shapes);
  chooser.take_corners();
  for (const Plan& plan : plans) {
    if (chooser.chosen().size() < count) {
      chooser.take_middle(plan);
    }
  }
  while (chooser.chosen().size() < count && chooser.take_farthest()) {
  }
  std::vector<PlanShape> chosen =
      mapped(chooser.chosen(), [&](const ShapeSize& size) { return shapes.at(size); });
  std::ranges::stable_sort(chosen, std::greater{}, [](const PlanShape& shape) {
    return std::pair(shape.tokens() * shape.length, shape.tokens());
  });
  set_runs(plans, chosen);
  return chosen;
}

ShapeDistance distance_to(std::span<const PlanShape> shapes, std::span<const Plan> plans) {
  const auto distances = mapped(nearest_shapes(shapes, plans), &NearestShape::distance);
  return {std::exp(median(distances)), std::exp(std::ranges::max(distances))};
}

}  // namespace stepsim
