#include "sim/batching/random/random.h"

#include <cstdlib>
#include <limits>
#include <numeric>
#include <random>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "sim/batching/policy.h"
#include "tests/sim/batching/fixtures.h"
#include "tests/sim/batching/plan_hash.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

Ids python_shuffled(PythonRandom& random, std::int64_t n) {
  Ids items(static_cast<std::size_t>(n));
  std::iota(items.begin(), items.end(), 0);
  random.shuffle(std::span(items));
  return items;
}

double hexadecimal(const Json& text) {
  return std::strtod(text.get<std::string>().c_str(), nullptr);
}

void check_call(PythonRandom& random, const Json& call, const Json& expected) {
  const auto name = call[0].get<std::string>();
  CAPTURE(call.dump());
  if (name == "random") {
    CHECK(random.random() == hexadecimal(expected));
  } else if (name == "uniform") {
    CHECK(random.uniform(call[1], call[2]) == hexadecimal(expected));
  } else if (name == "randrange") {
    CHECK(random.below(call[1]) == expected.get<std::uint64_t>());
  } else {
    REQUIRE(name == "shuffle");
    CHECK(python_shuffled(random, call[1]) == expected.get<Ids>());
  }
}

}  // namespace

TEST_CASE("the generator gives the stream of std::mt19937") {
  for (const std::uint32_t seed : {0U, 1U, 5489U, 4294967295U}) {
    CAPTURE(seed);
    std::mt19937 expected(seed);
    MersenneTwister generator(seed);
    for (int i = 0; i < 3000; ++i) {
      CHECK(generator() == expected());
    }
  }
}

TEST_CASE("the Mersenne Twister draws the values that the standard fixes") {
  const auto data = fixture("rng.mt19937.raw");
  if (!data) {
    return;
  }
  for (std::size_t i = 0; i < data->at("input").size(); ++i) {
    std::mt19937 generator(data->at("input")[i].at("seed").get<std::uint32_t>());
    const Json& expected = data->at("expected")[i];
    for (const auto& value : expected.at("first3")) {
      CHECK(generator() == value.get<std::uint32_t>());
    }
    generator.discard(9996);
    CHECK(generator() == expected.at("value_10000").get<std::uint32_t>());
  }
}

TEST_CASE("Python's shuffle and randrange are reproduced") {
  const auto data = fixture("rng.python_random");
  if (!data) {
    return;
  }
  for (std::size_t i = 0; i < data->at("input").size(); ++i) {
    const Json& input = data->at("input")[i];
    PythonRandom random(input.at("seed").get<std::uint64_t>());
    Ids drawn;
    if (input.contains("randrange")) {
      for (int k = 0; k < input.at("count").get<int>(); ++k) {
        drawn.push_back(static_cast<std::int64_t>(random.below(input.at("randrange"))));
      }
    } else {
      drawn = python_shuffled(random, input.at("n"));
    }
    CHECK(drawn == data->at("expected")[i].get<Ids>());
  }
}

TEST_CASE("Python's calls of different kinds follow each other bit for bit") {
  const auto data = fixture("rng.python_random.calls");
  if (!data) {
    return;
  }
  const Json& input = data->at("input");
  PythonRandom random(input.at("seed").get<std::uint64_t>());
  for (std::size_t i = 0; i < input.at("calls").size(); ++i) {
    check_call(random, input.at("calls")[i], data->at("expected")[i]);
  }
}

TEST_CASE("torch.randperm is reproduced") {
  const auto data = fixture("rng.torch_randperm");
  if (!data) {
    return;
  }
  for (std::size_t i = 0; i < data->at("input").size(); ++i) {
    const Json& input = data->at("input")[i];
    CHECK(torch_randperm(input.at("n"), input.at("seed")) == data->at("expected")[i].get<Ids>());
  }
}

TEST_CASE("the head of torch.randperm is that of the whole, few of it or many") {
  for (const std::int64_t n : {0, 1, 2, 500}) {
    const Ids whole = torch_randperm(n, 7);
    for (const std::int64_t count : {std::int64_t{0}, n / 50, n / 16, n / 2, n}) {
      CHECK(torch_randperm_head(n, count, 7) == Ids(whole.begin(), whole.begin() + count));
    }
  }
  CHECK_THROWS_AS((void)torch_randperm_head(std::int64_t{1} << 32, 1, 7), std::invalid_argument);
}

TEST_CASE("long permutations of torch.randperm have the reference hashes") {
  const auto data = fixture("rng.torch_randperm.large");
  if (!data) {
    return;
  }
  for (std::size_t i = 0; i < data->at("input").size(); ++i) {
    const Json& input = data->at("input")[i];
    const Ids order = torch_randperm(input.at("n"), input.at("seed"));
    const Json& expected = data->at("expected")[i];
    CHECK(Ids(order.begin(), order.begin() + 8) == expected.at("first8").get<Ids>());
    CHECK(plan_hash({{order}}) == expected.at("plan_hash").get<std::string>());
  }
}

TEST_CASE("a seed of more than 32 bits has its own stream in Python and its low half in torch") {
  // random.Random(2 ** 40 + 3).random() of CPython 3.11.
  CHECK(PythonRandom((std::uint64_t{1} << 40) + 3).random() == 0x1.c21fbe0f92b60p-3);
  CHECK(torch_randperm(50, (std::uint64_t{1} << 40) + 3) == torch_randperm(50, 3));
}

TEST_CASE("draws below zero or beyond 32 bits are refused") {
  PythonRandom random(1);
  CHECK_THROWS_AS((void)random.below(0), std::invalid_argument);
  CHECK_THROWS_AS((void)random.below(std::uint64_t{1} << 32), std::invalid_argument);
  CHECK_THROWS_AS((void)torch_randperm(-1, 0), std::invalid_argument);
  CHECK_THROWS_AS((void)torch_randperm(std::int64_t{1} << 31, 0), std::invalid_argument);
  // The check comes before the memory: asking for it would raise another error.
  const std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  CHECK_THROWS_AS((void)torch_randperm(largest, 0), std::invalid_argument);
  CHECK(torch_randperm(0, 0).empty());
}
