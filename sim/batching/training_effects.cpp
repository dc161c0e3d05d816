#include "sim/batching/training_effects.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"

namespace stepsim {

namespace {

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

/// The ids of a step over all ranks; `step` counts batches of each rank.
template <typename Visit>
void for_each_id(const EpochPlan& epoch, std::size_t step, Visit visit) {
  for (std::size_t rank = 0; rank < epoch.batches.size(); ++rank) {
    if (step < epoch.batches[rank].size()) {
      for (const std::int64_t id : epoch.batches[rank][step]) {
        visit(rank, id);
      }
    }
  }
}

/// What was used of one sample. `uses` by offset.
void add_sample(std::span<const Piece> uses, std::int64_t length, TrainingEffects& effects) {
  if (uses.empty()) {
    ++effects.lost_samples;
    effects.lost_tokens += length;
    return;
  }
  std::int64_t used = 0;
  std::int64_t parts = 0;
  std::int64_t reached = 0;  // The end of what is used so far.
  for (const Piece& piece : uses) {
    const std::int64_t fresh =
        std::max<std::int64_t>(0, piece.offset + piece.length - std::max(reached, piece.offset));
    used += fresh;
    reached = std::max(reached, piece.offset + piece.length);
    effects.repeated_tokens += piece.length - fresh;
    (fresh > 0 ? parts : effects.repeated_samples) += 1;
  }
  effects.cropped_samples += used < length ? 1 : 0;
  effects.cropped_tokens += length - used;
  effects.split_samples += parts > 1 ? 1 : 0;
}

/// Where samples are used whole it is enough to count how often.
void add_whole_samples(const EpochPlan& epoch,
                       std::span<const std::int64_t> lengths,
                       TrainingEffects& effects) {
  std::vector<std::uint32_t> uses(lengths.size());
  for (const Batches& batches : epoch.batches) {
    for (const auto& batch : batches) {
      for (const std::int64_t sample : batch) {
        ++uses[at(sample)];
      }
    }
  }
  for (std::size_t sample = 0; sample < lengths.size(); ++sample) {
    if (uses[sample] != 1 || lengths[sample] == 0) {
      const Piece whole = {static_cast<std::int64_t>(sample), 0, lengths[sample]};
      add_sample(std::vector(uses[sample], whole), lengths[sample], effects);
    }
  }
}

/// The uses of all samples: [sample][use] by offset.
class SampleUses {
 public:
  SampleUses(const EpochPlan& epoch, std::span<const std::int64_t> lengths)
      : begins_(lengths.size() + 1) {
    const auto for_each_use = [&](auto&& visit) {
      for (const Batches& batches : epoch.batches) {
        for (const auto& batch : batches) {
          for (const std::int64_t id : batch) {
            visit(epoch.piece_of(id, lengths));
          }
        }
      }
    };
    for_each_use([&](const Piece& piece) { ++begins_[at(piece.sample) + 1]; });
    std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
    uses_.resize(begins_.back());
    std::vector<std::size_t> next = begins_;
    for_each_use([&](const Piece& piece) { uses_[next[at(piece.sample)]++] = piece; });
    for (std::size_t sample = 0; sample < lengths.size(); ++sample) {
      std::sort(uses_.begin() + static_cast<std::ptrdiff_t>(begins_[sample]),
                uses_.begin() + static_cast<std::ptrdiff_t>(begins_[sample + 1]),
                [](const Piece& a, const Piece& b) {
                  return std::tuple(a.offset, -a.length) < std::tuple(b.offset, -b.length);
                });
    }
  }

  [[nodiscard]] std::span<const Piece> of(std::size_t sample) const {
    return std::span(uses_).subspan(begins_[sample], begins_[sample + 1] - begins_[sample]);
  }

