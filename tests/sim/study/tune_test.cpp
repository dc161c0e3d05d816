// The search for the best setting: against pricing everything.
#include "sim/study/tune/tune.h"

#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "sim/report/tune/tune_report.h"
#include "tests/approx.h"
#include "tests/sim/scenario/scenario_text.h"
#include "tests/source_root.h"

using namespace stepsim;
using stepsim::test::Approx;

namespace {

using Overrides = std::vector<std::string>;

Scenario tuned_scenario(const std::string& name, const Overrides& overrides) {
  return read_scenario(test::source_root() + "/scenarios/" + name + ".toml", overrides);
}

std::vector<SweepAxis> tuned_axes(const Overrides& texts) {
  std::vector<SweepAxis> axes;
  for (const std::string& text : texts) {
    axes.push_back(parse_sweep_axis(text));
  }
  return axes;
}

TuneResult tuned(const Scenario& scenario, const TuneSpace& space, const TuneOptions& options) {
  PointRunner runner;
  Jobs jobs(scenario, space.option());
  return tune(jobs, space, options, runner);
}

/// Many short samples and some long ones, with which the short ones are padded; no profile is
/// needed.
Scenario packed_samples() {
  return parse_scenario(R"(
[scenario]
name = "packed samples"
steps = 6
warmup_steps = 3
[cluster]
ranks = 2
topology = { algorithm = "ring", intra_latency = "10 us", intra_bandwidth = "1 GB/s" }
[times]
forward = "12 ms"
backward = "24 ms"
tokens = 1024
[model]
kind = "blocks"
layers = 12
block_elements = 250_000
[data]
samples = 512
lengths = { mixture = [{ weight = 9, constant = 50 }, { weight = 1, constant = 500 }] }
[[policy]]
name = "packed"
kind = "packed_bfd"
capacity = 550
rows = 2
)",
                        "packed.toml");
}

double best_speed(const TuneResult& result) {
  return result.finalists.front().price.useful_tokens_per_s();
}

/// A scenario, its settings, and a space over them, all drawn.
struct RandomSpace {
  std::string scenario;
  Overrides overrides;
  Overrides over;
};

class RandomSpaces {
 public:
  explicit RandomSpaces(std::uint32_t seed) : generator_(seed) {}

  RandomSpace next() {
    RandomSpace space;
    const bool engine = below(16) == 0;
    space.scenario = engine ? "busy_cluster" : "batching_libraries";
    const int ranks = std::vector{1, 4, 8, 64}[static_cast<std::size_t>(below(engine ? 3 : 4))];
    space.overrides = {fmt::format("cluster.ranks={}", ranks),
                       fmt::format("scenario.steps={}", 4 + below(5)),
                       fmt::format("scenario.warmup_steps={}", below(3)),
                       fmt::format("scenario.seed={}", below(1000)),
                       fmt::format("cluster.skew={}", 0.1 * below(6)),
                       fmt::format("ddp.set_to_none={}", below(2) == 0),
                       fmt::format("host.launch={} us", below(20))};
    if (ranks == 64) {  // More than the profile measured: the links price all collectives.
      space.overrides.push_back(
          fmt::format("cluster.topology={{algorithm=\"ring\",intra_latency=\"{} us\","
                      "intra_bandwidth=\"{} GB/s\"}}",
                      1 + below(20),
                      10 + below(200)));
    }
    if (engine) {
      space.overrides.push_back(ranks > 1
                                    ? fmt::format("cluster.slow_ranks=[{{rank={},factor={}}}]",
                                                  below(ranks),
                                                  1 + 0.1 * below(5))
                                    : "cluster.slow_ranks=[]");
      space.over = {"policy=fixed,token_budget",
                    fmt::format("policy.fixed.batch_size={},{}", 1 + below(4), 5 + below(4)),
                    fmt::format("policy.token_budget.max_tokens={},{}", 3000 + below(900), 8192)};
    } else {
      space.overrides.push_back(fmt::format("ddp.static_graph={}", below(5) == 0));
      space.over = {"policy=PyTorch,fairseq",
                    fmt::format("policy.PyTorch.batch_size={},{}", 1 + below(8), 10 + below(30)),
                    fmt::format("policy.PyTorch.pad_to_multiple_of=1,{}", 2 + below(60))};
    }
    space.over.push_back(fmt::format(
        "ddp.bucket_cap={} MiB,{} MiB,{} MiB", 1 + below(4), 5 + below(20), 30 + below(400)));
    if (below(2) == 0) {
      space.over.push_back("ddp.accumulation_steps=1,2");
    }
    if (ranks > 1 && below(2) == 0) {
      space.over.push_back("ddp.communication_hook=none,bf16,power_sgd");
    } else if (ranks > 1 && below(2) == 0) {
      space.over.push_back("ddp.zero_stage=0,1,2,3");
    }
    if (below(4) == 0) {
      space.over.push_back("model.checkpointing=true,false");
    }
    if (below(4) == 0) {
      space.overrides.push_back("cluster.communicator=gloo");
    }
    if (below(2) == 0) {
      space.over.push_back("ddp.gradient_as_bucket_view=false,true");
    }
    return space;
  }

