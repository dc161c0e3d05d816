// The best cap and the best list of a scenario against all caps and all lists, played by the event
// engine.
#include "sim/study/best_buckets.h"

#include <algorithm>
#include <functional>
#include <limits>

#include <doctest/doctest.h>
#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "sim/predict/predict.h"
#include "sim/predict/scenario_profile.h"
#include "tests/approx.h"
#include "tests/costmodel/helpers.h"

using namespace stepsim;
using stepsim::test::Approx;

namespace {

constexpr int kListedBlocks = 7;
constexpr std::int64_t kBlockBytes = 4'000'000;

/// Seven blocks of 4 MB by measured times on four ranks, with equal batches unless `lengths` says
/// otherwise.
Scenario listed_blocks(const std::string& ddp,
                       const std::string& bandwidth,
                       const std::string& latency,
                       const std::string& lengths = "{ constant = 10 }") {
  return parse_scenario(fmt::format(R"(
[scenario]
name = "blocks"
steps = 9
warmup_steps = 3
[cluster]
ranks = 4
topology = {{ algorithm = "ring", intra_latency = "{}", intra_bandwidth = "{}" }}
[times]
forward = "10 ms"
backward = "20 ms"
optimizer = "5 ms"
copy_bandwidth = "20 GB/s"
tokens = 40
[model]
kind = "blocks"
layers = {}
block_elements = 1_000_000
[ddp]
{}
[data]
samples = 256
lengths = {}
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 4
)",
                                    latency,
                                    bandwidth,
                                    kListedBlocks,
                                    ddp,
                                    lengths),
                        "blocks.toml",
                        {});
}

BestBuckets best_of(const Scenario& scenario) {
  return best_buckets(scenario, scenario.policies.front(), scenario_profile(scenario), 0);
}

double by_engine(const Scenario& scenario) {
  return predict(scenario,
                 scenario.policies.front(),
                 scenario_profile(scenario),
                 {.noise_runs = 0, .engine = true})
      .summary.step_time_ms.mean;
}

/// The shortest step over all lists of limits that are whole numbers of blocks.
double best_by_engine(Scenario scenario) {
  double best = std::numeric_limits<double>::infinity();
  scenario.ddp.torch = DdpRules::Newest;
  for (unsigned bits = 0; bits < 1U << (kListedBlocks - 1); ++bits) {
    scenario.ddp.bucket_caps = {Bytes(kBlockBytes)};
    for (unsigned i = 0; i + 1 < kListedBlocks; ++i) {
      if ((bits >> i & 1U) != 0) {
        scenario.ddp.bucket_caps.emplace_back(kBlockBytes);
      } else {
        scenario.ddp.bucket_caps.back() += Bytes(kBlockBytes);
      }
    }
    best = std::min(best, by_engine(scenario));
  }
  return best;
}

double step_ms(const BucketChoice& choice) {
  return choice.prediction.summary.step_time_ms.mean;
}

std::string refusal(const std::string& ddp,
                    const std::string& from = "",
                    const std::string& to = "") {
  Scenario scenario = listed_blocks(ddp, "2 GB/s", "1 ms");
  return test::error_of([&] {
    std::string text = scenario.text;
    if (!from.empty()) {
      text.replace(text.find(from), from.size(), to);
    }
    (void)best_of(parse_scenario(text, "blocks.toml", {}));
  });
}

}  // namespace

TEST_CASE("the best list of equal steps is the best of all lists, played by the engine") {
  int list_wins = 0;
  for (const char* bandwidth : {"0.5 GB/s", "1.3 GB/s", "2 GB/s", "8 GB/s"}) {
    for (const char* latency : {"1 us", "200 us", "1 ms"}) {
      for (const char* ddp : {"", "gradient_as_bucket_view = true", "last_bucket_cap = true"}) {
        CAPTURE(bandwidth);
        CAPTURE(latency);
        CAPTURE(ddp);
        const Scenario scenario = listed_blocks(ddp, bandwidth, latency);
        const BestBuckets best = best_of(scenario);
        CHECK(best.plain);
        CHECK(best.searched == 1);
        CHECK(step_ms(best.list) == Approx(best_by_engine(scenario)).epsilon(1e-12));
        CHECK(step_ms(best.list) <= step_ms(best.cap));
        CHECK(step_ms(best.cap) <= step_ms(best.standard));
        list_wins += step_ms(best.list) < step_ms(best.cap) - 1e-6 ? 1 : 0;
        double cap_ms = by_engine(scenario);
        for (std::int64_t blocks_in = 1; blocks_in <= kListedBlocks; ++blocks_in) {
          Scenario one = scenario;
          one.ddp.bucket_cap = Bytes(blocks_in * kBlockBytes);
          cap_ms = std::min(cap_ms, by_engine(one));
        }
        CHECK(step_ms(best.cap) == Approx(cap_ms).epsilon(1e-12));
        // What is to be pasted makes these predictions.
        for (const BucketChoice* choice : {&best.cap, &best.list}) {
          const Scenario pasted =
              listed_blocks(ddp + std::string("\n") + toml_lines(*choice), bandwidth, latency);
          CHECK(pasted.ddp.bucket_caps == choice->ddp.bucket_caps);
          CHECK(by_engine(pasted) == Approx(step_ms(*choice)).epsilon(1e-12));
        }
      }
    }
  }
  CHECK(list_wins > 0);
}