 private:
  std::vector<std::size_t> begins_;  ///< [sample] in uses_, then its size.
  std::vector<Piece> uses_;
};

void add_uses(const EpochPlan& epoch,
              const PolicyInput& input,
              const PaddedLength& padded_length,
              std::optional<double> token_budget,
              TrainingEffects& effects) {
  std::set<std::pair<std::size_t, std::int64_t>> shapes;
  for (const Batches& batches : epoch.batches) {
    for (const auto& batch : batches) {
      std::int64_t longest = 0;
      for (const std::int64_t id : batch) {
        const std::int64_t length = epoch.piece_of(id, input.lengths).length;
        longest = std::max(longest, length);
        const bool over = token_budget && static_cast<double>(length) > *token_budget;
        effects.over_budget_samples += over ? 1 : 0;
      }
      shapes.emplace(batch.size(), padded_length ? padded_length(longest) : longest);
    }
  }
  effects.tokens = sum_of(input.lengths);
  if (epoch.pieces.empty()) {
    add_whole_samples(epoch, input.lengths, effects);
  } else {
    const SampleUses uses(epoch, input.lengths);
    for (std::size_t sample = 0; sample < input.lengths.size(); ++sample) {
      add_sample(uses.of(sample), input.lengths[sample], effects);
    }
  }
  effects.distinct_shapes = static_cast<std::int64_t>(shapes.size());
}

/// SampleIds with second lengths are whole.
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

void add_skew(const EpochPlan& epoch, const PolicyInput& input, TrainingEffects& effects) {
  double sample_skew = 0;
  double token_skew = 0;
  const auto ranks = static_cast<double>(epoch.batches.size());
  for (std::size_t step = 0; step < at(effects.fewest_steps); ++step) {
    std::vector<double> samples(epoch.batches.size(), 0);
    std::vector<double> tokens(epoch.batches.size(), 0);
    double all_samples = 0;
    double all_tokens = 0;
    for_each_id(epoch, step, [&](std::size_t rank, std::int64_t id) {
      const auto length = static_cast<double>(epoch.piece_of(id, input.lengths).length);
      ++samples[rank];
      ++all_samples;
      tokens[rank] += length;
      all_tokens += length;
    });
    if (all_samples > 0) {
      sample_skew += ranks * *std::ranges::max_element(samples) / all_samples;
      token_skew += ranks * *std::ranges::max_element(tokens) / all_tokens;
    }
  }
  if (effects.fewest_steps > 0) {
    effects.sample_skew = sample_skew / static_cast<double>(effects.fewest_steps);
    effects.token_skew = token_skew / static_cast<double>(effects.fewest_steps);
  }
}

void add_displacement(const EpochPlan& epoch, const PolicyInput& input, TrainingEffects& effects) {
  const std::vector<double> wanted = sampler_positions(input);
  double all = 0;
  for (const Batches& batches : epoch.batches) {
    for (const auto& batch : batches) {
      all += static_cast<double>(batch.size());
    }
  }
  double sum = 0;
  double counted = 0;
  double before = 0;
  for (std::size_t step = 0; step < at(effects.most_steps); ++step) {
    double in_step = 0;
    for (const Batches& batches : epoch.batches) {
      in_step += step < batches.size() ? static_cast<double>(batches[step].size()) : 0;
    }
    const double here = (before + in_step / 2) / all;
    for_each_id(epoch, step, [&](std::size_t, std::int64_t id) {
      const double at_sampler = wanted[at(epoch.sample_of(id))];
      if (at_sampler >= 0) {
        sum += std::abs(here - at_sampler);
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

TrainingEffects training_effects(const EpochPlan& epoch,
                                 const PolicyInput& input,
                                 const PaddedLength& padded_length,
                                 std::optional<double> token_budget) {
  TrainingEffects effects;
  effects.samples = static_cast<std::int64_t>(input.lengths.size());
  for (const Batches& batches : epoch.batches) {
    const auto steps = static_cast<std::int64_t>(batches.size());
    const bool first = &batches == &epoch.batches.front();
    effects.fewest_steps = first ? steps : std::min(effects.fewest_steps, steps);
    effects.most_steps = std::max(effects.most_steps, steps);
  }
  add_uses(epoch, input, padded_length, token_budget, effects);
  add_skew(epoch, input, effects);
  add_displacement(epoch, input, effects);
  if (!input.targets.empty()) {
    add_targets(epoch.batches, input, effects);
  }
  return effects;
}

}  // namespace stepsim