 private:
  int below(int end) { return std::uniform_int_distribution<int>(0, end - 1)(generator_); }

  std::mt19937 generator_;
};

}  // namespace

TEST_CASE("tune: on random small spaces the certificate never lies") {
  RandomSpaces spaces(20);
  int searched = 0;
  std::size_t points = 0;
  std::size_t priced = 0;  // For the best alone.
  int fronts = 0;
  const char* wanted = std::getenv("STEPSIM_TUNE_SPACES");  // 200 take some minutes.
  const int count = wanted != nullptr ? std::stoi(wanted) : 4;
  for (int i = 0; i < count; ++i) {
    const RandomSpace drawn = spaces.next();
    CAPTURE(fmt::format("{}", fmt::join(drawn.overrides, "; ")));
    CAPTURE(fmt::format("{}", fmt::join(drawn.over, "; ")));
    const Scenario scenario = tuned_scenario(drawn.scenario, drawn.overrides);
    const TuneSpace space(scenario, tuned_axes(drawn.over));
    TuneOptions options;
    options.limits.samples = {0, 1e9};
    options.draws = false;
    const TuneResult found = tuned(scenario, space, options);
    options.exhaustive = true;
    const TuneResult all = tuned(scenario, space, options);
    CHECK(found.certificate <= options.within);
    CHECK(found.open == 0);
    CHECK(best_speed(all) <= best_speed(found) * (1 + found.certificate) * (1 + 1e-9));
    CHECK(all.priced + all.refused + all.out_of_memory + all.outside_limits + all.same_buckets ==
          all.points);
    CHECK(found.priced + found.refused + found.out_of_memory + found.outside_limits +
              found.same_buckets + found.bounded ==
          found.points);
    // Whatever is on the front of all points, one of the found front is as good within the slack.
    for (const TunedPoint& point : all.front) {
      const bool covered = std::ranges::any_of(found.front, [&](const TunedPoint& other) {
        return other.price.useful_tokens_per_s() * (1 + options.within) * (1 + 1e-9) >=
                   point.price.useful_tokens_per_s() &&
               other.price.memory_mib <= point.price.memory_mib * (1 + options.within) &&
               other.displacement <= point.displacement + options.within;
      });
      CHECK((covered || found.front_open > 0));
    }
    fronts += found.front_open == 0 ? 1 : 0;
    for (const TunedPoint& point : all.finalists) {
      CHECK(point.price.useful_tokens_per_s() <= point.bound_tokens_per_s * (1 + 1e-9));
    }
    for (const TunedPoint& point : all.front) {
      CHECK(point.price.useful_tokens_per_s() <= point.bound_tokens_per_s * (1 + 1e-9));
    }
    ++searched;
    points += all.priced;
    priced += found.priced - found.front_priced;
  }
  CHECK(searched == count);
  CHECK(fronts == count);
  CHECK(priced < points / 2);
}

