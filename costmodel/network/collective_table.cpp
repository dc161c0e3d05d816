#include "costmodel/network/collective_table.h"

#include <algorithm>
#include <cmath>

#include "costmodel/base/input_error.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/compute/knots.h"

namespace stepsim {
namespace {

constexpr double kFlatFloorBytes = 32 * 1024;
/// The tail's slope comes from the knots of the last octave, at least three. For sizes a factor of
/// 2 apart these are the last three; denser sizes give more, since neighbours differ by noise only.
constexpr double kTailWindow = 2;
constexpr std::size_t kTailKnots = 3;

/// Mean relative error of a size below the measured ones for each halving: on the published sweeps
/// of tests/calibrate/fit/collective_forms_test.cpp it is 14 to 24 % at half the smallest size, 27
/// to 47 % at a quarter, 42 to 60 % at an eighth.
constexpr double kErrorOfHalving = 0.18;

/// A time below the first knot: on the line through the first two, between the time in proportion
/// to the bytes and the first knot's own; half-way between these with one knot.
double seconds_below(const Knots& knots, double bytes) {
  const auto& [first_bytes, first_seconds] = knots.front();
  const double in_proportion = first_seconds * bytes / first_bytes;
  if (knots.size() == 1) {
    return (in_proportion + first_seconds) / 2;
  }
  const double slope = (knots[1].second - first_seconds) / (knots[1].first - first_bytes);
  return std::clamp(first_seconds - slope * (first_bytes - bytes), in_proportion, first_seconds);
}

std::string bytes_text(double bytes) {
  return format_bytes(Bytes(static_cast<std::int64_t>(bytes)));
}

void refuse_beyond(const CollectiveCost& table,
                   Bytes bytes,
                   double extrapolation,
                   double max_extrapolation,
                   const std::string& profile) {
  if (extrapolation <= max_extrapolation) {
    return;
  }
  const bool larger = static_cast<double>(bytes.value()) > table.knots.back().first;
  throw InputError(
      "profile {}: the {} of {} ranks was measured from {} to {}; {} is {:.2f} times {}, and more "
      "than {} times is refused: measure {} messages",
      printable(profile),
      printable(table.kind),
      table.ranks,
      bytes_text(table.knots.front().first),
      bytes_text(table.knots.back().first),
      format_bytes(bytes),
      extrapolation,
      larger ? "beyond" : "below",
      max_extrapolation,
      larger ? "larger" : "smaller");
}

}  // namespace

double default_tail(const CollectiveCost& table) {
  return tail_slope(table.knots, kTailWindow, kTailKnots);
}

Cost table_cost(const CollectiveCost& table,
                Bytes bytes,
                double max_extrapolation,
                const std::string& profile) {
  const auto& [first_bytes, first_seconds] = table.knots.front();
  const auto& [last_bytes, last_seconds] = table.knots.back();
  const auto x = static_cast<double>(bytes.value());
  Cost cost;
  cost.relative_error = table.errors.random.value_or(0);
  cost.shared_error = shared_error(table.errors, static_cast<int>(table.knots.size()));
  if (x <= last_bytes) {
    cost.seconds = interpolate(table.knots, x);
    if (x < first_bytes && first_bytes > kFlatFloorBytes) {
      cost.extrapolation = first_bytes / std::max(x, kFlatFloorBytes);
      cost.smaller = true;
      if (x <= kFlatFloorBytes && cost.extrapolation > max_extrapolation) {
        // Bucket indices, scalars and the like: too little to refuse a step for. Their price is
        // the share of the smallest measured time that kFlatFloorBytes have in its bytes.
        cost.seconds /= cost.extrapolation;
        cost.relative_error = cost.shared_error = 1;
        return cost;
      }
      refuse_beyond(table, bytes, cost.extrapolation, max_extrapolation, profile);
      cost.seconds = seconds_below(table.knots, first_bytes / cost.extrapolation);
      cost.relative_error += kErrorOfHalving * std::log2(cost.extrapolation);
      cost.shared_error = cost.relative_error;
    }
    return cost;
  }
  cost.extrapolation = x / last_bytes;
  refuse_beyond(table, bytes, cost.extrapolation, max_extrapolation, profile);
  const double slope = table.tail_seconds_per_byte.value_or(default_tail(table));
  cost.seconds = last_seconds + slope * (x - last_bytes);
  cost.relative_error =
      std::max(table.errors.beyond.value_or(0), cost.relative_error) * cost.extrapolation;
  cost.shared_error = cost.relative_error;
  return cost;
}

}  // namespace stepsim
