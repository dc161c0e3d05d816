// The min-max allocation: by selection and exact tie-breaks, against enumeration.
#include <algorithm>
#include <random>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "tests/oracles/min_max_enumeration.h"
#include "tests/sim/batching/make_policy.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

using Sizes = std::vector<std::int64_t>;

struct Instance {
  std::vector<PrefixCosts> costs;
  std::int64_t global_batch = 0;
};

/// Few ranks and short lengths, so that ties are common; now and then a long first sample.
Instance random_instance(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&random](std::uint64_t n) { return static_cast<std::int64_t>(random() % n); };
  Instance result;
  const auto ranks = 1 + below(5);
  const auto longest = 1 + below(below(2) == 0 ? 4 : 60);
  const bool outlier = below(4) == 0;
  const bool squared = below(3) == 0;
  std::int64_t available = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    Sizes lengths(static_cast<std::size_t>(1 + below(9)));
    for (auto& length : lengths) {
      length = 1 + below(static_cast<std::uint64_t>(longest));
    }
    if (outlier && rank == 0) {
      lengths.front() = 5 * longest;
    }
    available += static_cast<std::int64_t>(lengths.size());
    result.costs.push_back(squared ? squared_token_costs(lengths) : padded_token_costs(lengths));
  }
  result.global_batch = ranks + below(static_cast<std::uint64_t>(available - ranks + 1));
  return result;
}

Sizes costs_of(const Instance& instance, const Sizes& sizes) {
  Sizes costs;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    costs.push_back(instance.costs[rank][static_cast<std::size_t>(sizes[rank]) - 1]);
  }
  return costs;
}

template <typename Visit>
void for_all_allocations(const Instance& instance, Sizes& sizes, std::int64_t left, Visit visit) {
  if (sizes.size() == instance.costs.size()) {
    if (left == 0) {
      visit(sizes);
    }
    return;
  }
  const auto most = static_cast<std::int64_t>(instance.costs[sizes.size()].size());
  for (std::int64_t size = 1; size <= std::min(most, left); ++size) {
    sizes.push_back(size);
    for_all_allocations(instance, sizes, left - size, visit);
    sizes.pop_back();
  }
}

/// The first allocation in lexicographic order that no other one precedes by `key`.
template <typename Key>
Sizes first_by(const Instance& instance, Key key) {
  Sizes best;
  Sizes sizes;
  for_all_allocations(instance, sizes, instance.global_batch, [&](const Sizes& candidate) {
    if (best.empty() || key(costs_of(instance, candidate)) < key(costs_of(instance, best))) {
      best = candidate;
    }
  });
  return best;
}

/// Dealing one sample at a time to the rank whose next prefix is cheapest, the lowest rank first.
Sizes dealt(const Instance& instance) {
  Sizes sizes(instance.costs.size(), 1);
  for (auto left = instance.global_batch - static_cast<std::int64_t>(sizes.size()); left > 0;
       --left) {
    std::size_t best = sizes.size();
    const auto next = [&](std::size_t rank) {
      return instance.costs[rank][static_cast<std::size_t>(sizes[rank])];
    };
    for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
      if (sizes[rank] < static_cast<std::int64_t>(instance.costs[rank].size()) &&
          (best == sizes.size() || next(rank) < next(best))) {
        best = rank;
      }
    }
    ++sizes[best];
  }
  return sizes;
}

}  // namespace

TEST_CASE("10,000 random allocations: selection and exact tie-break equal full enumeration") {
  int head_bound = 0;
  int slack = 0;
  for (std::uint64_t seed = 0; seed < 10'000; ++seed) {
    CAPTURE(seed);
    const Instance instance = random_instance(seed);
    const auto solved = solve_min_max(instance.costs, instance.global_batch, TieBreak::Variance);
    const auto all = enumerate_min_max(instance.costs, instance.global_batch);
    REQUIRE(solved.highest_cost == all.highest_cost);
    REQUIRE(solved.batch_sizes == all.best.front());
    REQUIRE(solved.exact);
    head_bound += solved.head_bound ? 1 : 0;
    slack += solved.slack > 0 ? 1 : 0;
  }
  // The instances are of every sort.
  CHECK(head_bound > 1000);
  CHECK(slack > 1000);
}

TEST_CASE("the other tie-breaks equal a search through all allocations") {
  for (std::uint64_t seed = 0; seed < 1'500; ++seed) {
    CAPTURE(seed);
    const Instance instance = random_instance(seed);
    const auto solved = [&](TieBreak tie_break) {
      return solve_min_max(instance.costs, instance.global_batch, tie_break).batch_sizes;
    };
    const auto descending = [](Sizes costs) {
      std::sort(costs.rbegin(), costs.rend());
      return costs;
    };
    const auto sum = [](const Sizes& costs) {
      std::int64_t total = 0;
      for (const auto cost : costs) {
        total += cost;
      }
      return std::pair(*std::max_element(costs.begin(), costs.end()), total);
    };
    REQUIRE(solved(TieBreak::Leximax) == first_by(instance, descending));
    REQUIRE(solved(TieBreak::MinSum) == first_by(instance, sum));
    REQUIRE(solved(TieBreak::None) == dealt(instance));
  }
}

