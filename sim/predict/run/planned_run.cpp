#include "sim/predict/run/planned_run.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"

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

/// The tokens that a batch keeps activations of.
std::int64_t kept_tokens(const Scenario& scenario, const BatchShape& shape) {
  return is_varlen(scenario) ? shape.useful_tokens : shape.padded_tokens();
}

/// Leaves those batches one of which needs most memory, whatever the model. What a batch keeps
/// grows with its tokens, its samples (where a layer's tokens are fixed) and, of dense attention,
/// tokens times length: of those with as many tokens or more only the ones count that have the most
/// of the other two. Of equal ones the first stays.
void keep_largest(const Scenario& scenario, std::vector<EpochBatch>& batches) {
  std::ranges::stable_sort(batches, std::greater(), [&](const EpochBatch& batch) {
    return std::tuple(
        kept_tokens(scenario, batch.shape), batch.shape.samples, batch.shape.max_length);
  });
  std::map<std::int64_t, std::int64_t> squares;  // By samples, ascending; they descend.
  std::erase_if(batches, [&](const EpochBatch& batch) {
    const std::int64_t square = kept_tokens(scenario, batch.shape) * batch.shape.max_length;
    const auto place = squares.lower_bound(batch.shape.samples);
    if (place != squares.end() && place->second >= square) {
      return true;
    }
    while (place != squares.begin() && std::prev(place)->second <= square) {
      squares.erase(std::prev(place));
    }
    squares[batch.shape.samples] = square;
    return false;
  });
}

/// Fills in the batches of the first epoch that may need most memory; keeps few of them at a time.
void add_largest(const Scenario& scenario, const BatchingPolicy& policy, PlannedRun& planned) {
  if (policy.played() != nullptr) {
    return;
  }
  constexpr std::size_t kFew = 256;
  const EpochPlan& epoch = planned.data->first_epoch;
  const std::size_t most = max_of(
      epoch.batches, [](const Batches& of_rank) { return of_rank.size(); }, std::size_t{0});
  std::vector<EpochBatch>& batches = planned.largest_of_epoch;
  std::size_t enough = kFew;
  for (std::size_t i = 0; i < most; ++i) {
    const int step = static_cast<int>(i / at(scenario.ddp.accumulation_steps));
    for (std::size_t rank = 0; rank < epoch.batches.size(); ++rank) {
      const std::vector<int>& joins = scenario.ddp.join_steps;
      const bool joined = !joins.empty() && step >= joins[rank];
      if (!joined && i < epoch.batches[rank].size()) {
        const BatchShape shape =
            epoch_shape(scenario, policy, *planned.data, epoch.batches[rank][i]);
        batches.push_back({shape, step, static_cast<int>(rank)});
        planned.longest_of_epoch = std::max(planned.longest_of_epoch, shape.max_length);
      }
    }
    if (batches.size() >= enough) {
      keep_largest(scenario, batches);
      enough = 2 * batches.size() + kFew;
    }
  }
  keep_largest(scenario, batches);
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
                    const PlanningCost& cost,
                    KnownLengths& known,
                    std::shared_ptr<const PlannedData> data) {
  ++plans_counted();
  PlannedRun planned;
  planned.data = std::move(data);
  Numbers<std::pair<BatchShape, std::int64_t>> batches;
  Numbers<BatchShape> shapes;
  planned.batches.reserve(at(scenario.steps) * at(scenario.ranks) *
                          at(scenario.ddp.accumulation_steps));
  plan_steps(scenario, policy, cost, known, *planned.data, [&](const MicroBatch& batch) {
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
  planned.tokens_per_sample = tokens_per_sample(*planned.data);
  add_largest(scenario, policy, planned);
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
