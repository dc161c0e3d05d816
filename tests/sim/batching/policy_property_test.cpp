// What must hold on any data set for the policies that batch each rank's own samples.
#include <algorithm>
#include <map>
#include <random>

#include <doctest/doctest.h>

#include "tests/sim/batching/make_policy.h"
#include "tests/sim/batching/plan_hash.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

/// A random data set, sampler and number of ranks; sizes stay small.
struct PropertyCase {
  std::vector<std::int64_t> lengths;
  PolicyInput input;
  std::int64_t batch_size = 1;
  std::int64_t max_tokens = 1;
};

PropertyCase property_case(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&random](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  PropertyCase result;
  result.input.ranks = static_cast<int>(1 + below(6));
  const std::int64_t longest = 1 + below(100);
  result.lengths.resize(static_cast<std::size_t>(result.input.ranks + below(150)));
  for (auto& length : result.lengths) {
    length = 1 + below(longest);
  }
  SamplerSpec& sampler = result.input.sampler;
  sampler.kind = below(2) == 0 ? SamplerSpec::Kind::Python : SamplerSpec::Kind::Distributed;
  sampler.shuffle = below(4) != 0;
  sampler.seed = random();
  sampler.drop_last = below(3) == 0;
  result.input.epoch = static_cast<int>(below(3));
  result.batch_size = 1 + below(9);
  result.max_tokens = 1 + below(400);
  return result;
}

PolicySpec spec_of(const std::string& kind, const PropertyCase& random) {
  PolicySpec spec;
  spec.kind = kind;
  if (kind == "token_budget") {
    spec.parameters.set("max_tokens", random.max_tokens);
  } else {
    spec.parameters.set("batch_size", random.batch_size);
  }
  return spec;
}

std::map<std::int64_t, int> uses_of(const EpochBatches& epoch) {
  std::map<std::int64_t, int> uses;
  for (const auto& rank : epoch) {
    for (const auto& batch : rank) {
      for (const auto id : batch) {
        ++uses[id];
      }
    }
  }
  return uses;
}

/// How often each sample has to occur, by the sampler's rule alone.
std::map<std::int64_t, int> dealt(const PolicyInput& input) {
  std::map<std::int64_t, int> uses;
  const auto count = static_cast<std::int64_t>(input.lengths.size());
  for (const auto& order : rank_orders(input.sampler, count, input.ranks, input.epoch)) {
    for (const auto id : order.samples) {
      ++uses[id];
    }
  }
  return uses;
}

template <typename Check>
void for_random_cases(Check check) {
  for (std::uint64_t seed = 0; seed < 250; ++seed) {
    PropertyCase random = property_case(seed);
    random.input.lengths = random.lengths;
    for (const char* kind : {"fixed", "bucketed", "token_budget"}) {
      CAPTURE(seed);
      CAPTURE(kind);
      const PolicySpec spec = spec_of(kind, random);
      check(random, spec, make_policy(spec).epoch(random.input).batches);
    }
  }
}

}  // namespace

TEST_CASE("the sampler repeats only to fill up the ranks and drops only a tail") {
  for_random_cases([](const PropertyCase& random, const PolicySpec&, const EpochBatches&) {
    const auto count = static_cast<std::int64_t>(random.lengths.size());
    const auto remainder = count % random.input.ranks;
    std::int64_t total = 0;
    const auto uses = dealt(random.input);
    for (const auto& [id, times] : uses) {
      total += times;
      CHECK((times == 1 || (times == 2 && !random.input.sampler.drop_last)));
    }
    if (random.input.sampler.drop_last) {
      CHECK(total == count - remainder);
    } else {
      CHECK(static_cast<std::int64_t>(uses.size()) == count);
      const bool pads = random.input.sampler.kind == SamplerSpec::Kind::Distributed;
      CHECK(total == count + (pads && remainder > 0 ? random.input.ranks - remainder : 0));
    }
  });
}

TEST_CASE("no policy loses or repeats a sample that the sampler dealt out") {
  for_random_cases(
      [](const PropertyCase& random, const PolicySpec& spec, const EpochBatches& epoch) {
        const auto expected = dealt(random.input);
        const auto uses = uses_of(epoch);
        if (!random.input.sampler.drop_last || spec.kind == "token_budget") {
          CHECK(uses == expected);
          return;
        }
        // drop_last: less than one batch a rank is missing, and nothing is repeated.
        std::int64_t missing = 0;
        for (const auto& [id, times] : expected) {
          const auto found = uses.find(id);
          missing += times - (found == uses.end() ? 0 : found->second);
        }
        CHECK(missing >= 0);
        CHECK(missing <= random.input.ranks * (random.batch_size - 1));
      });
}

TEST_CASE("every batch keeps its limit, unless one sample alone is above it") {
  for_random_cases(
      [](const PropertyCase& random, const PolicySpec& spec, const EpochBatches& epoch) {
        for (const auto& rank : epoch) {
          for (const auto& batch : rank) {
            std::int64_t longest = 0;
            for (const auto id : batch) {
              longest = std::max(longest, random.lengths[static_cast<std::size_t>(id)]);
            }
            const auto size = static_cast<std::int64_t>(batch.size());
            CHECK(size >= 1);
            if (spec.kind == "token_budget") {
              CHECK((size * longest <= random.max_tokens || size == 1));
            } else {
              CHECK(size <= random.batch_size);
            }
          }
        }
      });
}

TEST_CASE("the same seed gives the same plan") {
  for_random_cases(
      [](const PropertyCase& random, const PolicySpec& spec, const EpochBatches& epoch) {
        CHECK(plan_hash(make_policy(spec).epoch(random.input).batches) == plan_hash(epoch));
      });
}

TEST_CASE("another seed gives another plan of a shuffled data set") {
  int same = 0;
  int compared = 0;
  for_random_cases([&](PropertyCase random, const PolicySpec& spec, const EpochBatches& epoch) {
    if (!random.input.sampler.shuffle || random.lengths.size() < 40) {
      return;
    }
    random.input.lengths = random.lengths;
    random.input.sampler.seed ^= 0x5555;
    ++compared;
    same += plan_hash(make_policy(spec).epoch(random.input).batches) == plan_hash(epoch) ? 1 : 0;
  });
  CHECK(compared > 200);
  CHECK(same == 0);
}

TEST_CASE("bucketed ranks have equal batch counts whenever the ranks have equal shares") {
  for_random_cases(
      [](const PropertyCase& random, const PolicySpec& spec, const EpochBatches& epoch) {
        const SamplerSpec& sampler = random.input.sampler;
        const bool equal_shares = sampler.kind == SamplerSpec::Kind::Distributed ||
                                  sampler.drop_last ||
                                  random.lengths.size() % random.input.ranks == 0;
        if (spec.kind == "token_budget" || !equal_shares) {
          return;
        }
        for (const auto& rank : epoch) {
          CHECK(rank.size() == epoch.front().size());
        }
      });
}
