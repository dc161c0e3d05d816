#include "costmodel/network/communication_hook.h"

#include <doctest/doctest.h>

#include "tests/approx.h"
#include "tests/costmodel/helpers.h"
#include "tests/costmodel/network/wire_bytes.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

using Hook = CommunicationHook;
using Shapes = std::vector<std::vector<std::int64_t>>;

constexpr std::int64_t kLate = 1000;  ///< The default start of PowerSGD and post-local SGD.

/// A matrix worth compressing, a bias, a matrix that is not, a convolution.
const Shapes kShapes = {{64, 100}, {64}, {4, 3}, {32, 16, 3, 3}};
constexpr std::int64_t kElements = 6400 + 64 + 12 + 4608;

std::vector<HookCollective> of(Hook hook,
                               int ranks,
                               const HookOptions& options = {},
                               std::int64_t iteration = kLate,
                               const Shapes& shapes = kShapes) {
  return hook_collectives(hook, options, shapes, 4, ranks, iteration);
}

double wire(Hook hook, int ranks, const HookOptions& options = {}, const Shapes& shapes = kShapes) {
  return bytes_on_wire_per_rank(of(hook, ranks, options, kLate, shapes));
}

HookCollective all_reduce(double bytes, int ranks) {
  return {CollectiveKind::AllReduce, bytes, ranks};
}

HookCollective all_gather(double bytes, int ranks) {
  return {CollectiveKind::AllGather, bytes, ranks};
}

}  // namespace

TEST_CASE("ring bytes per rank are 2(p-1)/p x S without a hook") {
  for (const int ranks : {2, 3, 4, 8, 64}) {
    CAPTURE(ranks);
    CHECK(of(Hook::None, ranks) == std::vector{all_reduce(4 * kElements, ranks)});
    CHECK(of(Hook::AllReduce, ranks) == of(Hook::None, ranks));
    CHECK(wire(Hook::None, ranks) ==
          Approx(2.0 * (ranks - 1) / ranks * 4 * kElements).epsilon(1e-12));
  }
}

TEST_CASE("fp16 and bf16 hooks send exactly half") {
  for (const int ranks : {2, 3, 4, 8, 64}) {
    CAPTURE(ranks);
    CHECK(2 * wire(Hook::Fp16, ranks) == wire(Hook::None, ranks));
    CHECK(2 * wire(Hook::Bf16, ranks) == wire(Hook::None, ranks));
    CHECK(of(Hook::Fp16, ranks).size() == 1);
  }
}

TEST_CASE("PowerSGD sends sum r(n+m) and what it leaves uncompressed") {
  for (const int rank : {1, 2, 4}) {
    CAPTURE(rank);
    HookOptions options;
    options.rank = rank;
    // 4 x 3 does not pass at any rank: (4 + 3) min(rank, 3) 2 >= 12.
    const std::vector<HookCollective> expected = {all_reduce(4 * (64 + 12), 8),
                                                  all_reduce(4 * rank * (64 + 32), 8),
                                                  all_reduce(4 * rank * (100 + 144), 8)};
    CHECK(of(Hook::PowerSgd, 8, options) == expected);
    const double elements = rank * (64 + 100 + 32 + 144) + 64 + 12;
    CHECK(wire(Hook::PowerSgd, 8, options) == Approx(2.0 * 7 / 8 * 4 * elements).epsilon(1e-12));
  }
}

TEST_CASE("a quantised all-gather is p/8 of the fp32 ring") {
  const Shapes large = {{1 << 14, 1 << 10}};
  for (const int ranks : {2, 4, 8, 16}) {
    CAPTURE(ranks);
    const auto collectives = of(Hook::QuantizePerTensor, ranks, {}, kLate, large);
    REQUIRE(collectives.size() == 2);
    CHECK(collectives[0] == all_gather(8.0 * ranks, ranks));
    const double ratio = bytes_on_wire_per_rank(std::span(collectives).subspan(1)) /
                         wire(Hook::None, ranks, {}, large);
    CHECK(ratio == Approx(ranks / 8.0).epsilon(1e-12));
  }
}

TEST_CASE("PowerSGD is a plain all-reduce before its start, and compresses only what gains") {
  CHECK(of(Hook::PowerSgd, 8, {}, kLate - 1) == of(Hook::None, 8));
  CHECK(of(Hook::BatchedPowerSgd, 8, {}, kLate - 1) == of(Hook::None, 8));
  // (n + m) r rate < n m is strict: 8 x 8 at rank 2 and rate 2 is equal, so it stays.
  HookOptions options;
  options.rank = 2;
  CHECK(of(Hook::PowerSgd, 2, options, kLate, {{8, 8}})[0] == all_reduce(4 * 64, 2));
  CHECK(of(Hook::PowerSgd, 2, options, kLate, {{8, 9}})[0] == all_reduce(0, 2));
  options.min_compression_rate = 3;
  CHECK(of(Hook::PowerSgd, 2, options, kLate, {{8, 9}})[0] == all_reduce(4 * 72, 2));
}

