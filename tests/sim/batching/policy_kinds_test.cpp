// What every kind of policy promises on any data set.
#include <algorithm>
#include <map>
#include <random>
#include <set>

#include <doctest/doctest.h>

#include "costmodel/base/mapped.h"
#include "sim/batching/policies/policy_table.h"
#include "sim/batching/training_effects.h"
#include "tests/sim/batching/make_policy.h"
#include "tests/sim/batching/policy_examples.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

using Lengths = std::vector<std::int64_t>;

struct RandomCase {
  std::vector<std::int64_t> lengths;
  std::vector<std::int64_t> targets;  ///< On every other seed.
  PolicyInput input;
  std::int64_t batch = 1;
  std::int64_t longest = 1;
};

RandomCase random_case(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&random](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  RandomCase result;
  result.input.ranks = static_cast<int>(1 + below(5));
  result.longest = 1 + below(60);
  result.batch = 1 + below(6);
  result.lengths.resize(static_cast<std::size_t>(result.input.ranks + below(200)));
  for (auto& length : result.lengths) {
    length = 1 + below(result.longest);
  }
  SamplerSpec& sampler = result.input.sampler;
  sampler.kind = below(2) == 0 ? SamplerSpec::Kind::Python : SamplerSpec::Kind::Distributed;
  sampler.shuffle = below(4) != 0;
  sampler.seed = random() % 1000;
  sampler.drop_last = below(4) == 0;
  result.input.epoch = static_cast<int>(below(3));
  result.targets.resize(seed % 2 == 0 ? result.lengths.size() : 0);
  for (auto& target : result.targets) {
    target = 1 + below(result.longest);
  }
  return result;
}

/// Shares of equal size: the sampler pads or cuts, or the ranks divide the data set.
bool equal_shares(const RandomCase& random) {
  const auto ranks = static_cast<std::size_t>(random.input.ranks);
  return random.input.sampler.kind == SamplerSpec::Kind::Distributed ||
         random.input.sampler.drop_last || random.lengths.size() % ranks == 0;
}

/// [sample][token] how often it is used.
using TokenUses = std::vector<std::vector<int>>;

TokenUses token_uses(const EpochPlan& epoch, const RandomCase& random) {
  TokenUses uses;
  for (const auto length : random.lengths) {
    uses.emplace_back(static_cast<std::size_t>(length), 0);
  }
  for (const auto& rank : epoch.batches) {
    for (const auto& batch : rank) {
      for (const Piece& piece : epoch.pieces_of(batch, random.lengths)) {
        auto& own = uses.at(static_cast<std::size_t>(piece.sample));
        CHECK(piece.length >= 1);
        for (auto token = piece.offset; token < piece.offset + piece.length; ++token) {
          ++own.at(static_cast<std::size_t>(token));
        }
      }
    }
  }
  return uses;
}

template <typename Check>
void for_examples(Check check) {
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    RandomCase random = random_case(seed);
    random.input.lengths = random.lengths;
    const Lengths targets = random.targets;
    for (const auto& example : policy_examples(random.batch, random.longest)) {
      // Samples with second lengths cannot be cut.
      const bool cuts = make_policy(example.spec).cuts();
      random.targets = cuts ? Lengths{} : targets;
      random.input.targets = random.targets;
      if (example.targets && random.targets.empty()) {
        continue;
      }
      CAPTURE(seed);
      CAPTURE(example.spec.kind);
      check(random, example, make_policy(example.spec).epoch(random.input));
    }
  }
}

}  // namespace

TEST_CASE("every kind of policy that forms batches has an example") {
  std::set<std::string> kinds;
  for (const auto& example : policy_examples(4, 10)) {
    kinds.insert(example.spec.kind);
  }
  for (const auto& kind : policy_table()) {
    CAPTURE(kind.name);
    const bool plays_file = std::holds_alternative<PolicyKind::PlaysFile>(kind.epoch);
    CHECK(kinds.contains(kind.name) != plays_file);
  }
}

TEST_CASE("no policy loses a sample or a token, except by its own rule or drop_last") {
  for_examples([](const RandomCase& random, const PolicyExample& one, const EpochPlan& epoch) {
    const TrainingEffects effects = training_effects(epoch, random.input);
    if (!random.input.sampler.drop_last) {
      CHECK((one.loses || effects.lost_samples == 0));
      CHECK((one.crops || effects.cropped_tokens == 0));
    }
  });
}

