#include "sim/study/blame.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <doctest/doctest.h>
#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "sim/predict/scenario_profile.h"
#include "sim/report/blame_report.h"
#include "tests/approx.h"
#include "tests/sim/scenario/scenario_text.h"

using namespace stepsim;
using stepsim::test::Approx;

namespace {

/// Two ranks, forward 10 ms, backward 20 ms in four blocks; each block's gradients are one bucket,
/// all-reduced in 3 ms. Three of the four hide behind the backward: 33 ms.
const std::string kBlameBlocks = test::replaced(test::kBucketBlocks,
                                                {{"steps = 4", "steps = 4\nwarmup_steps = 2"},
                                                 {"\"9 ms\", \"9 ms\"", "\"3 ms\", \"3 ms\""},
                                                 {"batch_size = 2", "batch_size = 1"}});

Scenario blocks(const std::vector<std::string>& overrides = {}) {
  return parse_scenario(kBlameBlocks, "blocks.toml", overrides);
}

Blame blame_of(const Scenario& scenario) {
  return blame(Job(scenario, scenario.policies.front(), scenario_profile(scenario)));
}

const Saving& find(const Blame& result, Change change, int rank = -1) {
  const auto found =
      std::find_if(result.savings.begin(), result.savings.end(), [&](const Saving& saving) {
        return saving.change == change && saving.rank == rank;
      });
  REQUIRE(found != result.savings.end());
  return *found;
}

double exposed_ms(const Blame& result) {
  return std::accumulate(
      result.buckets.begin(), result.buckets.end(), 0.0, [](double sum, const BucketBlame& bucket) {
        return sum + bucket.exposed_ms;
      });
}

}  // namespace

TEST_CASE("free communication saves exactly what the backward does not hide") {
  for (const char* times : {"3 ms", "5 ms", "7 ms"}) {
    CAPTURE(times);
    const std::string table = std::string("{ sizes = [\"1 KiB\", \"4 MiB\"], times = [\"") + times +
                              "\", \"" + times + "\"] }";
    const Blame result = blame_of(blocks({"cluster.all_reduce=" + table}));
    const Saving& saving = find(result, Change::FreeCommunication);
    CHECK(saving.step_ms == Approx(30));
    CHECK(saving.saves_ms == Approx(exposed_ms(result)));
    CHECK(saving.saves_ms > 2.9);
  }
}

TEST_CASE("the exposed time is that of the last bucket where the others hide") {
  const Blame result = blame_of(blocks());
  CHECK(result.step_ms == Approx(33));
  REQUIRE(result.buckets.size() == 4);
  CHECK(most_exposed(result) == 3);
  CHECK(result.buckets[3].exposed_ms == Approx(3));
  CHECK(exposed_ms(result) == Approx(3));
}

TEST_CASE("communication that is inside the passes is not called hidden") {
  Blame result = blame_of(blocks());
  for (BucketBlame& bucket : result.buckets) {
    bucket.exposed_ms = 0;
  }
  const std::string text = blame_text(blocks(), result);
  CHECK(text.find("no transfer is left after the last backward; within the passes communication "
                  "takes 3.000 ms of the step\n") != std::string::npos);
  for (Saving& saving : result.savings) {
    saving.saves_ms = 0;
  }
  CHECK(blame_text(blocks(), result).find("all communication is hidden behind the backward\n") !=
        std::string::npos);
}

TEST_CASE("compute is listed by class of op, largest first") {
  const Blame result = blame_of(blocks());
  REQUIRE(result.ops.size() == 2);
  CHECK(result.ops[0].ops == "backward pass");
  CHECK(result.ops[0].ms == Approx(20));
  CHECK(result.ops[1].ops == "forward pass");
  CHECK(result.ops[1].ms == Approx(10));
}

TEST_CASE("one slow rank costs exactly what it takes longer, and is always last") {
  // Half as slow again: 15 + 30 ms of compute and the last bucket's 3 ms.
  const Blame result = blame_of(blocks({"cluster.slow_ranks=[{rank=1, factor=1.5}]"}));
  CHECK(result.step_ms == Approx(48));
  CHECK(find(result, Change::EqualRanks).saves_ms == Approx(15));
  CHECK(result.savings.front().change == Change::EqualRanks);
  CHECK(result.last == std::vector<double>{0, 1});
}

TEST_CASE("one bucket costs the overlap: a negative saving") {
  // Its all-reduce takes 3 ms as well and starts after the backward, so nothing changes at 3 ms a
  // bucket; at 1 ms a bucket and 4 ms for all, 3 ms are lost.
  const Blame result = blame_of(blocks(
      {"cluster.all_reduce={ sizes = [\"1 MiB\", \"4 MiB\"], times = [\"1 ms\", \"4 ms\"] }"}));
  CHECK(result.step_ms == Approx(31));
  CHECK(find(result, Change::OneBucket).saves_ms == Approx(-3));
  CHECK(result.savings.back().change == Change::OneBucket);
}

