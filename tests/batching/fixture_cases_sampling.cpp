// Recipes of lengths, random generators, and the split of samples and batches over ranks.
#include <array>

#include "sim/batching/policy.h"
#include "sim/batching/random.h"
#include "sim/batching/sampler.h"
#include "tests/batching/fixture_case.h"

namespace stepsim::test {
namespace {

Json recipe_lengths(const FixtureCase& data) {
  Json result = Json::array();
  for (const auto& item : data.input) {
    result.push_back(data.file.numbers(item));
  }
  return result;
}

/// A short permutation is written out, a long one by its start and hash.
Json permutation(const Ids& order, const Json& expected) {
  if (expected.is_array()) {
    return order;
  }
  return {{"first8", Ids(order.begin(), order.begin() + 8)}, {"plan_hash", plan_hash({{order}})}};
}

Json torch_permutations(const FixtureCase& data) {
  Json result = Json::array();
  for (std::size_t i = 0; i < data.input.size(); ++i) {
    const Json& item = data.input[i];
    result.push_back(
        permutation(torch_randperm(item.at("n"), item.at("seed")), data.expected.at(i)));
  }
  return result;
}

Json distributed_sampler(const FixtureCase& data) {
  SamplerSpec sampler;
  sampler.shuffle = data.parameters.at("shuffle");
  sampler.seed = data.parameter("seed", std::uint64_t{0});
  sampler.drop_last = data.parameters.at("drop_last");
  IdLists ranks;
  for (auto& order : rank_orders(sampler,
                                 data.input.at("n"),
                                 data.parameters.at("num_replicas"),
                                 data.parameter("epoch", 0))) {
    ranks.push_back(std::move(order.samples));
  }
  return {{"indices_per_rank", ranks}};
}

constexpr std::array kKinds = {
    CaseKind{"recipe.lengths", recipe_lengths},
    CaseKind{"rng.torch_randperm", torch_permutations},
    CaseKind{"torch.DistributedSampler", distributed_sampler},
};

}  // namespace

std::span<const CaseKind> sampling_cases() {
  return kKinds;
}

}  // namespace stepsim::test
