#include "calibrate/import/recorded/recorded_whole.h"

#include <cmath>
#include <map>

#include "costmodel/base/mapped.h"

namespace stepsim {
namespace {

constexpr int kMaxRounds = 5;

using Places = std::vector<std::size_t>;

/// [step] the place of the observation for which `work` is largest.
template <typename Work>
Places with_most_work(std::span<const PassObservation> compute, const Work& work) {
  std::map<int, std::pair<double, std::size_t>> most;
  for (std::size_t i = 0; i < compute.size(); ++i) {
    const double own = work(compute[i]);
    const auto [found, is_new] = most.emplace(compute[i].step, std::pair(own, i));
    if (!is_new && own > found->second.first) {
      found->second = {own, i};
    }
  }
  return mapped(most, [](const auto& step) { return step.second.second; });
}

std::vector<PassObservation> at(std::span<const PassObservation> compute, const Places& places) {
  return mapped(places, [&](const std::size_t place) { return compute[place]; });
}

}  // namespace

WholeSteps fit_whole_steps(std::span<const PassObservation> compute,
                           AttentionKind attention,
                           const PassWeight& weight) {
  const bool varlen = attention == AttentionKind::Varlen;
  Places places = with_most_work(compute, [&](const PassObservation& observation) {
    return sum_of(observation.batches, [&](const BatchShape& batch) {
      return pass_feature("tokens*length", batch, varlen);
    });
  });
  WholeSteps whole;
  while (whole.rounds < kMaxRounds) {
    ++whole.rounds;
    whole.chosen = at(compute, places);
    // Whole steps tell too little for a term of new memory.
    const auto features = pass_features(whole.chosen, attention, Memory::OfGpu);
    whole.cost = fit_pass(whole.chosen, features, attention, weight);
    const Places next = with_most_work(compute, [&](const PassObservation& observation) {
      return sum_of(observation.batches, [&](const BatchShape& batch) {
        return pass_seconds(whole.cost, whole.cost.coefficients, batch, varlen);
      });
    });
    if (next == places) {
      break;
    }
    places = next;
  }
  return whole;
}

PassCost part_of(const PassCost& cost, double share) {
  PassCost part = cost;
  for (double& coefficient : part.coefficients) {
    coefficient *= share;
  }
  for (auto& draw : part.draws) {
    for (double& coefficient : draw) {
      coefficient *= share;
    }
  }
  const double independent = std::hypot(share, 1 - share);
  for (auto* error : {&part.errors.random, &part.errors.block}) {
    if (*error) {
      *error = **error / independent;
    }
  }
  return part;
}

}  // namespace stepsim