TEST_CASE("nothing is saved where there is nothing to save") {
  const Blame result = blame_of(blocks());
  for (const Change change :
       {Change::Balanced, Change::EqualRanks, Change::NoInterference, Change::NoData}) {
    CAPTURE(name_of(change));
    CHECK(find(result, change).saves_ms == 0);
  }
  CHECK(find(result, Change::MedianRank, 0).saves_ms == 0);
  CHECK(find(result, Change::MedianRank, 1).saves_ms == 0);
  CHECK(result.last == std::vector<double>{0.5, 0.5});
}

TEST_CASE("perfect balance is never slower and saves the excess of the longest rank") {
  // Costs in proportion to the tokens: lengths differ from rank to rank.
  for (int seed = 1; seed <= 8; ++seed) {
    CAPTURE(seed);
    const Blame result = blame_of(blocks({"times.tokens=64",
                                          "data.lengths={ uniform = [1, 128] }",
                                          "scenario.seed=" + std::to_string(seed),
                                          "scenario.steps=12"}));
    const Saving& balanced = find(result, Change::Balanced);
    CHECK(balanced.saves_ms > 0);
    CHECK(balanced.saves_ms < result.step_ms);
    CHECK(find(result, Change::MedianRank, 0).saves_ms <= balanced.saves_ms + 1e-6);
  }
}

TEST_CASE("a rank that is out of inputs has no load to balance") {
  // Steady steps 2 and 3: loads of 30 and 39 ms, then rank 0's 30 ms alone. Balanced, the first one
  // has 34.5 ms on both ranks: the mean of the two steps is 2.25 ms less.
  const Blame result =
      blame_of(blocks({"cluster.skew=0.3", "ddp.join=[4, 3]", "model.block_elements=1024"}));
  CHECK(find(result, Change::Balanced).saves_ms == Approx(2.25));
  CHECK(find(result, Change::MedianRank, 0).saves_ms == Approx(0).epsilon(0.01));
}

TEST_CASE("interference and loading are blamed for what they add") {
  const Blame slowed = blame_of(blocks({"interference.strength=0.2"}));
  CHECK(find(slowed, Change::NoInterference).step_ms == Approx(33));
  CHECK(find(slowed, Change::NoInterference).saves_ms > 0.5);
  // The host loads ahead of the device, so loading counts where it is longer than the step.
  const Blame hidden = blame_of(blocks({"data.loading={ batch = \"20 ms\" }"}));
  CHECK(hidden.step_ms == Approx(33));
  CHECK(find(hidden, Change::NoData).saves_ms == 0);
  const Blame loading = blame_of(blocks({"data.loading={ batch = \"40 ms\" }"}));
  CHECK(loading.step_ms == Approx(40));
  CHECK(find(loading, Change::NoData).saves_ms == Approx(7));
}

TEST_CASE("a change that the profile cannot price is said, not hidden") {
  Blame result = blame_of(blocks());
  for (Saving& saving : result.savings) {
    if (saving.change == Change::OneBucket) {
      saving.not_priced = "1 GiB is beyond the table";
    }
  }
  const std::string text = blame_text(blocks(), result);
  CHECK(text.find("one bucket: not priced: 1 GiB is beyond the table") != std::string::npos);
}

TEST_CASE("the last sentence names the largest saving and a command") {
  const Scenario scenario = blocks({"cluster.slow_ranks=[{rank=1, factor=1.5}]"});
  const std::string text = blame_text(scenario, blame_of(scenario));
  CHECK(text.find("Most would be saved if all ranks were equally fast: 15.000 ms, 31.2 % of the "
                  "step.\nNext: stepsim run blocks.toml --policy fixed --set "
                  "'cluster.slow_ranks=[]'\n") != std::string::npos);
}

TEST_CASE("where communication costs most, the next command asks for what the scenario can vary") {
  // Transfers of 30 ms a bucket, beside which the backward is short.
  const std::string slow =
      "cluster.all_reduce={ sizes = [\"1 KiB\", \"4 MiB\"], times = [\"30 ms\", \"30 ms\"] }";
  const auto next = [&](std::vector<std::string> overrides) {
    overrides.push_back(slow);
    const Scenario scenario = blocks(overrides);
    const std::string text = blame_text(scenario, blame_of(scenario));
    const std::size_t begin = text.rfind("Next: ");  // Warnings follow.
    return text.substr(begin, text.find('\n', begin) + 1 - begin);
  };
  const std::string with = " blocks.toml --policy fixed ";
  const std::string set = "--set '" + slow + "'";
  CHECK(next({}) ==
        "Next: stepsim sweep" + with + set + " --over ddp.bucket_cap=1MiB..256MiB:x2\n");
  CHECK(next({"ddp.torch=newest", "ddp.bucket_caps=[\"1 MiB\"]"}) ==
        "Next: stepsim buckets" + with +
            "--set ddp.torch=newest --set 'ddp.bucket_caps=[\"1 MiB\"]' " + set + " --best\n");
  // What is set anew stands once.
  CHECK(next({"ddp.bucket_rule=per_parameter"}) ==
        "Next: stepsim run" + with + set + " --set ddp.bucket_rule=pytorch\n");
}