TEST_CASE("every token is used, lost or cropped, and counted so") {
  for_examples([](const RandomCase& random, const PolicyExample&, const EpochPlan& epoch) {
    TrainingEffects counted;
    for (const auto& sample : token_uses(epoch, random)) {
      const auto unused = std::count(sample.begin(), sample.end(), 0);
      const bool lost = unused == std::ssize(sample);
      counted.lost_samples += lost ? 1 : 0;
      (lost ? counted.lost_tokens : counted.cropped_tokens) += unused;
      counted.cropped_samples += !lost && unused > 0 ? 1 : 0;
      for (const int uses : sample) {
        counted.repeated_tokens += std::max(0, uses - 1);
      }
    }
    const TrainingEffects effects = training_effects(epoch, random.input);
    CHECK(effects.lost_samples == counted.lost_samples);
    CHECK(effects.lost_tokens == counted.lost_tokens);
    CHECK(effects.cropped_samples == counted.cropped_samples);
    CHECK(effects.cropped_tokens == counted.cropped_tokens);
    CHECK(effects.repeated_tokens == counted.repeated_tokens);
  });
}

TEST_CASE("no policy repeats a sample, except to fill up ranks and batches") {
  for_examples([](const RandomCase& random, const PolicyExample& one, const EpochPlan& epoch) {
    const bool pads = random.input.sampler.kind == SamplerSpec::Kind::Distributed &&
                      !random.input.sampler.drop_last;
    const TrainingEffects effects = training_effects(epoch, random.input);
    const std::int64_t repeated = effects.repeated_samples;
    CHECK((repeated > 0) == (effects.repeated_tokens > 0));
    switch (one.repeats) {
      case PolicyExample::Repeats::None:
        CHECK(repeated == 0);
        break;
      case PolicyExample::Repeats::Sampler:
        CHECK(repeated <= (pads ? random.input.ranks - 1 : 0));
        break;
      case PolicyExample::Repeats::Own:
        CHECK(repeated < random.input.ranks * random.batch);
        break;
      case PolicyExample::Repeats::Steps: {
        const auto size = [](const auto& batch) { return std::ssize(batch); };
        const std::int64_t largest = max_of(epoch.batches.front(), size, std::ptrdiff_t{0});
        CHECK(repeated < random.input.ranks * (largest + std::ssize(epoch.pad_to_lengths)));
        break;
      }
    }
  });
}

TEST_CASE("ranks have equal numbers of batches where the policy says so") {
  for_examples([](const RandomCase& random, const PolicyExample& one, const EpochPlan& epoch) {
    CHECK(std::ssize(epoch.batches) == random.input.ranks);
    const bool equal = one.steps == PolicyExample::Steps::Equal ||
                       (one.steps == PolicyExample::Steps::LikeShares && equal_shares(random));
    for (const auto& rank : epoch.batches) {
      CHECK((!equal || rank.size() == epoch.batches.front().size()));
    }
  });
}

TEST_CASE("no batch is above its limit of samples or padded tokens") {
  for_examples([](const RandomCase& random, const PolicyExample& one, const EpochPlan& epoch) {
    for (const auto& rank : epoch.batches) {
      for (const auto& batch : rank) {
        std::int64_t longest = 0;
        std::int64_t tokens = 0;
        for (const Piece& piece : epoch.pieces_of(batch, random.lengths)) {
          tokens += piece.length;
          longest = std::max(longest, piece.length);
        }
        CHECK((one.max_tokens == 0 || tokens <= one.max_tokens));
        CHECK((one.max_samples == 0 || std::ssize(batch) <= one.max_samples));
        CHECK((one.max_padded == 0 || std::ssize(batch) * longest <= one.max_padded));
      }
    }
  });
}

TEST_CASE("a kind gives the same plan for the same seed and another one for another seed") {
  std::map<std::string, int> changed;
  for_examples([&](RandomCase random, const PolicyExample& one, const EpochPlan& epoch) {
    random.input.lengths = random.lengths;
    random.input.targets = random.targets;
    const BatchingPolicy policy = make_policy(one.spec);
    CHECK(policy.epoch(random.input) == epoch);
    random.input.sampler.seed += 1000;
    const bool differs = policy.epoch(random.input) != epoch;
    CHECK((one.draws || !differs));
    changed[one.spec.kind] += differs ? 1 : 0;
  });
  for (const auto& [kind, count] : changed) {
    const auto& at_kind = kind;  // Clang 14 captures no structured bindings.
    CAPTURE(at_kind);
    CHECK(count > 0);
  }
}
