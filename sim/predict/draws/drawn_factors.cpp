#include "sim/predict/draws/drawn_factors.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "costmodel/base/mapped.h"
#include "sim/predict/step_cost.h"

namespace stepsim {
namespace {

/// The measured interference with its uncertain members drawn from their 90 % intervals.
Interference drawn_interference(const InterferenceProfile& measured, ErrorDraws& errors) {
  constexpr double kDeviations = 2 * 1.645;  // In a 90 % interval of a normal distribution.
  constexpr double kMaxShare = 0.99;
  Interference drawn = measured.value;
  for (const auto& [kind, member, interval] :
       {std::tuple("interference: compute", &drawn.compute, &measured.compute),
        std::tuple("interference: transfer", &drawn.transfer, &measured.transfer),
        std::tuple("interference: memory", &drawn.memory_share, &measured.memory_share)}) {
    if (*interval) {
      const double deviation = ((*interval)->second - (*interval)->first) / kDeviations;
      *member = std::max(0.0, *member + deviation * errors.normal(kind));
    }
  }
  drawn.memory_share = std::min(drawn.memory_share, kMaxShare);
  return drawn;
}

/// The ratio of a draw's fit to the fit itself; `place`: which draw, from 0 to 1. Passes and links
/// that were fitted together are drawn together.
double drawn_ratio(const std::vector<double>& ratios, double place) {
  return ratios.empty()
             ? 1.0
             : ratios[static_cast<std::size_t>(place * static_cast<double>(ratios.size()))];
}

/// One factor a group: its systematic error, and that of one draw's passes.
std::vector<double> drawn_groups(const Run& run, const PassDraws& draws, ErrorDraws& errors) {
  const double place = draws.any() ? errors.place("passes") : 0;
  const double host = draws.by_host() ? errors.factor("host's floor", HostFloor::kLogDeviation) : 1;
  const PassDraws::Factors passes = draws.factors(place, host);
  std::vector<double> factors;
  for (const ErrorGroup& group : run.pricer().groups()) {
    const double pass = group.name == kForwardPass    ? passes.forward
                        : group.name == kBackwardPass ? passes.backward
                                                      : 1;
    factors.push_back(pass * errors.factor(group.name, group.relative_sd));
  }
  return factors;
}

}  // namespace

CostFactors drawn_factors(const Run& run, const PassDraws& draws, ErrorDraws& errors) {
  CostFactors factors;
  factors.group = drawn_groups(run, draws, errors);
  factors.collective = errors.factor("collectives", run.pricer().collective_error());
  const std::vector<double> links = run.pricer().collective_draws();
  if (!links.empty()) {
    factors.collective *= drawn_ratio(links, errors.place("passes"));
  }
  factors.host = errors.factor("host", run.pricer().host_error());
  factors.new_shapes =
      errors.factor("new shapes", shape_error(run.loads().shape_costs, run.loads().shape_stalls));
  if (run.takes_measured_interference()) {
    factors.interference = drawn_interference(*run.profile().interference, errors);
  }
  return factors;
}

std::optional<double> drawn_slowdown(const Run& run, ErrorDraws& errors) {
  const auto& measured = run.profile().interference;
  if (!measured || measured->compute_draws.empty() || run.scenario().interference_given ||
      !prices_recorded_model(run.scenario(), run.profile())) {
    return std::nullopt;
  }
  return drawn_ratio(measured->compute_draws, errors.place("passes"));
}

std::vector<double> drawn_sizes(const Run& run, ErrorDraws& errors) {
  constexpr int kOctaves = 41;  // Up to 1 TiB.
  const double error = run.pricer().collective_error();
  std::vector<double> factors;
  if (error > 0 && prices_recorded_model(run.scenario(), run.profile())) {
    for (int octave = 0; octave < kOctaves; ++octave) {
      factors.push_back(errors.factor(fmt::format("collectives of 2^{} bytes", octave), error));
    }
  }
  return factors;
}

}  // namespace stepsim