TEST_CASE("a skew is named where it makes the ranks differ more than their batches do") {
  // Rank 1 has 1.5 times the work of rank 0: 1.2 times the mean.
  const Scenario scenario = blocks({"cluster.skew=0.5"});
  const Blame result = blame_of(scenario);
  CHECK(result.savings.front().change == Change::Balanced);
  CHECK(result.imbalance.work_over_mean == Approx(1));
  CHECK(result.imbalance.skew_over_mean == Approx(1.2));
  const std::string text = blame_text(scenario, result);
  CHECK(text.find("Why: cluster.skew gives the last rank 1.20 times the mean work of the ranks, "
                  "whatever the batches.\nNext: stepsim run blocks.toml --policy fixed --set "
                  "cluster.skew=0\n") != std::string::npos);
  // (10 + 20) ms (1 + 1.5) / 2, and 1.5 times that of a rank that is as much slower.
  CHECK(text.find("forward and backward: 37.500 ms a rank") != std::string::npos);
  const Scenario slower = blocks({"cluster.skew=0.5", "cluster.slow_ranks=[{rank=0, factor=1.5}]"});
  CHECK(sum_of(blame_of(slower).ops, &OpBlame::ms) == Approx((45 + 45) / 2.0));

  // Samples of 1 to 128 tokens differ more than that.
  const Scenario uneven = blocks({"cluster.skew=0.1",
                                  "times.tokens=64",
                                  "data.lengths={ uniform = [1, 128] }",
                                  "scenario.steps=12"});
  const Blame of_batches = blame_of(uneven);
  CHECK(of_batches.imbalance.work_over_mean ==
        Approx(of_batches.imbalance.heaviest_over_mean).epsilon(1e-3));
  CHECK(blame_text(uneven, of_batches).find("the most padded tokens has 1.") != std::string::npos);
}

TEST_CASE("an imbalance is explained by the window in which the policy sorts") {
  // A step takes 16 samples of a mega-batch of 16, which the two ranks cut into long and short.
  const std::vector<std::string> grouped = {"times.tokens=512",
                                            "data.lengths={ uniform = [1, 128] }",
                                            "policy.fixed.kind=hf_group_by_length",
                                            "policy.fixed.batch_size=8",
                                            "policy.fixed.mega_batch_mult=2"};
  const Scenario scenario = blocks(grouped);
  const Blame result = blame_of(scenario);
  REQUIRE(result.imbalance.window);
  CHECK(result.imbalance.window->samples == 16);
  CHECK(result.imbalance.samples_per_step == 16);
  CHECK(result.imbalance.heaviest_over_mean > 1.2);
  const std::string text = blame_text(scenario, result);
  CHECK(text.find("One step takes 16 samples, and the policy looks for similar lengths among 16") !=
        std::string::npos);
  CHECK(text.find("--set policy.fixed.mega_batch_mult=16\n") != std::string::npos);
}

TEST_CASE("a window of the whole data set, or of many steps, explains no imbalance") {
  for (const auto& [mult, samples] : {std::pair{8, 64}, std::pair{16, 256}}) {
    const auto& at_mult = mult;  // Clang 14 captures no structured bindings.
    CAPTURE(at_mult);
    const Blame result = blame_of(blocks({fmt::format("data.samples={}", samples),
                                          "data.lengths={ uniform = [1, 128] }",
                                          "policy.fixed.kind=hf_group_by_length",
                                          "policy.fixed.batch_size=8",
                                          fmt::format("policy.fixed.mega_batch_mult={}", mult)}));
    CHECK_FALSE(result.imbalance.window);
  }
}

TEST_CASE(
    "the host's time for units is blamed where there are units, and buckets where those are") {
  const auto changes = [](const Scenario& scenario) {
    return mapped(blame_of(scenario).savings, &Saving::change);
  };
  const auto of_ddp = changes(blocks());
  CHECK(std::ranges::count(of_ddp, Change::OneBucket) == 1);
  CHECK(std::ranges::count(of_ddp, Change::NoUnitHost) == 0);
  // Hooks of 10 ms before and after each block, beside 7.5 ms of its work.
  const Scenario sharded = blocks({"parallel.kind=fsdp2",
                                   "host.unit_forward=10 ms",
                                   "host.unit_backward=20 ms",
                                   "host.unit_forward_tensor=0 s",
                                   "host.unit_backward_tensor=0 s",
                                   "host.sharded_tensor=0 s"});
  const auto of_units = changes(sharded);
  CHECK(std::ranges::count(of_units, Change::OneBucket) == 0);
  const Blame result = blame_of(sharded);
  CHECK(find(result, Change::NoUnitHost).saves_ms > 60);
  const std::string text = blame_text(sharded, result, {});
  CHECK(text.find("Most would be saved if the host took no time for its units") !=
        std::string::npos);
}
