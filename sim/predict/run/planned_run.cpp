#include "sim/predict/run/planned_run.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "sim/predict/step_cost.h"

namespace stepsim {
namespace {

/// Without what only varlen attention depends on, more batches are alike.
BatchShape shape_of(const Scenario& scenario, const MicroBatch& batch) {
  if (!is_varlen(scenario)) {
    BatchShape shape = batch.shape();
    shape.sum_squares = 0;
    return shape;
  }
  BatchShape shape = batch.shape(scenario.model.window);
  shape.empty_blocks = empty_blocks(batch.attended(), scenario.varlen);
  return shape;
}

/// What prices depend on. Without varlen attention that is whether there is padding, which asks for
/// kernels that take a mask, but not how much.
BatchShape priced_shape(const Scenario& scenario, BatchShape shape) {
  if (!is_varlen(scenario)) {
    shape.useful_tokens = shape.has_padding() ? 0 : shape.padded_tokens();
  }
  return shape;
}

/// Numbers things in the order in which they are first met.
template <typename Thing>
class Numbers {
 public:
  /// Returns the number of a thing and whether it is new.
  std::pair<std::uint32_t, bool> number(const Thing& thing) {
    const auto [place, is_new] =
        known_.try_emplace(thing, static_cast<std::uint32_t>(known_.size()));
    return {place->second, is_new};
  }

 private:
  std::map<Thing, std::uint32_t> known_;
};

/// The tokens of an epoch's samples and parts of samples over the number of different samples.
/// Where samples are whole, one that is used again counts again.
double tokens_per_sample(const PlannedData& planned) {
  const EpochPlan& epoch = planned.first_epoch;
  double tokens = 0;
  std::int64_t samples = 0;
  std::vector<bool> met(epoch.pieces.empty() ? 0 : planned.lengths.size());
  for (const Batches& of_rank : epoch.batches) {
    for (const std::vector<std::int64_t>& batch : of_rank) {
      for (const std::int64_t id : batch) {
        if (epoch.pieces.empty()) {
          tokens += static_cast<double>(planned.lengths[at(id)]);
          ++samples;
          continue;
        }
        const Piece& piece = epoch.pieces[at(id)];
        tokens += static_cast<double>(piece.length);
        samples += met[at(piece.sample)] ? 0 : 1;
        met[at(piece.sample)] = true;
      }
    }
  }
  return samples > 0 ? tokens / static_cast<double>(samples) : 0;
}

std::atomic<std::int64_t>& plans_counted() {
  static std::atomic<std::int64_t> count{0};
  return count;
}

}  // namespace

std::int64_t runs_planned() {
  return plans_counted();
}

PlannedRun plan_run(const Scenario& scenario,
                    const BatchingPolicy& policy,
                    const Profile& profile,
                    KnownLengths& known) {
  ++plans_counted();
  PlannedRun planned;
  Numbers<std::pair<BatchShape, std::int64_t>> batches;
  Numbers<BatchShape> shapes;
  planned.batches.reserve(at(scenario.steps) * at(scenario.ranks) *
                          at(scenario.ddp.accumulation_steps));
  planned.data =
      plan_steps(scenario,
                 policy,
                 planning_cost(scenario, policy, profile),
                 known,
                 [&](const MicroBatch& batch) {
                   RunBatch one{shape_of(scenario, batch), std::ssize(batch.samples), 0};
                   const auto [number, is_new] = batches.number({one.shape, one.samples});
                   planned.batches.push_back(number);
                   if (!is_new) {
                     return;
                   }
                   const BatchShape priced = priced_shape(scenario, one.shape);
                   const auto [price, is_new_shape] = shapes.number(priced);
                   if (is_new_shape) {
                     planned.priced_shapes.push_back(priced);
                   }
                   one.price = price;
                   planned.different.push_back(one);
                 });
  planned.tokens_per_sample = tokens_per_sample(planned.data);
  return planned;
}

BatchShape cached_shape(const Scenario& scenario, const BatchShape& batch) {
  return is_varlen(scenario) && batch.samples > 0
             ? BatchShape{1, batch.useful_tokens, batch.useful_tokens}
             : batch;
}

std::vector<BatchShape> epoch_shapes(const Scenario& scenario,
                                     const BatchingPolicy& policy,
                                     const PlannedData& planned) {
  const EpochPlan& epoch = planned.first_epoch;
  const auto micro = at(scenario.ddp.accumulation_steps);
  const auto ranks = at(scenario.ranks);
  const std::size_t batches = max_of(
      epoch.batches, [](const Batches& of_rank) { return of_rank.size(); }, std::size_t{0});
  const std::size_t steps = batches / micro;
  std::vector<BatchShape> shapes(policy.played() == nullptr ? steps * ranks * micro : 0);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const Batches& of_rank = epoch.batches[i / micro % ranks];
    const std::size_t batch = i / (micro * ranks) * micro + i % micro;
    if (batch < of_rank.size()) {
      shapes[i] = cached_shape(scenario, epoch_shape(scenario, policy, planned, of_rank[batch]));
    }
  }
  return shapes;
}

}  // namespace stepsim