TEST_CASE("tune: a planted optimum is found") {
  // One bucket of 21.6 MiB on a slow network: all but one setting of each key costs time.
  const Overrides overrides = {"scenario.steps=6"};
  const Scenario scenario = tuned_scenario("token_skew", overrides);
  const TuneSpace space(scenario,
                        tuned_axes({"policy=bucketing,variable_fixed",
                                    "policy.bucketing.pad_to_multiple_of=512,1,256",
                                    "cluster.skew=2,0.5,0,1",
                                    "ddp.bucket_cap=1 MiB,25 MiB",
                                    "ddp.gradient_as_bucket_view=false,true"}));
  CHECK(space.size() == 3 * 16 + 16);
  TuneOptions options;
  options.within = 0;
  const TuneResult result = tuned(scenario, space, options);
  const std::vector<Setting> best = space.settings(result.finalists.front().choice);
  const auto is_set = [&](const char* key, const char* value) {
    return std::ranges::count(best, Setting(key, value)) == 1;
  };
  CHECK(space.policies()[result.finalists.front().choice.policy].name == "bucketing");
  CHECK(is_set("policy.bucketing.pad_to_multiple_of", "1"));
  CHECK(is_set("cluster.skew", "0"));
  CHECK(is_set("ddp.gradient_as_bucket_view", "true"));
  CHECK(result.certificate == 0);
  CHECK(result.priced < space.size() / 3);
}

TEST_CASE("tune: limits leave out what does not meet them, and say so") {
  const Scenario scenario = tuned_scenario("token_skew", {});
  const TuneSpace space(scenario, tuned_axes({"policy.variable_fixed.batch_size=2..16:+2"}));
  TuneOptions options;
  options.limits.samples = {32, 40};  // 8 or 10 a rank.
  TuneResult result = tuned(scenario, space, options);
  for (const TunedPoint& point : result.finalists) {
    CHECK(point.samples >= 32);
    CHECK(point.samples <= 40);
  }
  CHECK(result.outside_limits > 0);
  options.limits.displacement = 0.05;  // Sorted batches are far from the sampler's order.
  result = tuned(scenario, space, options);
  for (const TunedPoint& point : result.front) {
    CHECK(point.displacement <= 0.05);
    CHECK(space.policies()[point.choice.policy].name == "variable_fixed");
  }
  options.limits.samples = {1e6, 2e6};
  CHECK_THROWS_AS((void)tuned(scenario, space, options), InputError);
}

TEST_CASE("tune: what is outside the limits is planned, but not priced") {
  const Scenario scenario = tuned_scenario("token_skew", {});
  Jobs jobs(scenario);
  const std::int64_t before = batches_priced();
  TuneLimits limits;
  limits.samples = {1e6, 2e6};
  const WorkBound outside = work_bound(jobs.job("", {}), limits);
  CHECK_FALSE(meets(limits, outside));
  limits = {};
  limits.displacement = -1;
  CHECK_FALSE(meets(limits, work_bound(jobs.job("", {}), limits)));
  CHECK(outside.ready_s.empty());
  CHECK(batches_priced() == before);
  const WorkBound inside = work_bound(jobs.job("", {}));
  CHECK(batches_priced() == before + 1);
  CHECK_FALSE(inside.ready_s.empty());
  CHECK(inside.samples == outside.samples);
  CHECK(inside.useful_tokens == outside.useful_tokens);
}

TEST_CASE("tune: a setting that crops samples is named, or left out where all are to be kept") {
  const Scenario scenario = packed_samples();
  const TuneSpace space(scenario,
                        tuned_axes({"policy.packed.capacity=100,550", "policy.packed.rows=2,12"}));
  TuneOptions options;
  options.limits.tokens = {0, 3000};
  TuneResult result = tuned(scenario, space, options);
  // Rows of 100 hold two short samples or the beginning of a long one: nothing is padded, and of
  // each long sample 400 tokens are lost, 400 of 950 in the mean.
  const TunedPoint& best = result.finalists.front();
  CHECK(space.settings(best.choice)[0] == Setting("policy.packed.capacity", "100"));
  CHECK(best.left_out == Approx(400.0 / 950).epsilon(0.1));
  CHECK(best_reference(result)->left_out == 0);
  CHECK(best_reference(result)->meets_limits);
  const std::string headline = tune_headline(space, result);
  CHECK(headline.starts_with("Use packed: capacity 100, rows 12: "));
  CHECK(headline.find(fmt::format("It leaves {:.1f} % of an epoch's tokens out (lost or cropped), "
                                  "packed as the scenario has it none",
                                  100 * best.left_out)) != std::string::npos);
  CHECK(tune_text(scenario, space, result).find("tokens left out") != std::string::npos);
  CHECK(tune_json(scenario, space, result)["finalists"][0]["tokens_left_out"] == best.left_out);
  // What crops nothing stays on the front, however much slower it is.
  CHECK(std::ranges::any_of(result.front,
                            [](const TunedPoint& point) { return point.left_out == 0; }));

  options.limits.keeps_samples = true;
  result = tuned(scenario, space, options);
  CHECK(result.outside_limits > 0);
  for (const TunedPoint& point : result.all) {
    CHECK(point.left_out == 0);
    CHECK(space.settings(point.choice)[0] == Setting("policy.packed.capacity", "550"));
  }
  CHECK(tune_text(scenario, space, result).find("left out") == std::string::npos);
}

