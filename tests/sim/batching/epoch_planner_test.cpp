#include "sim/batching/epoch_planner.h"

#include <algorithm>
#include <set>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "sim/batching/loss_scale.h"
#include "tests/approx.h"
#include "tests/sim/batching/make_policy.h"
#include "tests/sim/batching/policy_examples.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

constexpr std::int64_t kBatch = 4;
constexpr std::int64_t kLongest = 60;
constexpr int kRanks = 3;

std::vector<std::int64_t> some_lengths() {
  std::vector<std::int64_t> lengths;
  for (std::int64_t sample = 0; sample < 150; ++sample) {
    lengths.push_back(1 + sample * 37 % kLongest);
  }
  return lengths;
}

PlannerOptions options_of(UnevenRanks uneven = UnevenRanks::Repeat) {
  PlannerOptions options;
  options.ranks = kRanks;
  options.uneven = uneven;
  return options;
}

/// Those examples that need nothing but lengths.
std::vector<PolicyExample> examples() {
  std::vector<PolicyExample> all = policy_examples(kBatch, kLongest);
  std::erase_if(all, [](const PolicyExample& one) { return one.targets; });
  return all;
}

EpochPlan plan_of(const BatchingPolicy& policy, std::span<const std::int64_t> lengths, int epoch) {
  PolicyInput input;
  input.lengths = lengths;
  input.ranks = kRanks;
  input.epoch = epoch;
  return policy.epoch(input);
}

PolicySpec fixed_batches(std::int64_t batch_size) {
  PolicySpec spec;
  spec.name = spec.kind = "fixed";
  spec.parameters.set("batch_size", batch_size);
  return spec;
}

/// The pieces of one step of a rank.
std::vector<Piece> pieces_of(const RankEpoch& epoch,
                             std::int64_t step,
                             std::span<const std::int64_t> lengths) {
  std::vector<Piece> pieces;
  for (std::size_t i = at(epoch.offsets[at(step)]); i < at(epoch.offsets[at(step + 1)]); ++i) {
    const std::int64_t sample = epoch.samples[i];
    pieces.push_back(epoch.starts.empty() ? Piece{sample, 0, lengths[at(sample)]}
                                          : Piece{sample, epoch.starts[i], epoch.lengths[i]});
  }
  return pieces;
}

}  // namespace

TEST_CASE("a planned epoch has the policy's batches, and a rank with fewer starts them again") {
  const std::vector<std::int64_t> lengths = some_lengths();
  for (const PolicyExample& example : examples()) {
    CAPTURE(example.spec.kind);
    const BatchingPolicy policy = make_policy(example.spec);
    const EpochPlanner planner(policy, lengths, options_of());
    for (const int number : {0, 3}) {
      const EpochPlan expected = plan_of(policy, lengths, number);
      const PlannedEpoch planned = planner.epoch(number);
      for (int rank = 0; rank < kRanks; ++rank) {
        const Batches& own = expected.batches[at(rank)];
        CHECK(planned.batches_by_rank()[at(rank)] == std::ssize(own));
        const RankEpoch epoch = planned.rank(rank);
        REQUIRE(std::ssize(epoch.offsets) == planned.steps() + 1);
        std::vector<Piece> visits;
        for (std::int64_t step = 0; step < planned.steps(); ++step) {
          const auto& batch = own[at(step) % own.size()];
          const std::vector<Piece> pieces = expected.pieces_of(batch, lengths);
          CHECK(pieces_of(epoch, step, lengths) == pieces);
          visits.insert(visits.end(), pieces.begin(), pieces.end());
        }
        CHECK(planned.visits(rank) == visits);
      }
    }
  }
}

TEST_CASE("a step knows its useful tokens and what it is padded to") {
  const std::vector<std::int64_t> lengths = some_lengths();
  PolicySpec spec = fixed_batches(kBatch);
  spec.pad_to_multiple_of = 16;
  const EpochPlanner planner(make_policy(spec), lengths, options_of());
  const RankEpoch epoch = planner.epoch(0).rank(1);
  for (std::int64_t step = 0; step + 1 < std::ssize(epoch.offsets); ++step) {
    std::int64_t tokens = 0;
    std::int64_t longest = 0;
    for (const Piece& piece : pieces_of(epoch, step, lengths)) {
      tokens += piece.length;
      longest = std::max(longest, piece.length);
    }
    CHECK(epoch.useful_tokens[at(step)] == tokens);
    CHECK(epoch.padded_lengths[at(step)] == padded_to_multiple(longest, 16));
  }
}

TEST_CASE("loss scales of a planned epoch are those of the shapes of its batches") {
  const std::vector<std::int64_t> lengths = some_lengths();
  for (const auto weighting : {LossWeighting::None, LossWeighting::Sample, LossWeighting::Token}) {
    PolicySpec spec;
    spec.name = spec.kind = "token_budget";
    spec.parameters.set("max_tokens", 4 * kLongest);
    spec.weighting = weighting;
    const EpochPlanner planner(make_policy(spec), lengths, options_of());
    const PlannedEpoch planned = planner.epoch(1);
    std::vector<RankEpoch> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.push_back(planned.rank(rank));
    }
    for (std::int64_t step = 0; step < planned.steps(); ++step) {
      std::vector<BatchShape> shapes;
      for (const RankEpoch& rank : ranks) {
        const auto samples = rank.offsets[at(step + 1)] - rank.offsets[at(step)];
        const auto padded = rank.padded_lengths[at(step)];
        shapes.push_back({samples, padded, rank.useful_tokens[at(step)]});
      }
      const std::vector<double> expected = loss_scales(weighting, shapes);
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        CHECK(ranks[rank].loss_scales[at(step)] == Approx(expected[rank]));
      }
    }
  }
}

