// Recipes of lengths, random generators, and the split of samples and batches over ranks.
#include <array>
#include <numeric>
#include <random>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "sim/batching/policies/batch_forming.h"
#include "sim/batching/random/numpy_generator.h"
#include "sim/batching/random/random.h"
#include "sim/batching/sampler.h"
#include "sim/batching/sharding.h"
#include "tests/sim/batching/fixture_case.h"
#include "tests/sim/batching/plan_hash.h"

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

Json numpy_permutations(const FixtureCase& data) {
  Json result = Json::array();
  for (std::size_t i = 0; i < data.input.size(); ++i) {
    const Json& item = data.input[i];
    result.push_back(
        permutation(numpy_permutation(item.at("n"), item.at("seed")), data.expected.at(i)));
  }
  return result;
}

Json generator_permutations(const FixtureCase& data) {
  Json result = Json::array();
  for (const auto& item : data.input) {
    const auto kind =
        item.at("bit_generator") == "philox" ? BitGenerator::Philox : BitGenerator::Pcg64;
    result.push_back(generator_permutation(kind, item.at("n"), item.at("seed")));
  }
  return result;
}

Json mersenne_twister(const FixtureCase& data) {
  Json result = Json::array();
  for (const auto& item : data.input) {
    std::mt19937 generator(item.at("seed").get<std::uint32_t>());
    const Ids first = {static_cast<std::int64_t>(generator()),
                       static_cast<std::int64_t>(generator()),
                       static_cast<std::int64_t>(generator())};
    generator.discard(9996);
    result.push_back({{"first3", first}, {"value_10000", generator()}});
  }
  return result;
}

Ids python_shuffled(PythonRandom& random, std::int64_t n) {
  Ids items(static_cast<std::size_t>(n));
  std::iota(items.begin(), items.end(), 0);
  random.shuffle(std::span(items));
  return items;
}

Json python_random(const FixtureCase& data) {
  Json result = Json::array();
  for (const auto& item : data.input) {
    PythonRandom random(item.at("seed").get<std::uint64_t>());
    if (item.contains("randrange")) {
      Ids drawn;
      for (int k = 0; k < item.at("count").get<int>(); ++k) {
        drawn.push_back(static_cast<std::int64_t>(random.below(item.at("randrange"))));
      }
      result.push_back(drawn);
    } else {
      result.push_back(python_shuffled(random, item.at("n")));
    }
  }
  return result;
}

/// One call; a floating number as C99 writes it in hexadecimal.
Json python_call(PythonRandom& random, const Json& call) {
  const auto name = call.at(0).get<std::string>();
  if (name == "randrange") {
    return random.below(call.at(1));
  }
  if (name == "shuffle") {
    return python_shuffled(random, call.at(1));
  }
  const double drawn = name == "random" ? random.random() : random.uniform(call.at(1), call.at(2));
  return fmt::format("{:a}", drawn);
}

Json python_calls(const FixtureCase& data) {
  PythonRandom random(data.input.at("seed").get<std::uint64_t>());
  Json result = Json::array();
  for (const auto& call : data.input.at("calls")) {
    result.push_back(python_call(random, call));
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

Json accelerate_shard(const FixtureCase& data) {
  AccelerateShard shard;
  shard.batch_size = data.parameters.at("batch_size");
  shard.drop_last = data.parameters.at("drop_last");
  shard.split_batches = data.parameters.at("split_batches");
  shard.even_batches = data.parameters.at("even_batches");
  Ids samples(data.input.at("n").get<std::size_t>());
  std::iota(samples.begin(), samples.end(), 0);
  const Batches batches = chunk(samples, shard.batch_size, shard.drop_last);
  return {
      {"batches_per_rank", accelerate_shards(batches, data.parameters.at("num_processes"), shard)}};
}

constexpr std::array kSamplingKinds = {
    CaseKind{"recipe.", recipe_lengths},
    CaseKind{"rng.mt19937", mersenne_twister},
    CaseKind{"rng.numpy_generator", generator_permutations},
    CaseKind{"rng.numpy_legacy", numpy_permutations},
    CaseKind{"rng.python_random", python_random},
    CaseKind{"rng.python_random.calls", python_calls},
    CaseKind{"rng.torch_randperm", torch_permutations},
    CaseKind{"torch.DistributedSampler", distributed_sampler},
    CaseKind{"accelerate.BatchSamplerShard", accelerate_shard},
};

}  // namespace

std::span<const CaseKind> sampling_cases() {
  return kSamplingKinds;
}

}  // namespace stepsim::test