TEST_CASE("tune: what a varlen call cuts is left out as well") {
  const Scenario scenario = tuned_scenario("varlen_nanochat",
                                           {"scenario.steps=3",
                                            "data.samples=1024",
                                            "data.lengths={uniform=[1,2048]}",
                                            "policy.padded.batch_size=2",
                                            "policy.padded.attention=varlen",
                                            "policy.padded.varlen={max_seq_len=1024}"});
  Jobs jobs(scenario, "--over");
  const std::vector<WorkBound> works =
      own_works(TuneSpace(scenario, tuned_axes({"policy=padded,packed rows"})), jobs);
  REQUIRE(works.size() == 2);
  // Uniform up to L and cut at L/2: half of them lose L/4 in the mean, of L/2.
  CHECK(works[0].refused.empty());
  CHECK(works[0].left_out == Approx(0.25).epsilon(0.1));
  CHECK(works[1].left_out == 0);
}

TEST_CASE("tune: a policy that cannot be priced as it stands is named, and others are searched") {
  const Scenario scenario =
      read_scenario(test::source_root() + "/scenarios/accumulation.toml",
                    Overrides{"policy.fixed.attention=dense", "scenario.steps=6"});
  const TuneSpace space(scenario, tuned_axes({"ddp.bucket_cap=1MiB,4MiB"}));
  const TuneResult result = tuned(scenario, space, {});
  REQUIRE(!result.finalists.empty());
  const auto fixed = std::ranges::find(result.references, "fixed", &TuneReference::policy);
  REQUIRE(fixed != result.references.end());
  CHECK(fixed->price.refused.find("no cost for") != std::string::npos);
  CHECK(result.finalists.front().choice.policy !=
        static_cast<std::size_t>(fixed - result.references.begin()));
  CHECK(fixed->gain.gain == 0);
  CHECK(tune_json(scenario, space, result).dump().find("nan") == std::string::npos);
}

TEST_CASE("tune: the scenario's own setting is kept where nothing is faster for certain") {
  const Scenario scenario = packed_samples();
  // The own setting needs least time; a copy into buckets costs nothing here, only memory.
  const TuneSpace space(scenario,
                        tuned_axes({"ddp.gradient_as_bucket_view=false", "ddp.zero_stage=0,1"}));
  TuneResult result = tuned(scenario, space, {});
  CHECK_FALSE(is_better(result));
  CHECK(tune_headline(space, result)
            .starts_with("Nothing to gain here: keep packed as the scenario has it ("));
  CHECK(tune_headline(space, result).ends_with("; no setting of this space is faster."));
  CHECK(tune_json(scenario, space, result)["is_better"] == false);

  // 0.5 % faster by [times] would be worth nothing, 5 % are certain.
  const TuneSpace shorter(scenario, tuned_axes({"times.forward=11.8 ms"}));
  result = tuned(scenario, shorter, {});
  CHECK_FALSE(is_better(result));
  CAPTURE(tune_headline(shorter, result));
  CHECK(tune_headline(shorter, result).starts_with("Nothing to gain here, at most 0."));
  CHECK(tune_headline(shorter, result).find(" %: keep packed as the scenario has it (") !=
        std::string::npos);
  CHECK(tune_headline(shorter, result).ends_with(". The fastest setting is packed."));
  // What is kept is what the command runs.
  CHECK(tune_text(scenario, shorter, result).ends_with("--policy packed\n"));
  const TuneSpace fast(scenario, tuned_axes({"times.forward=6 ms"}));
  result = tuned(scenario, fast, {});
  CHECK(is_better(result));
  CHECK(tune_headline(fast, result).starts_with("Use packed"));

  // It cannot be kept where it does not meet the limits.
  TuneOptions options;
  options.limits.samples = {1, 12};
  const TuneSpace halved(scenario, tuned_axes({"policy.packed.rows=1"}));
  result = tuned(scenario, halved, options);
  CHECK(is_better(result));
  CHECK(tune_headline(halved, result).starts_with("Use packed"));
  CHECK(tune_headline(halved, result).ends_with(", which is outside the limits."));
}

