#include "calibrate/samples/grid.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>

#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

constexpr std::int64_t kStep = 16;        ///< Widest vector of fp32.
constexpr std::int64_t kPaddingStep = 8;  ///< From here on lengths count as padded to a multiple.
constexpr double kWiden = 1.25;

/// `count` whole numbers from lo to hi, spaced geometrically, without repeats; one number is the
/// geometric mean.
std::vector<std::int64_t> geometric(std::int64_t lo, std::int64_t hi, int count) {
  std::vector<std::int64_t> values;
  const double ratio = static_cast<double>(hi) / static_cast<double>(lo);
  for (int i = 0; i < count; ++i) {
    const double part = count == 1 ? 0.5 : static_cast<double>(i) / (count - 1);
    values.push_back(std::llround(static_cast<double>(lo) * std::pow(ratio, part)));
  }
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

/// A length of the grid, and the aligned one beside it; 0 = none.
struct GridLength {
  std::int64_t length = 0;
  std::int64_t aligned = 0;
};

std::vector<GridLength> grid_lengths(const GridBox& box, int count, std::int64_t longest) {
  constexpr std::array<std::int64_t, 12> kPast = {5, 11, 2, 14, 7, 9, 3, 13, 6, 10, 1, 15};
  const std::int64_t lo = box.min_length;
  const std::int64_t hi = longest > 0 ? std::min(box.max_length, longest) : box.max_length;
  const bool padded = box.length_step >= kPaddingStep;
  const std::int64_t step = padded ? box.length_step : kStep;
  std::vector<GridLength> lengths;
  const std::vector<std::int64_t> ideal = geometric(lo, std::max(lo, hi), count);
  for (std::size_t i = 0; i < ideal.size(); ++i) {
    const bool inner = i > 0 && i + 1 < ideal.size();
    // The longest of many data sets is a cap, and aligned: its neighbours are not.
    if (i > 0 && !inner && !padded && hi % step == 0 && hi - step > lo) {
      lengths.push_back({hi - kPast[i % kPast.size()], hi});
      continue;
    }
    const std::int64_t past = padded || !inner ? 0 : kPast[i % kPast.size()];
    const std::int64_t base = (ideal[i] - past + step / 2) / step * step;
    const std::int64_t length = inner ? std::clamp(base + past, lo, hi) : ideal[i];
    const std::int64_t aligned = padded ? length + step : base;
    const bool partner = i % 4 == 0 && aligned != length && aligned >= lo && aligned <= hi;
    lengths.push_back({length, partner ? aligned : 0});
  }
  return lengths;
}

struct CountRange {
  std::int64_t lo = 0;
  std::int64_t hi = 0;
};

/// Sample counts that the widened box allows at this length; hi < lo when there are none.
CountRange count_range(const GridBox& box, std::int64_t length) {
  const double l = static_cast<double>(length);
  const auto lo =
      static_cast<std::int64_t>(std::ceil(static_cast<double>(box.min_tokens) / kWiden / l));
  const auto hi =
      static_cast<std::int64_t>(std::floor(static_cast<double>(box.max_tokens) * kWiden / l));
  return {std::max<std::int64_t>({1, box.min_samples, lo}), std::min(box.max_samples, hi)};
}

void add_points(const GridBox& box, std::int64_t length, int most, std::vector<GridPoint>* points) {
  const CountRange range = count_range(box, length);
  if (range.hi < range.lo) {
    return;
  }
  const double spread = static_cast<double>(range.hi) / static_cast<double>(range.lo);
  const int enough =
      range.hi == range.lo ? 1 : 2 + static_cast<int>(std::log(spread) / std::log(1.6));
  for (const std::int64_t samples : geometric(range.lo, range.hi, std::min(most, enough))) {
    points->push_back({samples, length});
  }
}

}  // namespace

std::uint64_t next_random(std::uint64_t* state) {
  std::uint64_t z = (*state += 0x9E3779B97F4A7C15ULL);
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31U);
}

