#include "sim/predict/draws/pass_draws.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "sim/predict/step_cost.h"

namespace stepsim {
namespace {

std::vector<double> features_of(const PassCost& cost, const BatchShape& batch, bool varlen) {
  return mapped(cost.features,
                [&](const std::string& feature) { return pass_feature(feature, batch, varlen); });
}

double seconds_of(const std::vector<double>& row, const std::vector<double>& coefficients) {
  return std::inner_product(row.begin(), row.end(), coefficients.begin(), 0.0);
}

/// The coefficients of a draw; those of the cost where it has none.
const std::vector<double>& draw_of(const PassCost& cost, std::size_t draw) {
  return draw < cost.draws.size() ? cost.draws[draw] : cost.coefficients;
}

PassDraws::Factors ratio_of(const PassDraws::Factors& drawn, const PassDraws::Factors& priced) {
  return {priced.forward > 0 ? drawn.forward / priced.forward : 1,
          priced.backward > 0 ? drawn.backward / priced.backward : 1};
}

}  // namespace

PassDraws::PassDraws(const Run& run) {
  if (!prices_recorded_model(run.scenario(), run.profile())) {
    return;
  }
  const RecordedModel recorded =
      at_ranks(*run.profile().recorded, run.scenario().ranks, run.scenario().placement.fullest());
  const bool varlen = recorded.model.attention == AttentionKind::Varlen;
  kinds_ = run.planned().batches;
  empty_ = mapped(run.planned().different,
                  [](const RunBatch& batch) { return batch.shape.samples == 0; });
  ranks_ = at(run.scenario().ranks);
  micro_batches_ = at(run.scenario().ddp.accumulation_steps);
  forward_ = part_of(recorded.forward, run, varlen);
  backward_ = part_of(recorded.backward, run, varlen);
  const std::size_t draws = std::max(recorded.forward.draws.size(), recorded.backward.draws.size());
  const Factors fitted = priced(1);
  for (std::size_t draw = 0; draw < draws; ++draw) {
    ratios_.push_back(ratio_of(drawn(draw, 1), fitted));
  }
  const auto floor = host_floor(run.scenario(), run.profile());
  if (!floor) {
    return;
  }
  forward_.smallest = features_of(recorded.forward, floor->smallest, varlen);
  backward_.smallest = features_of(recorded.backward, floor->smallest, varlen);
  if (is_short(forward_, &HostFloor::forward, *floor) ||
      is_short(backward_, &HostFloor::backward, *floor)) {
    floor_ = floor;
  }
}

PassDraws::Part PassDraws::part_of(const PassCost& cost, const Run& run, bool varlen) const {
  Part part;
  part.cost = cost;
  part.rows = mapped(run.planned().different,
                     [&](const RunBatch& batch) { return features_of(cost, batch.shape, varlen); });
  return part;
}

bool PassDraws::is_short(const Part& part, Least least, const HostFloor& floor) const {
  constexpr double kRounding = 1 - 1e-9;
  const double slow_host = std::exp(3 * HostFloor::kLogDeviation);
  const std::vector<double>& fitted = part.cost.coefficients;
  const double timed = (floor.*least)(slow_host, seconds_of(part.smallest, fitted));
  for (std::size_t kind = 0; kind < part.rows.size(); ++kind) {
    if (!empty_[kind] && seconds_of(part.rows[kind], fitted) < kRounding * timed) {
      return true;
    }
  }
  return false;
}

PassDraws::Factors PassDraws::factors(double place, double host) const {
  const std::size_t draws = ratios_.size();
  const auto draw = static_cast<std::size_t>(place * static_cast<double>(draws));
  if (!floor_) {
    return draws == 0 ? Factors() : ratios_[draw];
  }
  return ratio_of(drawn(draw, host), priced(1));
}

std::vector<double> PassDraws::seconds(const Part& part,
                                       Least least,
                                       const std::vector<double>& coefficients,
                                       double host) const {
  const double floor =
      floor_ ? ((*floor_).*least)(host, seconds_of(part.smallest, coefficients)) : 0;
  std::vector<double> result;
  for (std::size_t kind = 0; kind < part.rows.size(); ++kind) {
    const double own = seconds_of(part.rows[kind], coefficients);
    result.push_back(empty_[kind] ? own : std::max(own, floor));
  }
  return result;
}

PassDraws::Factors PassDraws::of_slowest(const std::vector<double>& forward,
                                         const std::vector<double>& backward) const {
  Factors sums = {0, 0};
  for (std::size_t first = 0; first < kinds_.size(); first += ranks_ * micro_batches_) {
    Factors slowest = {0, 0};
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      Factors own = {0, 0};
      for (std::size_t micro = 0; micro < micro_batches_; ++micro) {
        const std::uint32_t kind = kinds_[first + rank * micro_batches_ + micro];
        own.forward += forward[kind];
        own.backward += backward[kind];
      }
      if (own.forward + own.backward > slowest.forward + slowest.backward) {
        slowest = own;
      }
    }
    sums.forward += slowest.forward;
    sums.backward += slowest.backward;
  }
  return sums;
}

PassDraws::Factors PassDraws::priced(double host) const {
  return of_slowest(seconds(forward_, &HostFloor::forward, forward_.cost.coefficients, host),
                    seconds(backward_, &HostFloor::backward, backward_.cost.coefficients, host));
}

PassDraws::Factors PassDraws::drawn(std::size_t draw, double host) const {
  return of_slowest(seconds(forward_, &HostFloor::forward, draw_of(forward_.cost, draw), host),
                    seconds(backward_, &HostFloor::backward, draw_of(backward_.cost, draw), host));
}

}  // namespace stepsim