TEST_CASE("tune: a change that gains nothing of its own is not recommended") {
  // Views of the buckets save 0.4 % of the step, and the bucket's size 0.1 %: the size of the batch
  // is what gains.
  const Scenario scenario = tuned_scenario("two_nodes", {"scenario.steps=8"});
  const TuneSpace space(scenario, {});
  const TuneResult result = tuned(scenario, space, {});
  REQUIRE(result.simplified);
  const TunedPoint& first = result.finalists[0];
  const TunedPoint& fastest = result.finalists[1];
  CHECK(space.settings(first.choice).size() < space.settings(fastest.choice).size());
  CHECK(fastest.price.useful_tokens_per_s() == result.all.front().price.useful_tokens_per_s());
  CHECK(fastest.price.useful_tokens_per_s() > first.price.useful_tokens_per_s());
  CHECK(gain_over(fastest.drawn.useful_tokens_per_s(), first.drawn.useful_tokens_per_s()) <
        kSmallestGain);
  CHECK(best_reference(result)->gain.is_certain());
  CHECK(fastest.gain.gain < 0);
  CHECK(result.certificate >=
        gain_over(fastest.price.useful_tokens_per_s(), first.price.useful_tokens_per_s()));
  // Each change that is left gains by itself.
  for (const TuneChoice& simpler : space.simpler(first.choice)) {
    const auto priced = std::ranges::find(result.all, space.number(simpler), &TunedPoint::number);
    const bool as_fast = priced != result.all.end() &&
                         gain_over(fastest.price.useful_tokens_per_s(),
                                   priced->price.useful_tokens_per_s()) < kSmallestGain;
    CHECK_FALSE(as_fast);
  }
  const std::string headline = tune_headline(space, result);
  CHECK(headline.starts_with("Use token_budget: "));
  CHECK(headline.find("bucket_cap") == std::string::npos);
  CHECK(headline.find(" What else it could change gains ") != std::string::npos);
  const Json json = tune_json(scenario, space, result);
  CHECK(json["changes_less"] == true);
  CHECK(json["finalists"][0]["remark"] == "changes less");
  CHECK(json["finalists"][1]["remark"] == "fastest");
}

TEST_CASE("tune: a change that gains with noise alone is kept") {
  // Each step stalls for a millisecond, which prices without noise do not know. More samples a step
  // share it; without it they gain only what the last bucket takes.
  const Scenario scenario = parse_scenario(R"(
[scenario]
name = "stalls"
steps = 12
warmup_steps = 2
[cluster]
ranks = 2
topology = { algorithm = "ring", intra_latency = "5 us", intra_bandwidth = "8 GB/s" }
[noise]
stall_probability = 1
stall = "1 ms"
[times]
forward = "12 ms"
backward = "24 ms"
tokens = 1024
[model]
kind = "blocks"
layers = 12
block_elements = 250_000
[data]
samples = 2048
lengths = { constant = 128 }
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 8
)",
                                           "stalls.toml");
  const TuneSpace space(scenario, {});
  TuneOptions options;
  options.limits.samples = {1, 1000};
  const TuneResult result = tuned(scenario, space, options);
  const auto smaller = std::ranges::find_if(result.finalists, [&](const TunedPoint& point) {
    return space.settings(point.choice) == std::vector<Setting>{{"ddp.bucket_cap", "2 MiB"}};
  });
  REQUIRE(smaller != result.finalists.end());
  const auto gain_of = [&](TunePrice TunedPoint::*price) {
    return gain_over((result.finalists.front().*price).useful_tokens_per_s(),
                     ((*smaller).*price).useful_tokens_per_s());
  };
  CHECK(gain_of(&TunedPoint::price) < kSmallestGain);
  CHECK(gain_of(&TunedPoint::drawn) > 2 * kSmallestGain);
  CHECK_FALSE(result.simplified);
  CHECK(result.finalists.front().price.useful_tokens_per_s() ==
        result.all.front().price.useful_tokens_per_s());
}