TEST_CASE("PowerSGD issues its all-reduce of nothing too") {
  const auto collectives = of(Hook::PowerSgd, 4, {}, kLate, {{64, 100}});
  CHECK(collectives ==
        std::vector{all_reduce(0, 4), all_reduce(4 * 64, 4), all_reduce(4 * 100, 4)});
}

TEST_CASE("batched PowerSGD reduces two factors of a padded square") {
  HookOptions options;
  options.rank = 2;
  // 11084 elements: a square of 106 (105^2 = 11025).
  const auto factor = all_reduce(4 * 106 * 2, 8);
  CHECK(of(Hook::BatchedPowerSgd, 8, options) == std::vector{factor, factor});
}

TEST_CASE("top-k gathers values and indices from every rank") {
  // 1 % of 11084 elements, rounded up: 111.
  CHECK(of(Hook::TopK, 8) == std::vector{all_gather(8 * 4 * 111, 8), all_gather(8 * 4 * 111, 8)});
  CHECK(wire(Hook::TopK, 8) == 7 * 8 * 111);
}

TEST_CASE("per-channel quantisation fills up to the next channel, a full one where it divides") {
  const auto bytes = [](std::int64_t elements) {
    return of(Hook::QuantizePerChannel, 1, {}, kLate, {{elements}});
  };
  CHECK(bytes(1000) == std::vector{all_gather(8 * 2, 1), all_gather(1024, 1)});
  CHECK(bytes(1024) == std::vector{all_gather(8 * 3, 1), all_gather(1536, 1)});
}

TEST_CASE("post-local SGD stays in its subgroup after the start and averages every period") {
  HookOptions options;
  options.start_iteration = 10;
  options.period = 3;
  CHECK(of(Hook::PostLocalSgd, 16, options, 9) == of(Hook::None, 16));
  CHECK(of(Hook::PostLocalSgd, 16, options, 10).empty());
  options.subgroup_ranks = 8;
  CHECK(of(Hook::PostLocalSgd, 16, options, 10) == std::vector{all_reduce(4 * kElements, 8)});
  options.subgroup_ranks = 32;
  CHECK(of(Hook::PostLocalSgd, 16, options, 10) == std::vector{all_reduce(4 * kElements, 16)});

  std::vector<std::int64_t> averaged;
  for (std::int64_t iteration = 0; iteration < 18; ++iteration) {
    if (averages_parameters(Hook::PostLocalSgd, options, iteration)) {
      averaged.push_back(iteration);
    }
    CHECK_FALSE(averages_parameters(Hook::None, options, iteration));
  }
  CHECK(averaged == std::vector<std::int64_t>{10, 13, 16});
}

TEST_CASE("a no-op hook sends nothing") {
  CHECK(of(Hook::Noop, 8).empty());
  CHECK(wire(Hook::Noop, 8) == 0);
}

TEST_CASE("every hook has a name that reads back, and an unknown one names the nearest") {
  for (int i = 0; i <= static_cast<int>(Hook::Noop); ++i) {
    const auto hook = static_cast<Hook>(i);
    CHECK(parse_communication_hook(name_of(hook)) == hook);
  }
  CHECK(error_of([] {
          (void)parse_communication_hook("powersgd");
        }).starts_with("unknown communication hook 'powersgd'; did you mean 'power_sgd'?"));
}

TEST_CASE("options outside their range are refused") {
  HookOptions options;
  options.rank = 0;
  CHECK(error_of([&] { (void)of(Hook::PowerSgd, 2, options); }) ==
        "rank: 0 is out of range; expected at least 1");
  options = {};
  options.topk_fraction = 1.5;
  CHECK(error_of([&] { (void)of(Hook::TopK, 2, options); }) ==
        "topk_fraction: 1.5 is out of range; expected more than 0 and at most 1");
  options = {};
  options.min_compression_rate = 0;
  CHECK(error_of([&] { (void)of(Hook::PowerSgd, 2, options); }) ==
        "min_compression_rate: 0 is out of range; expected more than 0");
  options = {};
  options.period = 0;
  CHECK(error_of([&] { (void)of(Hook::PostLocalSgd, 2, options); }) ==
        "period: 0 is out of range; expected at least 1");
}