TEST_CASE("over unequal steps a list is never behind the best cap, nor that behind the default") {
  for (const char* ddp : {"",
                          "torch = \"newest\"",
                          "find_unused_parameters = true",
                          "accumulation_steps = 2",
                          "communication_hook = \"fp16\""}) {
    CAPTURE(ddp);
    const Scenario scenario = listed_blocks(ddp, "1.3 GB/s", "300 us", "{ uniform = [4, 30] }");
    const BestBuckets best = best_of(scenario);
    CHECK(best.searched > 1);
    CHECK(best.plain == (std::string(ddp).empty() || std::string(ddp).starts_with("torch")));
    CHECK(step_ms(best.list) <= step_ms(best.cap));
    CHECK(step_ms(best.cap) <= step_ms(best.standard));
    CHECK(best.list_over_standard.gain >= best.cap_over_standard.gain);
    CHECK(best.cap_lists >= kListedBlocks - 1);
  }
}

TEST_CASE("buckets that the scenario has are kept where no other gains a percent over them") {
  const auto best_with = [](const char* cap) {
    return best_of(listed_blocks(cap, "1.3 GB/s", "300 us", "{ uniform = [4, 30] }"));
  };
  const BestBuckets standard = best_with("");
  CHECK_FALSE(standard.own.has_value());
  REQUIRE(standard.cap_over_standard.is_certain());
  CHECK(&chosen_buckets(standard) != &standard.standard);
  const std::string best_cap = "bucket_cap = \"" + standard.cap.mib.front() + " MiB\"";
  const BestBuckets kept = best_with(best_cap.c_str());
  REQUIRE(kept.own.has_value());
  CHECK(step_ms(*kept.own) == step_ms(kept.cap));
  CHECK_FALSE(kept.fastest_over_own.is_certain());
  CHECK(&chosen_buckets(kept) == &*kept.own);
}

TEST_CASE("what bucket sizes cannot change is refused with the reason") {
  const std::string none = "bucket sizes have no effect: ";
  CHECK(refusal("bucket_rule = \"single\"") == none + "ddp.bucket_rule is not \"pytorch\"");
  CHECK(refusal("zero_stage = 3") == none + "ddp.zero_stage = 3 gathers and scatters by layer");
  CHECK(refusal("optimize_ddp = \"ddp_optimizer\"").ends_with("sweep ddp.bucket_cap instead"));
  CHECK(refusal("", "ranks = 4", "ranks = 1") == none + "there is one rank");
}

TEST_CASE("bucket sizes are written as Python and shells take them") {
  BucketChoice choice;
  choice.mib = {"25"};
  CHECK(python_argument(choice) == "bucket_cap_mb=25");
  CHECK(toml_lines(choice) == "bucket_cap = \"25 MiB\"\n");
  using Settings = std::vector<Setting>;
  const DdpOptions scenario;
  CHECK(choice_settings(choice, scenario) == Settings{{"ddp.bucket_cap", "25 MiB"}});
  choice.ddp.torch =
      DdpRules::Newest;  // Which has a first bucket of 1 MiB while nobody states a cap.
  CHECK(python_argument(choice) == "bucket_cap_mb=None");
  CHECK(toml_lines(choice) == "bucket_cap = \"25 MiB\"\nfirst_bucket_cap = \"1 MiB\"\n");
  CHECK(choice_settings(choice, scenario) ==
        Settings{{"ddp.bucket_cap", "25 MiB"}, {"ddp.first_bucket_cap", "1 MiB"}});
  choice.ddp.first_bucket_cap = choice.ddp.bucket_cap;
  CHECK(python_argument(choice) == "bucket_cap_mb=25");
  DdpOptions listed;
  listed.bucket_caps = {Bytes(1), Bytes(2)};
  CHECK(choice_settings(choice, listed) == Settings{{"ddp.bucket_caps", "[\"25 MiB\"]"}});
  choice.mib = {"1", "60.5"};
  choice.ddp.bucket_caps = {Bytes(1), Bytes(2)};
  CHECK(python_argument(choice) == "bucket_cap_mb_list=[1, 60.5]");
  CHECK(toml_lines(choice) == "torch = \"newest\"\nbucket_caps = [\"1 MiB\", \"60.5 MiB\"]\n");
  CHECK(choice_settings(choice, scenario) ==
        Settings{{"ddp.torch", "newest"}, {"ddp.bucket_caps", "[\"1 MiB\", \"60.5 MiB\"]"}});
}

TEST_CASE("best buckets: what gains less than 1 % is not worth other buckets") {
  const auto gain = [](double share) { return Gain{share, {share, share}, 1, false}; };
  BestBuckets best;
  best.cap_over_standard = gain(0.009);
  CHECK(&chosen_buckets(best) == &best.standard);
  best.cap_over_standard = gain(0.011);
  CHECK(&chosen_buckets(best) == &best.cap);
  best.list_over_cap = best.list_over_standard = gain(0.011);
  CHECK(&chosen_buckets(best) == &best.list);
  best.list_over_cap = gain(0.009);
  CHECK(&chosen_buckets(best) == &best.cap);
  best.own = best.standard;
  best.fastest_over_own = gain(0.009);
  CHECK(&chosen_buckets(best) == &*best.own);
  best.fastest_over_own = gain(0.011);
  CHECK(&chosen_buckets(best) == &best.cap);
}
