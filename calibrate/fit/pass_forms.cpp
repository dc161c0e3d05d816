#include "calibrate/fit/pass_forms.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "calibrate/fit/nnls.h"

namespace stepsim {
namespace {

constexpr std::array<std::string_view, 4> kTerms = {"1", "samples", "tokens", "tokens*length"};

/// Every different fit of some of the terms, and of none of the other features, that comes as near
/// to the observations as that of all terms.
std::vector<std::vector<double>> sufficient_forms(const std::vector<std::string>& features,
                                                  const PassForms& forms) {
  constexpr double kAsWell = 1.25;        // Times the squared residuals.
  constexpr double kWithoutNoise = 1e-6;  // Squared relative residual.
  std::vector<std::vector<double>> sufficient;
  double least = 0;
  for (unsigned left_out = 0; left_out + 1 < 1U << kTerms.size(); ++left_out) {
    std::vector<bool> used(features.size(), false);
    for (std::size_t term = 0; term < kTerms.size(); ++term) {
      const auto place = std::ranges::find(features, kTerms[term]) - features.begin();
      if (place < std::ssize(features)) {
        used[static_cast<std::size_t>(place)] = (left_out >> term & 1U) == 0;
      }
    }
    std::vector<double> form = forms.fit(used);
    const double residual = forms.residual(form);
    least = left_out == 0 ? residual : least;
    if (residual <= kAsWell * least + kWithoutNoise &&
        std::ranges::find(sufficient, form) == sufficient.end()) {
      sufficient.push_back(std::move(form));
    }
  }
  return sufficient;
}

/// How far coefficients are from what is expected, in standard deviations, over all sizes.
double distance(const std::vector<double>& coefficients, std::span<const ExpectedPass> expected) {
  constexpr double kFarOff = 100;  // Where they come to nothing.
  double sum = 0;
  for (const ExpectedPass& one : expected) {
    const double ratio = dot(coefficients, one.row) / one.seconds;
    const double deviations = ratio > 0 ? std::log(ratio) / one.spread : kFarOff;
    sum += deviations * deviations;
  }
  return expected.empty() ? 0 : std::sqrt(sum / static_cast<double>(expected.size()));
}

/// Returns as much of a form, the rest being the cost, as is not too far from what is expected.
std::vector<double> within_bounds(const std::vector<double>& form,
                                  const std::vector<double>& cost,
                                  std::span<const ExpectedPass> expected,
                                  double bound) {
  constexpr double kStep = 0.05;
  const double most = std::max(bound, distance(cost, expected));
  std::vector<double> mixed = form;
  for (double share = 1; share > 0 && distance(mixed, expected) > most; share -= kStep) {
    for (std::size_t i = 0; i < form.size(); ++i) {
      mixed[i] = share * form[i] + (1 - share) * cost[i];
    }
  }
  return mixed;
}

}  // namespace

std::size_t distinct_shapes(std::span<const PassObservation> observations) {
  constexpr double kAlike = 1.1;
  const auto alike = [](std::int64_t a, std::int64_t b) {
    return static_cast<double>(std::max(a, b)) < kAlike * static_cast<double>(std::min(a, b));
  };
  std::vector<BatchShape> distinct;
  for (const PassObservation& observation : observations) {
    for (const BatchShape& batch : observation.batches) {
      const auto is_known = [&](const BatchShape& known) {
        return alike(known.samples, batch.samples) && alike(known.max_length, batch.max_length);
      };
      if (batch.samples > 0 && std::ranges::none_of(distinct, is_known)) {
        distinct.push_back(batch);
      }
    }
  }
  return distinct.size();
}

std::vector<std::vector<double>> other_forms(std::span<const PassObservation> observations,
                                             const PassCost& cost,
                                             const PassForms& forms) {
  const std::size_t shapes = distinct_shapes(observations);
  if (shapes >= kTerms.size()) {
    return {};
  }
  std::vector<std::vector<double>> others = sufficient_forms(cost.features, forms);
  for (std::vector<double>& form : others) {
    form = within_bounds(form, cost.coefficients, forms.expected, static_cast<double>(shapes));
  }
  return others;
}

}  // namespace stepsim
