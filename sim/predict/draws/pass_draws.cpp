#include "sim/predict/draws/pass_draws.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "costmodel/base/mapped.h"
#include "sim/predict/step_cost.h"

namespace stepsim {
namespace {

std::size_t draw_at(double place, std::size_t draws) {
  return static_cast<std::size_t>(place * static_cast<double>(draws));
}

std::vector<double> features_of(const PassCost& cost, const BatchShape& batch, bool varlen) {
  return mapped(cost.features,
                [&](const std::string& feature) { return pass_feature(feature, batch, varlen); });
}

double seconds_of(const std::vector<double>& row, const std::vector<double>& coefficients) {
  return std::inner_product(row.begin(), row.end(), coefficients.begin(), 0.0);
}

}  // namespace

PassDraws::PassDraws(const Run& run) {
  if (!prices_recorded_model(run.scenario(), run.profile())) {
    return;
  }
  std::vector<BatchShape> shapes;
  for (std::size_t i = 0; i < run.batches(); ++i) {
    shapes.push_back(run.batch(i).shape);
  }
  const RecordedModel recorded =
      at_ranks(*run.profile().recorded, run.scenario().ranks, run.scenario().placement.fullest());
  const bool varlen = recorded.model.attention == AttentionKind::Varlen;
  forward_.cost = recorded.forward;
  backward_.cost = recorded.backward;
  forward_.ratios = draw_ratios(recorded.forward, shapes, varlen);
  backward_.ratios = draw_ratios(recorded.backward, shapes, varlen);
  const auto floor = host_floor(run.scenario(), run.profile());
  if (!floor) {
    return;
  }
  set_rows(run, *floor, varlen, forward_);
  set_rows(run, *floor, varlen, backward_);
  if (is_short(forward_, &HostFloor::forward, *floor) ||
      is_short(backward_, &HostFloor::backward, *floor)) {
    floor_ = floor;
    counts_.assign(run.planned().different.size(), 0.0);
    for (const std::uint32_t kind : run.planned().batches) {
      counts_[kind] += run.planned().different[kind].shape.samples > 0 ? 1 : 0;
    }
  }
}

void PassDraws::set_rows(const Run& run, const HostFloor& floor, bool varlen, Part& part) const {
  part.rows = mapped(run.planned().different, [&](const RunBatch& batch) {
    return features_of(part.cost, batch.shape, varlen);
  });
  part.smallest = features_of(part.cost, floor.smallest, varlen);
}

bool PassDraws::is_short(const Part& part, Least least, const HostFloor& floor) const {
  const double slow_host = std::exp(3 * HostFloor::kLogDeviation);
  const std::vector<double>& fitted = part.cost.coefficients;
  const double seconds = (floor.*least)(slow_host, seconds_of(part.smallest, fitted));
  constexpr double kRounding = 1 - 1e-9;
  return std::ranges::any_of(part.rows, [&](const std::vector<double>& row) {
    const double own = seconds_of(row, fitted);
    return own > 0 && own < kRounding * seconds;
  });
}

double PassDraws::forward(double place, double host) const {
  return factor(forward_, &HostFloor::forward, place, host);
}

double PassDraws::backward(double place, double host) const {
  return factor(backward_, &HostFloor::backward, place, host);
}

double PassDraws::factor(const Part& part, Least least, double place, double host) const {
  const std::size_t draws = part.ratios.size();
  if (!floor_) {
    return draws == 0 ? 1 : part.ratios[draw_at(place, draws)];
  }
  const std::vector<double>& drawn =
      draws == 0 ? part.cost.coefficients : part.cost.draws[draw_at(place, draws)];
  const double priced = total(part, least, part.cost.coefficients, 1);
  return priced > 0 ? total(part, least, drawn, host) / priced : 1;
}

double PassDraws::total(const Part& part,
                        Least least,
                        const std::vector<double>& coefficients,
                        double host) const {
  const double floor = ((*floor_).*least)(host, seconds_of(part.smallest, coefficients));
  double sum = 0;
  for (std::size_t kind = 0; kind < counts_.size(); ++kind) {
    sum += counts_[kind] * std::max(seconds_of(part.rows[kind], coefficients), floor);
  }
  return sum;
}

}  // namespace stepsim