GridBox box_of_plans(std::span<const Plan> plans) {
  if (plans.empty() || plans.front().micro_batches.empty()) {
    throw InputError("no batches to measure for: give --plan files with at least one step");
  }
  const BatchShape first = plans.front().micro_batches.front().shape();
  GridBox box{first.max_length,
              first.max_length,
              first.samples,
              first.samples,
              first.padded_tokens(),
              first.padded_tokens(),
              first.max_length,
              false};
  for (const Plan& plan : plans) {
    if (plan.model != plans.front().model || plan.ranks != plans.front().ranks) {
      throw InputError(
          "the plans of policies '{}' and '{}' differ in model or ranks; measure them apart",
          plans.front().policy,
          plan.policy);
    }
    for (const MicroBatch& batch : plan.micro_batches) {
      const BatchShape shape = batch.shape();
      box.length_step = std::gcd(box.length_step, shape.max_length);
      box.min_length = std::min(box.min_length, shape.max_length);
      box.max_length = std::max(box.max_length, shape.max_length);
      box.min_samples = std::min(box.min_samples, shape.samples);
      box.max_samples = std::max(box.max_samples, shape.samples);
      box.min_tokens = std::min(box.min_tokens, shape.padded_tokens());
      box.max_tokens = std::max(box.max_tokens, shape.padded_tokens());
      box.padded = box.padded || shape.has_padding();
    }
  }
  return box;
}

GridBox box_of_limits(const TransformerConfig& model,
                      std::int64_t max_length,
                      std::int64_t max_tokens) {
  if (max_length < 1 || max_tokens < 1) {
    throw InputError("--max-length and --max-tokens must be 1 or more");
  }
  if (model.max_length > 0 && max_length > model.max_length) {
    throw InputError(
        "--max-length {}: {} accepts at most {} tokens", max_length, model.name, model.max_length);
  }
  if (max_tokens < max_length) {
    throw InputError(
        "--max-tokens {}: less than one sample of --max-length {}", max_tokens, max_length);
  }
  GridBox box;
  box.min_length = std::min(kStep, max_length);
  box.max_length = max_length;
  box.min_samples = 1;
  box.max_samples = std::max<std::int64_t>(1, max_tokens / box.min_length);
  box.min_tokens = std::max(box.min_length, std::min(max_length, max_tokens / 16));
  box.max_tokens = max_tokens;
  return box;
}

std::vector<GridPoint> make_grid(const GridBox& box,
                                 const GridDensity& density,
                                 std::int64_t longest) {
  std::vector<GridPoint> points;
  std::set<std::int64_t> seen;
  for (const GridLength& entry : grid_lengths(box, density.lengths, longest)) {
    if (seen.insert(entry.length).second) {
      add_points(box, entry.length, density.sample_counts, &points);
    }
    if (entry.aligned > 0 && seen.insert(entry.aligned).second) {
      add_points(box, entry.aligned, (density.sample_counts + 1) / 3, &points);
    }
  }
  return points;
}

namespace {

/// Near `samples` and in the box, if that has one: a multiple of 8, or below that a power of two,
/// so that lengths in small steps make whole tiles.
std::int64_t round_samples(std::int64_t samples, const GridBox& box) {
  std::int64_t round = (samples + 4) / 8 * 8;
  for (std::int64_t power = 4; round == 0; power /= 2) {
    round = samples >= power ? power : 0;
  }
  return round >= box.min_samples && round <= box.max_samples ? round : samples;
}

}  // namespace

std::vector<GridPoint> in_tile_pairs(const std::vector<GridPoint>& points, const GridBox& box) {
  constexpr std::int64_t kTile = 128;
  std::vector<GridPoint> pairs;
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  const auto add = [&](std::int64_t samples, std::int64_t length) {
    if (seen.emplace(samples, length).second) {
      pairs.push_back({samples, length});
    }
  };
  for (const GridPoint& point : points) {
    const std::int64_t samples = round_samples(point.samples, box);
    const std::int64_t step = std::lcm(kTile / std::gcd(kTile, samples), box.length_step);
    const std::int64_t whole = point.length / step * step;
    if (whole < box.min_length) {
      add(point.samples, point.length);
      continue;
    }
    add(samples, whole);
    if (whole + box.length_step <= box.max_length) {
      add(samples, whole + box.length_step);
    }
  }
  return pairs;
}

std::vector<std::int64_t> point_lengths(const GridPoint& point, bool padded) {
  if (!padded) {
    return std::vector<std::int64_t>(static_cast<std::size_t>(point.samples), point.length);
  }
  std::vector<std::int64_t> lengths = {point.length};
  std::uint64_t state = static_cast<std::uint64_t>(point.length) * 1000003U +
                        static_cast<std::uint64_t>(point.samples);
  const std::int64_t shortest = (point.length * 3 + 4) / 5;
  const auto span = static_cast<std::uint64_t>(point.length - shortest + 1);
  while (static_cast<std::int64_t>(lengths.size()) < point.samples) {
    lengths.push_back(shortest + static_cast<std::int64_t>(next_random(&state) % span));
  }
  return lengths;
}

}  // namespace stepsim