TEST_CASE("many ranks: the sampled selection finds what a full sort finds") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    std::vector<PrefixCosts> costs;
    Sizes all;
    for (std::size_t rank = 0; rank < 300 + 50 * seed; ++rank) {
      Sizes lengths(1 + random() % 40);
      for (auto& length : lengths) {
        length = static_cast<std::int64_t>(1 + random() % (rank % 64 == 0 ? 2000 : 60));
      }
      costs.push_back(padded_token_costs(lengths));
      all.insert(all.end(), costs.back().begin() + 1, costs.back().end());
    }
    std::sort(all.begin(), all.end());
    const auto further = static_cast<std::int64_t>(1 + random() % all.size());
    const auto global_batch = static_cast<std::int64_t>(costs.size()) + further;
    std::int64_t expected = all[static_cast<std::size_t>(further) - 1];
    for (const auto& row : costs) {
      expected = std::max(expected, row.front());
    }
    for (const auto tie_break : {TieBreak::None, TieBreak::Leximax, TieBreak::Variance}) {
      const auto solved = solve_min_max(costs, global_batch, tie_break);
      CHECK(solved.highest_cost == expected);
      std::int64_t samples = 0;
      for (std::size_t rank = 0; rank < costs.size(); ++rank) {
        samples += solved.batch_sizes[rank];
        CHECK(costs[rank][static_cast<std::size_t>(solved.batch_sizes[rank]) - 1] <= expected);
      }
      CHECK(samples == global_batch);
    }
  }
}

TEST_CASE("costs of prefixes follow the longest sample so far") {
  const Sizes lengths = {3, 1, 4, 1, 5};
  CHECK(padded_token_costs(lengths) == PrefixCosts{3, 6, 12, 16, 25});
  CHECK(squared_token_costs(lengths) == PrefixCosts{9, 36, 144, 256, 625});
  const auto useful = [](const BatchShape& shape) { return shape.useful_tokens; };
  CHECK(shape_costs(lengths, useful) == PrefixCosts{3, 4, 8, 9, 14});
  // A cost that does not tell the prefixes apart still rises.
  CHECK(shape_costs(lengths, [](const BatchShape&) { return 0; }) == PrefixCosts{1, 2, 3, 4, 5});
}

TEST_CASE("one long first sample: T* is its cost, and the tie-break splits the rest") {
  // Rank 0 costs 60 with one sample. Ranks 1, 2, 3 hold samples of 2, 4, 5 tokens, six each: all 18
  // fit under 60, and 12 - 1 of them are wanted.
  const std::vector<PrefixCosts> costs = {padded_token_costs(Sizes{60, 3, 3, 3, 3, 3}),
                                          padded_token_costs(Sizes(6, 2)),
                                          padded_token_costs(Sizes(6, 4)),
                                          padded_token_costs(Sizes(6, 5))};
  const auto solved = solve_min_max(costs, 12, TieBreak::Variance);
  CHECK(solved.head_bound);
  CHECK(solved.slack == 7);
  CHECK(solved.tied_ranks == 1);
  // Variance raises the cheap ranks: 60 6 16 20, though 60 12 8 15 would be fewer tokens in sum.
  CHECK(solved.batch_sizes == Sizes{1, 3, 4, 4});
  CHECK(solve_min_max(costs, 12, TieBreak::MinSum).batch_sizes == Sizes{1, 6, 4, 1});
}

TEST_CASE("the min-max policy plans by whatever a step costs") {
  // Rank 0 holds samples of 8 tokens, rank 1 of 2. By padded tokens 6 samples are dealt 1 : 5
  // (costs 8 and 10; 2 : 4 costs 16); by samples alone they are dealt 3 : 3.
  const Sizes lengths = {8, 2, 8, 2, 8, 2, 8, 2, 8, 2};
  PolicyInput input;
  input.lengths = lengths;
  input.ranks = 2;
  input.sampler.shuffle = false;
  input.step_cost = [](const BatchShape& shape) { return shape.samples; };
  const auto sizes = [&](const std::string& cost) {
    PolicySpec spec;
    spec.kind = "min_max";
    spec.parameters = {
        {"global_batch", std::int64_t{6}}, {"buffer", std::int64_t{5}}, {"cost", cost}};
    const EpochBatches epoch = make_policy(spec).epoch(input).batches;
    return Sizes{std::ssize(epoch[0][0]), std::ssize(epoch[1][0])};
  };
  CHECK(sizes("tokens") == Sizes{1, 5});
  CHECK(sizes("step_time") == Sizes{3, 3});
}

TEST_CASE("what cannot be allocated is bad input") {
  const std::vector<PrefixCosts> two = {{1, 2}, {3, 5}};
  CHECK_THROWS_WITH_AS((void)solve_min_max(two, 1, TieBreak::None),
                       "min-max: a global batch of 1 cannot be dealt to 2 ranks, each at least 1 "
                       "sample and 4 in all at most",
                       InputError);
  CHECK_THROWS_AS((void)solve_min_max(two, 5, TieBreak::None), InputError);
  CHECK_THROWS_AS((void)solve_min_max({}, 0, TieBreak::None), InputError);
  CHECK_THROWS_AS((void)solve_min_max(std::vector<PrefixCosts>{{}}, 1, TieBreak::None), InputError);
  CHECK_THROWS_WITH_AS(
      (void)solve_min_max(std::vector<PrefixCosts>{{1}, {2, 2}}, 2, TieBreak::None),
      "min-max: the costs of rank 1 do not rise from 1",
      InputError);
  CHECK_THROWS_AS((void)squared_token_costs(Sizes{std::int64_t{1} << 31}), InputError);
  CHECK_THROWS_WITH_AS(
      (void)parse_tie_break("varience"),
      "unknown tie_break 'varience'; did you mean 'variance'? known: none, min_sum, "
      "variance, leximax",
      InputError);
  // Their squares over all ranks leave 128 bits.
  const std::int64_t large = std::int64_t{1} << 61;
  const std::vector<PrefixCosts> tied = {{large, 2 * large}, {large, 2 * large}};
  CHECK_THROWS_AS((void)solve_min_max(tied, 3, TieBreak::Variance), InputError);
  CHECK(solve_min_max(tied, 3, TieBreak::Leximax).batch_sizes == Sizes{1, 2});
}