TEST_CASE("what is left after some steps is what no rank has visited in them") {
  const std::vector<std::int64_t> lengths = some_lengths();
  for (const UnevenRanks uneven : {UnevenRanks::Repeat, UnevenRanks::Drop, UnevenRanks::Idle}) {
    for (const PolicyExample& example : examples()) {
      CAPTURE(example.spec.kind);
      const EpochPlanner planner(make_policy(example.spec), lengths, options_of(uneven));
      const PlannedEpoch planned = planner.epoch(0);
      std::vector<RankEpoch> ranks;
      for (int rank = 0; rank < kRanks; ++rank) {
        ranks.push_back(planned.rank(rank));
      }
      for (const std::int64_t steps : {std::int64_t{0}, planned.steps() / 2, planned.steps()}) {
        using Part = std::pair<std::int64_t, std::int64_t>;  // Sample and start.
        std::set<Part> seen;
        std::set<std::int64_t> expected;
        for (const bool later : {false, true}) {
          for (const RankEpoch& rank : ranks) {
            for (std::int64_t step = later ? steps : 0; step < (later ? planned.steps() : steps);
                 ++step) {
              for (const Piece& piece : pieces_of(rank, step, lengths)) {
                if (!later) {
                  seen.insert({piece.sample, piece.offset});
                } else if (!seen.contains({piece.sample, piece.offset})) {
                  expected.insert(piece.sample);
                }
              }
            }
          }
        }
        CHECK(planned.left_after(steps) ==
              std::vector<std::int64_t>(expected.begin(), expected.end()));
      }
    }
  }
}

TEST_CASE("ranks with more batches than others may leave their last out") {
  const std::vector<std::int64_t> lengths = {9, 9, 9, 1, 1, 1, 9};
  PolicySpec spec;
  spec.name = spec.kind = "local_token_budget";
  spec.parameters.set("max_tokens", std::int64_t{9});
  const BatchingPolicy policy = make_policy(spec);
  const EpochPlanner repeats(policy, lengths, options_of());
  const EpochPlanner drops(policy, lengths, options_of(UnevenRanks::Drop));
  const auto batches = repeats.epoch(0).batches_by_rank();
  const auto [fewest, most] = std::ranges::minmax(batches);
  REQUIRE(fewest < most);
  CHECK(repeats.epoch(0).steps() == most);
  CHECK(drops.epoch(0).steps() == fewest);
}

TEST_CASE("ranks with fewer batches than others may be idle at the end") {
  const std::vector<std::int64_t> lengths = {9, 9, 9, 1, 1, 1, 9, 2, 1};
  PolicySpec spec;
  spec.name = spec.kind = "local_token_budget";
  spec.weighting = LossWeighting::Sample;
  spec.parameters.set("max_tokens", std::int64_t{9});
  const BatchingPolicy policy = make_policy(spec);
  const EpochPlanner planner(policy, lengths, options_of(UnevenRanks::Idle));
  const PlannedEpoch planned = planner.epoch(0);
  const auto batches = planned.batches_by_rank();
  const auto [fewest, most] = std::ranges::minmax(batches);
  REQUIRE(fewest < most);
  CHECK(planned.steps() == most);
  std::multiset<std::int64_t> visited;
  double last_scales = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    const RankEpoch own = planned.rank(rank);
    const bool is_idle = batches[at(rank)] < most;
    CHECK((own.offsets[at(most)] == own.offsets[at(most - 1)]) == is_idle);
    CHECK((own.loss_scales[at(most - 1)] == 0) == is_idle);
    last_scales += own.loss_scales[at(most - 1)];
    visited.insert(own.samples.begin(), own.samples.end());
    CHECK(std::ssize(planned.visits(rank)) == std::ssize(own.samples));
  }
  CHECK(last_scales == Approx(kRanks));
  CHECK(visited.size() == lengths.size());
  CHECK(std::set<std::int64_t>(visited.begin(), visited.end()).size() == lengths.size());
}

TEST_CASE("check values tell plans apart") {
  const std::vector<std::int64_t> lengths = some_lengths();
  const auto value = [&](std::int64_t batch_size, UnevenRanks uneven, int epoch) {
    return EpochPlanner(make_policy(fixed_batches(batch_size)), lengths, options_of(uneven))
        .epoch(epoch)
        .check_value();
  };
  const std::string first = value(4, UnevenRanks::Repeat, 0);
  CHECK(first.size() == 16);
  CHECK(value(4, UnevenRanks::Repeat, 0) == first);
  CHECK(value(4, UnevenRanks::Repeat, 1) != first);
  CHECK(value(5, UnevenRanks::Repeat, 0) != first);
}

TEST_CASE("wrong data of a planner are named") {
  const auto planner = [](std::vector<std::int64_t> lengths) {
    return EpochPlanner(make_policy(fixed_batches(2)), std::move(lengths), options_of());
  };
  CHECK_THROWS_WITH_AS(planner({}), doctest::Contains("there are no samples"), InputError);
  CHECK_THROWS_WITH_AS(planner({1, 2, 0}), doctest::Contains("sample 2 has length 0"), InputError);
  CHECK_THROWS_WITH_AS(planner({1, 2}), doctest::Contains("3 ranks for 2 samples"), InputError);
}

TEST_CASE("a rank that gets no batch is named") {
  PlannerOptions options = options_of();
  options.sampler.drop_last = true;
  const EpochPlanner planner(make_policy(fixed_batches(100)), some_lengths(), options);
  CHECK_THROWS_WITH_AS(
      (void)planner.epoch(0), doctest::Contains("rank 0 has no batch at all"), InputError);
}
