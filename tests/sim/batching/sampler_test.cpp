#include "sim/batching/sampler.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "tests/sim/batching/fixtures.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

std::vector<Ids> samples_of(const std::vector<RankOrder>& orders) {
  std::vector<Ids> result;
  for (const auto& order : orders) {
    result.push_back(order.samples);
  }
  return result;
}

SamplerSpec spec(SamplerSpec::Kind kind, bool shuffle, std::uint64_t seed, bool drop_last) {
  SamplerSpec result;
  result.kind = kind;
  result.shuffle = shuffle;
  result.seed = seed;
  result.drop_last = drop_last;
  return result;
}

}  // namespace

TEST_CASE("torch's DistributedSampler is reproduced, with its padding, drop_last and epochs") {
  for (const auto& data : fixtures("torch.DistributedSampler")) {
    CAPTURE(data.at("id").get<std::string>());
    const Json& parameters = data.at("parameters");
    const auto sampler = spec(SamplerSpec::Kind::Distributed,
                              parameters.at("shuffle"),
                              parameters.value("seed", std::uint64_t{0}),
                              parameters.at("drop_last"));
    const int ranks = parameters.at("num_replicas");
    const int epoch = parameters.value("epoch", 0);
    const std::int64_t count = data.at("input").at("n");
    const auto expected = data.at("expected").at("indices_per_rank").get<std::vector<Ids>>();
    CHECK(samples_of(rank_orders(sampler, count, ranks, epoch)) == expected);
    CHECK(rank_order(sampler, count, ranks, ranks - 1, epoch).samples == expected.back());
  }
}

TEST_CASE("the Python sampler deals the shuffled order out like cards") {
  // random.Random(0).shuffle(range(10)) = 7 8 1 5 3 4 2 0 9 6
  const auto sampler = spec(SamplerSpec::Kind::Python, true, 0, false);
  const std::vector<Ids> expected = {{7, 5, 2, 6}, {8, 3, 0}, {1, 4, 9}};
  CHECK(samples_of(rank_orders(sampler, 10, 3, 0)) == expected);
}

TEST_CASE("the Python sampler with drop_last leaves the tail out that does not divide") {
  const auto sampler = spec(SamplerSpec::Kind::Python, true, 0, true);
  const std::vector<Ids> expected = {{7, 5, 2}, {8, 3, 0}, {1, 4, 9}};
  CHECK(samples_of(rank_orders(sampler, 10, 3, 0)) == expected);
}

TEST_CASE("the Python sampler without shuffle keeps the order of the data set") {
  const auto sampler = spec(SamplerSpec::Kind::Python, false, 5, false);
  const std::vector<Ids> expected = {{0, 2, 4}, {1, 3}};
  CHECK(samples_of(rank_orders(sampler, 5, 2, 0)) == expected);
}

TEST_CASE("the Python generator goes on after the shuffle, the same on all ranks") {
  const auto sampler = spec(SamplerSpec::Kind::Python, true, 9, false);
  PythonRandom expected(9);
  Ids items = {0, 1, 2, 3, 4, 5};
  expected.shuffle(std::span(items));
  const double next = expected.random();
  for (auto& order : rank_orders(sampler, 6, 3, 0)) {
    CHECK(order.random.random() == next);
  }
}

TEST_CASE("the generator of the distributed sampler starts from seed plus epoch") {
  const auto sampler = spec(SamplerSpec::Kind::Distributed, true, 9, false);
  PythonRandom expected(12);
  CHECK(rank_order(sampler, 6, 3, 1, 3).random.random() == expected.random());
}

TEST_CASE("another epoch of the Python sampler has another order") {
  const auto sampler = spec(SamplerSpec::Kind::Python, true, 9, false);
  CHECK(rank_order(sampler, 50, 2, 0, 0).samples != rank_order(sampler, 50, 2, 0, 1).samples);
}

TEST_CASE("an empty data set and impossible ranks are bad input") {
  const SamplerSpec sampler;
  CHECK_THROWS_WITH_AS((void)rank_orders(sampler, 0, 2, 0),
                       "the data set is empty: there is no sample to put into a batch",
                       InputError);
  CHECK_THROWS_AS((void)rank_orders(sampler, 4, 0, 0), InputError);
  CHECK_THROWS_AS((void)rank_orders(sampler, 4, 2, -1), InputError);
  CHECK_THROWS_AS((void)rank_order(sampler, 4, 2, 2, 0), std::out_of_range);
}