TEST_CASE("tune: a choice and its number are one") {
  const Scenario scenario = tuned_scenario("token_skew", {});
  const TuneSpace space(scenario, {});
  for (std::size_t number = 0; number < space.size(); number += 97) {
    CHECK(space.number(space.choice(number)) == number);
  }
  CHECK(space.simpler(space.choice(0)).empty());
  const TuneSpace listed(scenario, tuned_axes({"ddp.bucket_cap=1MiB,4MiB"}));
  CHECK(listed.simpler(listed.choice(1)).empty());  // It does not say what the scenario has.
}

TEST_CASE("tune: a default space leaves alone what the scenario has, stated or not") {
  // To state the newest DDP's default cap would move the limit of its first bucket as well.
  const Scenario scenario = parse_scenario(
      test::replaced(test::kBlocksText, "[ddp]\n", "[ddp]\ntorch = \"newest\"\n"), "b.toml", {});
  const TuneSpace space(scenario, {});
  CHECK(space.text(space.choice(0)) == "as it stands");
  CHECK(space.settings(space.choice(0)).empty());
  CHECK(space.settings(space.choice(1)) == std::vector<Setting>{{"ddp.bucket_cap", "1 MiB"}});
}

TEST_CASE("tune: of equally fast settings the front has the one that needs least memory") {
  // Without bandwidths of copies, gradients that live in the buckets save memory and no time.
  const Scenario scenario = packed_samples();
  const TuneSpace space(scenario, tuned_axes({"ddp.gradient_as_bucket_view=false,true"}));
  const TuneResult result = tuned(scenario, space, {});
  REQUIRE(result.all.size() == 2);
  CHECK(result.all[0].price.useful_tokens_per_s() == result.all[1].price.useful_tokens_per_s());
  REQUIRE(result.front.size() == 1);
  CHECK(space.settings(result.front[0].choice)[0] ==
        Setting("ddp.gradient_as_bucket_view", "true"));
  CHECK(space.settings(result.finalists[0].choice)[0] ==
        Setting("ddp.gradient_as_bucket_view", "true"));
}

TEST_CASE("tune: a search that is ended says what is open") {
  // What a hook sends is not known, so that no bound excludes it.
  const Scenario scenario = tuned_scenario("bucket_valley", {});
  const TuneSpace space(scenario,
                        tuned_axes({"ddp.bucket_cap=25 MiB,50 MiB,100 MiB,200 MiB",
                                    "ddp.communication_hook=power_sgd,batched_power_sgd"}));
  TuneOptions options;
  options.most_priced = 4;
  options.within = 0;
  const TuneResult result = tuned(scenario, space, options);
  CHECK(result.priced <= 4);
  CHECK(result.open > 0);
  CHECK(result.open_gain > 0);
}

TEST_CASE("tune: spaces that cannot be searched are refused before anything is priced") {
  const Scenario scenario = tuned_scenario("token_skew", {});
  const auto refuses = [&](const Overrides& over) {
    CHECK_THROWS_AS((void)TuneSpace(scenario, tuned_axes(over)), InputError);
  };
  refuses({"ddp.bucket_cap=1MiB,2MiB", "ddp.bucket_cap=4MiB"});
  refuses({"policy.nobody.batch_size=1,2"});
  refuses({"policy=nobody"});
  refuses({"scenario.steps=10,20"});
  refuses({"scenario.seed=1..10000:+1", "data.samples=3000..4000:+1"});
}

TEST_CASE("tune: points are numbered through, and each is another setting") {
  const Scenario scenario = tuned_scenario("token_skew", {});
  const TuneSpace space(scenario,
                        tuned_axes({"policy.bucketing.batch_size=4,8,16",
                                    "ddp.bucket_cap=1MiB,25MiB",
                                    "ddp.zero_stage=0,1"}));
  CHECK(space.size() == (1 + 1 + 3) * 4);
  std::set<std::string> seen;
  for (std::size_t i = 0; i < space.size(); ++i) {
    const TuneChoice choice = space.choice(i);
    seen.insert(fmt::format("{} {}",
                            space.policies()[choice.policy].name,
                            fmt::join(mapped(space.settings(choice), &Setting::text), " ")));
  }
  CHECK(seen.size() == space.size());
}
