#include "sim/batching/training_effects.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

namespace stepsim {

namespace {

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

/// [sample] position in the sampler's order, as a share of the epoch; -1 for a sample it leaves
/// out.
std::vector<double> sampler_positions(const PolicyInput& input) {
  const auto count = static_cast<std::int64_t>(input.lengths.size());
  const auto order = rank_order(input.sampler, count, 1, 0, input.epoch).samples;
  std::vector<double> position(input.lengths.size(), -1);
  for (std::size_t i = order.size(); i-- > 0;) {
    position[at(order[i])] = (static_cast<double>(i) + 0.5) / static_cast<double>(order.size());
  }
  return position;
}

/// The samples of a step over all ranks; `step` counts batches of each rank.
template <typename Visit>
void for_each_sample(const EpochBatches& epoch, std::size_t step, Visit visit) {
  for (std::size_t rank = 0; rank < epoch.size(); ++rank) {
    if (step < epoch[rank].size()) {
      for (const std::int64_t sample : epoch[rank][step]) {
        visit(rank, sample);
      }
    }
  }
}

void add_uses(const EpochBatches& epoch, const PolicyInput& input, TrainingEffects& effects) {
  std::vector<std::int64_t> uses(input.lengths.size(), 0);
  std::set<std::pair<std::size_t, std::int64_t>> shapes;
  for (const Batches& batches : epoch) {
    for (const auto& batch : batches) {
      std::int64_t longest = 0;
      for (const std::int64_t sample : batch) {
        ++uses[at(sample)];
        longest = std::max(longest, input.lengths[at(sample)]);
      }
      shapes.emplace(batch.size(), longest);
    }
  }
  for (std::size_t sample = 0; sample < uses.size(); ++sample) {
    if (uses[sample] == 0) {
      ++effects.lost_samples;
      effects.lost_tokens += input.lengths[sample];
    } else {
      effects.repeated_samples += uses[sample] - 1;
    }
  }
  effects.distinct_shapes = static_cast<std::int64_t>(shapes.size());
}

void add_targets(const EpochBatches& epoch, const PolicyInput& input, TrainingEffects& effects) {
  for (const Batches& batches : epoch) {
    for (const auto& batch : batches) {
      std::int64_t longest = 0;
      for (const std::int64_t sample : batch) {
        effects.useful_target_tokens += input.targets[at(sample)];
        longest = std::max(longest, input.targets[at(sample)]);
      }
      effects.padded_target_tokens += longest * std::ssize(batch);
    }
  }
}

void add_skew(const EpochBatches& epoch, const PolicyInput& input, TrainingEffects& effects) {
  double sample_skew = 0;
  double token_skew = 0;
  const auto ranks = static_cast<double>(epoch.size());
  for (std::size_t step = 0; step < at(effects.fewest_steps); ++step) {
    std::vector<double> samples(epoch.size(), 0);
    std::vector<double> tokens(epoch.size(), 0);
    double all_samples = 0;
    double all_tokens = 0;
    for_each_sample(epoch, step, [&](std::size_t rank, std::int64_t sample) {
      const auto length = static_cast<double>(input.lengths[at(sample)]);
      ++samples[rank];
      ++all_samples;
      tokens[rank] += length;
      all_tokens += length;
    });
    if (all_samples > 0) {
      sample_skew += ranks * *std::max_element(samples.begin(), samples.end()) / all_samples;
      token_skew += ranks * *std::max_element(tokens.begin(), tokens.end()) / all_tokens;
    }
  }
  if (effects.fewest_steps > 0) {
    effects.sample_skew = sample_skew / static_cast<double>(effects.fewest_steps);
    effects.token_skew = token_skew / static_cast<double>(effects.fewest_steps);
  }
}

void add_displacement(const EpochBatches& epoch,
                      const PolicyInput& input,
                      TrainingEffects& effects) {
  const std::vector<double> wanted = sampler_positions(input);
  double all = 0;
  for (const Batches& batches : epoch) {
    for (const auto& batch : batches) {
      all += static_cast<double>(batch.size());
    }
  }
  double sum = 0;
  double counted = 0;
  double before = 0;
  for (std::size_t step = 0; step < at(effects.most_steps); ++step) {
    double in_step = 0;
    for_each_sample(epoch, step, [&](std::size_t, std::int64_t) { ++in_step; });
    const double here = (before + in_step / 2) / all;
    for_each_sample(epoch, step, [&](std::size_t, std::int64_t sample) {
      if (wanted[at(sample)] >= 0) {
        sum += std::abs(here - wanted[at(sample)]);
        ++counted;
      }
    });
    before += in_step;
  }
  effects.displacement = counted > 0 ? sum / counted : 0;
}

}  // namespace

std::optional<double> TrainingEffects::target_padding_ratio() const {
  if (padded_target_tokens == 0) {
    return std::nullopt;
  }
  return 1 - static_cast<double>(useful_target_tokens) / static_cast<double>(padded_target_tokens);
}

TrainingEffects training_effects(const EpochBatches& epoch, const PolicyInput& input) {
  TrainingEffects effects;
  effects.samples = static_cast<std::int64_t>(input.lengths.size());
  for (const Batches& batches : epoch) {
    const auto steps = static_cast<std::int64_t>(batches.size());
    const bool first = &batches == &epoch.front();
    effects.fewest_steps = first ? steps : std::min(effects.fewest_steps, steps);
    effects.most_steps = std::max(effects.most_steps, steps);
  }
  add_uses(epoch, input, effects);
  add_skew(epoch, input, effects);
  add_displacement(epoch, input, effects);
  if (!input.targets.empty()) {
    add_targets(epoch, input, effects);
  }
  return effects;
}

}  // namespace stepsim
