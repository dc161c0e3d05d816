// Whole runs of scenarios beyond the plain recurrence: each figure is worked out by hand.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "sim/predict/predict.h"
#include "sim/predict/run/plain_player.h"
#include "sim/predict/step_simulator.h"
#include "sim/report/notes.h"
#include "tests/approx.h"
#include "tests/sim/predict/predict_quietly.h"
#include "tests/sim/scenario/scenario_text.h"

using namespace stepsim;
using stepsim::test::Approx;

namespace {

/// 10 blocks of 1 ms forward and 2 ms backward, 4 MB each, 5 ms of optimizer, 2 ranks.
const std::string kBlocks = R"(
[scenario]
name = "blocks"
steps = 12
warmup_steps = 4
[cluster]
ranks = 2
topology = { algorithm = "ring", intra_latency = "0 us", intra_bandwidth = "4 GB/s" }
[times]
forward = "10 ms"
backward = "20 ms"
optimizer = "5 ms"
[model]
kind = "blocks"
layers = 10
block_elements = 1_000_000
[ddp]
bucket_rule = "per_parameter"
gradient_as_bucket_view = true
[data]
samples = 4096
lengths = { constant = 8 }
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 1
)";

Prediction run(const std::vector<std::string>& overrides, int noise_runs = 0) {
  const Scenario scenario = parse_scenario(kBlocks, "blocks.toml", overrides);
  return predict(
      scenario, scenario.policies.front(), scenario_profile(scenario), {.noise_runs = noise_runs});
}

double step_ms(const std::vector<std::string>& overrides) {
  return run(overrides).summary.step_time_ms.mean;
}

/// Forces the engine without changing what happens.
const std::string kEngine = "host.queue_depth=1000000";

}  // namespace

TEST_CASE("run: an all-reduce of 4 MB at 4 GB/s hides behind 2 ms of backward but for the last") {
  CHECK(step_ms({}) == Approx(10 + 20 + 1 + 5));
  CHECK(step_ms({kEngine}) == Approx(36));
}

TEST_CASE("run: checkpointing runs each layer's forward once more, before its backward") {
  const std::string checkpointing = "model.checkpointing=true";
  CHECK(step_ms({checkpointing}) == Approx(10 + 10 + 20 + 1 + 5));
  CHECK(step_ms({checkpointing, kEngine}) == Approx(46));
  CHECK(step_ms({checkpointing, "ddp.accumulation_steps=2"}) == Approx(2 * 40 + 1 + 5));
  // Fully sharded, the parameters of a block are gathered before it computes again.
  CHECK(step_ms({checkpointing, "ddp.zero_stage=3"}) - step_ms({"ddp.zero_stage=3"}) == Approx(10));
}

TEST_CASE("run: the profile's interference holds unless the scenario states its own") {
  const auto predicted = [](const std::vector<std::string>& overrides) {
    const Scenario scenario = parse_scenario(kBlocks, "blocks.toml", overrides);
    Profile profile = scenario_profile(scenario);
    profile.interference.emplace().value.compute = 0.1;
    profile.interference->value.transfer = 0.5;
    profile.interference->samples = 12;
    return predict(scenario, scenario.policies.front(), profile, {.noise_runs = 0});
  };
  const std::string note =
      "by 12 measurements of the profile, compute takes 10.0 % longer and transfers 50.0 % longer "
      "while they overlap; "
      "[interference] in the scenario takes its place";
  const Prediction measured = predicted({});
  CHECK(measured.summary.step_time_ms.mean ==
        Approx(step_ms({"interference.compute=0.1", "interference.transfer=0.5"})));
  CHECK(measured.summary.step_time_ms.mean > step_ms({}));
  const auto count = [&note](const Prediction& prediction) {
    const std::vector<std::string> texts = note_texts(prediction);
    return std::count(texts.begin(), texts.end(), note);
  };
  CHECK(count(measured) == 1);
  for (const char* own : {"interference.compute=0", "interference={}"}) {
    CAPTURE(own);
    const Prediction stated = predicted({own});
    CHECK(stated.summary.step_time_ms.mean == step_ms({}));
    CHECK(count(stated) == 0);
  }
}

TEST_CASE("run: the interval of a step holds those of the measured interference") {
  const auto width = [](double half) {
    const std::vector<std::string> exact = {"times.error=0"};
    const Scenario scenario = parse_scenario(kBlocks, "blocks.toml", exact);
    Profile profile = scenario_profile(scenario);
    CollectiveCost& all_reduce = profile.collectives.emplace_back();  // 4 GB/s, without an error.
    all_reduce.ranks = 2;
    all_reduce.knots = {{1e6, 0.25e-3}, {8e6, 2e-3}};
    profile.interference.emplace().value.compute = 0.5;
    profile.interference->compute = {0.5 - half, 0.5 + half};
    const StepTimeSummary times =
        predict(scenario, scenario.policies.front(), profile, {.noise_runs = 400})
            .summary.step_time_ms;
    return times.high90 - times.low90;
  };
  CHECK(width(0) == 0);
  // Nine transfers of 1 ms run beside the backward. With a slowdown of c it gets 1 / (1 + c) ms of
  // work done meanwhile and loses c / (1 + c): 9 * 0.2 / 1.2 = 1.5 ms to 9 * 0.8 / 1.8 = 4 ms.
  CHECK(width(0.3) > 2.1);
  CHECK(width(0.3) < 2.9);
}

TEST_CASE("run: the engine and the recurrence give the same steps") {
  for (const char* name : {"sst2_distilbert", "token_skew", "bucket_valley"}) {
    CAPTURE(name);
    const std::string path = test::source_root() + "/scenarios/" + name + ".toml";
    const auto predicted = [&](const std::vector<std::string>& overrides) {
      const Scenario scenario = read_scenario(path, overrides);
      return test::predict_quietly(scenario);
    };
    const Prediction plain = predicted({});
    const Prediction engine = predicted({kEngine});
    REQUIRE(plain.steps.size() == engine.steps.size());
    // The engine also plays the rebuild of the second step, whose syncs hold the host back: single
    // steps of launch-bound runs shift, their mean does not.
    CHECK(engine.summary.step_time_ms.mean ==
          Approx(plain.summary.step_time_ms.mean).epsilon(1e-3));
    CHECK(engine.summary.communication_ms == Approx(plain.summary.communication_ms).epsilon(1e-6));
  }
}

namespace {

std::vector<StepTimeline> played_by_rows(const Run& run) {
  PlainPlayer player(run);
  std::vector<StepTimeline> timelines;
  for (int step = 0; step < run.scenario().steps; ++step) {
    timelines.push_back(player.next());
  }
  return timelines;
}

/// Rows do not say when each rank's part of a bucket was ready.
std::vector<StepTimeline> without_ready_times(std::vector<StepTimeline> timelines) {
  for (StepTimeline& timeline : timelines) {
    for (RankTimeline& rank : timeline.ranks) {
      rank.ready_at.clear();
    }
  }
  return timelines;
}

}  // namespace

TEST_CASE("run: the engine plays plain runs to the nanosecond as the recurrence does") {
  const auto steps = [](Run& run, bool engine, bool record_spans) {
    StepSimulator simulator(run, {}, 1, nullptr, engine);
    std::vector<StepTimeline> timelines;
    for (int step = 0; step < run.scenario().steps; ++step) {
      timelines.push_back(simulator.next(record_spans && step == 2));
    }
    return timelines;
  };
  const std::vector<std::vector<std::string>> cases = {
      {},
      {"cluster.cores=1"},
      {"cluster.skew=0.3", "cluster.slow_ranks=[{rank=1, factor=1.237}]"},
      {"host.launch=13 us", "ddp.gradient_as_bucket_view=false"},
      {"ddp.set_to_none=false", "ddp.gradient_as_bucket_view=false"},
      {"ddp.overlap=false"}};
  int plain = 0;
  int by_rows = 0;
  for (const char* name : {"sst2_distilbert", "token_skew", "bucket_valley", "lm2b_2gpu"}) {
    for (const std::vector<std::string>& overrides : cases) {
      CAPTURE(name);
      CAPTURE(overrides.empty() ? "as shipped" : overrides.front());
      std::vector<std::string> all = overrides;
      all.emplace_back("scenario.steps=6");
      all.emplace_back("scenario.warmup_steps=1");
      const Scenario scenario =
          read_scenario(test::source_root() + "/scenarios/" + name + ".toml", all);
      Run run(scenario, scenario.policies.front(), scenario_profile(scenario));
      if (!run.reduced().plain()) {
        continue;
      }
      ++plain;
      const std::vector<StepTimeline> by_recurrence = steps(run, false, false);
      CHECK(by_recurrence == steps(run, true, false));
      if (PlainPlayer::plays(run)) {
        ++by_rows;
        CHECK(played_by_rows(run) == without_ready_times(by_recurrence));
      }
      // A step that the engine plays with its spans, between others that it does not play.
      std::vector<StepTimeline> mixed = steps(run, false, true);
      CHECK(!mixed[2].spans.empty());
      mixed[2].spans.clear();
      mixed[2].waits.clear();
      for (RankTimeline& rank : mixed[2].ranks) {
        CHECK(rank.enqueued_at.size() == rank.ready_at.size());
        rank.enqueued_at.clear();
      }
      CHECK(by_recurrence == mixed);
    }
  }
  CHECK(plain >= 12);
  CHECK(by_rows >= 8);
}

TEST_CASE("run: the recurrence plays a run only where its programs hold nothing else") {
  const auto plain = [](const std::vector<std::string>& overrides) {
    const Scenario scenario = parse_scenario(kBlocks, "blocks.toml", overrides);
    return Run(scenario, scenario.policies.front(), scenario_profile(scenario)).reduced().plain();
  };
  CHECK(plain({}));
  for (const char* harmless : {"host.launch=5 us",
                               "cluster.jitter=0.1",
                               "noise.rank_correlation=0.5",
                               "cluster.cores=1",
                               "cluster.skew=0.5",
                               "data.prefetch=4",
                               "interference.max_channels=4",
                               "ddp.set_to_none=false",
                               "ddp.bucket_rule=pytorch"}) {
    CAPTURE(harmless);
    CHECK(plain({harmless}));
  }
  for (const char* other : {"host.queue_depth=10",
                            "host.enqueue=1 us",
                            "host.hook=1 us",
                            "host.step_sync=true",
                            "host.copy_bandwidth=1 GB/s",
                            "interference.strength=0.1",
                            "cluster.communicator=gloo",
                            "noise.op_jitter=0.1",
                            "noise.rank_speed=0.1",
                            "noise.step_quantiles=[0.9, 1.1]",
                            "data.loading={batch=\"1 ms\"}",
                            "ddp.accumulation_steps=2",
                            "ddp.zero_stage=1",
                            "ddp.join=[12, 6]",
                            "ddp.static_graph=true",
                            "ddp.find_unused_parameters=true",
                            "ddp.optimizer_in_backward=true",
                            "ddp.communication_hook=noop",
                            "ddp.communication_hook=allreduce",
                            "ddp.mixed_precision={param_dtype=\"f16\"}"}) {
    CAPTURE(other);
    CHECK_FALSE(plain({other}));
  }
  CHECK_FALSE(plain({"data.workers=2", "data.loading={batch=\"0 ms\"}"}));
  CHECK_FALSE(plain({"noise.stall_probability=0.1", "noise.stall=1 ms"}));
  CHECK_FALSE(plain({"noise.loader_stall_probability=0.1", "noise.loader_stall=1 ms"}));
}

TEST_CASE("run: a clock that would pass nine years is an error of the input, never a figure") {
  // A year of forward and backward on one rank, step after step; and one step of a century.
  const auto slow = [](const char* factor) {
    return "cluster.slow_ranks=[{rank=1, factor=" + std::string(factor) + "}]";
  };
  for (const std::string& engine : {std::string("scenario.seed=1"), kEngine}) {
    CAPTURE(engine);
    CHECK(step_ms({engine, slow("1e6")}) > 3e7);
    CHECK_THROWS_AS((void)step_ms({engine, slow("1e9")}), InputError);
    CHECK_THROWS_AS((void)step_ms({engine, slow("1e11")}), InputError);
    CHECK_THROWS_AS((void)step_ms({engine, slow("1e15")}), InputError);
    CHECK_THROWS_AS((void)step_ms({engine, slow("1e300")}), InputError);
    CHECK_THROWS_AS((void)step_ms({engine, "host.launch=1e7 s", "scenario.steps=400"}), InputError);
  }
}

TEST_CASE("run: varlen batches of any model are priced by their useful tokens") {
  const auto forward_ms = [](const std::string& model, const std::string& attention) {
    const Scenario scenario = parse_scenario(R"([scenario]
name = "packed"
steps = 3
warmup_steps = 1
[cluster]
ranks = 1
[times]
forward = "10 ms"
backward = "20 ms"
tokens = 100
[model]
)" + model + R"(
attention = ")" + attention + R"("
[data]
samples = 4
lengths = { uniform = [10, 90], seed = 3 }
sampler = { shuffle = false }
[[policy]]
name = "packed"
kind = "packed_bfd"
capacity = 200
)",
                                             "packed.toml",
                                             {});
    return test::predict_quietly(scenario).summary.forward_ms;
  };
  const std::string blocks = "kind = \"blocks\"\nlayers = 3\nblock_elements = 1000";
  const std::string gpt2 =
      "kind = \"gpt2\"\nlayers = 1\nhidden = 8\nheads = 1\nvocab = 10\nmax_length = 200";
  CHECK(forward_ms(blocks, "varlen") == Approx(forward_ms(gpt2, "varlen")));
  CHECK(forward_ms(blocks, "varlen") < 0.9 * forward_ms(blocks, "dense"));
}

TEST_CASE("run: what a hook holds the host for is exposed, and hides behind nothing") {
  const std::vector<std::string> hook = {
      "times.optimizer=0 ms",
      "ddp.gradient_as_bucket_view=false",
      "ddp.bucket_rule=per_parameter",
      "ddp.communication_hook={kind=\"power_sgd\", start_iteration=0}"};
  const Scenario scenario = parse_scenario(test::kBlocksText, "held.toml", hook);
  const PredictionSummary summary = test::predict_quietly(scenario).summary;
  // PyTorch's hook synchronises the device for each bucket: nothing of the backward runs beside.
  CHECK(summary.step_time_ms.mean == Approx(36 + summary.communication_ms));
  CHECK(summary.exposed_communication_ms == Approx(summary.communication_ms));
  CHECK(summary.backward_ms == Approx(24));
  CHECK(summary.overlap_fraction == 0);
  CHECK(summary.scaling_efficiency() == Approx(36 / (36 + summary.communication_ms)).epsilon(1e-9));
}

TEST_CASE("run: accumulation repeats forward and backward and reduces once") {
  // k forwards, k - 1 backwards alone, one with the all-reduces, one optimizer.
  CHECK(step_ms({"ddp.accumulation_steps=4"}) == Approx(4 * 10 + 3 * 20 + 20 + 1 + 5));
  // Without no_sync every micro-batch waits for its last bucket.
  CHECK(step_ms({"ddp.accumulation_steps=4", "ddp.no_sync=false"}) == Approx(4 * 31 + 5));
}

TEST_CASE("run: ZeRO stages share the optimizer and move what they must") {
  // Stage 1: half of the optimizer, then 40 MB of broadcasts (4 GB/s: 10 ms), nothing hidden.
  CHECK(step_ms({"ddp.zero_stage=1"}) == Approx(31 + 2.5 + 10));
  // Stage 2: reduce-scatters of half the volume, half the optimizer, all-gathers of 20 MB a rank.
  CHECK(step_ms({"ddp.zero_stage=2"}) == Approx(30.5 + 2.5 + 5));
  // Stage 3: a block's all-gather takes 0.5 ms and is asked for one block ahead, so the first one
  // of the forward is exposed, and the last reduce-scatter of 0.5 ms.
  CHECK(step_ms({"ddp.zero_stage=3"}) == Approx(30 + 0.5 + 0.5 + 2.5 + 0.5));
  CHECK(step_ms({"parallel.kind=zero3"}) == step_ms({"ddp.zero_stage=3"}));
}

TEST_CASE("run: nothing overlaps when everything is launched after the backward") {
  CHECK(step_ms({"ddp.overlap=false"}) == Approx(30 + 10 + 5));
  CHECK(step_ms({"ddp.bucket_rule=single"}) == Approx(30 + 10 + 5));
}

TEST_CASE("run: the optimizer in the backward runs beside it") {
  // The optimizer of each bucket (0.5 ms) follows its all-reduce; only the last one is left.
  CHECK(step_ms({"ddp.optimizer_in_backward=true"}) == Approx(31 + 0.5));
}

TEST_CASE("run: a communication hook in half precision halves the volume") {
  // Communication-bound: 40 ms of all-reduce against 20 ms of backward.
  const std::string slow = "cluster.topology.intra_bandwidth=1 GB/s";
  CHECK(step_ms({slow}) == Approx(10 + 2 + 40 + 5));
  CHECK(step_ms({slow, "ddp.communication_hook=fp16"}) == Approx(10 + 2 + 20 + 5));
  CHECK(step_ms({slow, "ddp.communication_hook=noop"}) == Approx(30 + 5));
}

TEST_CASE("run: a hook that has not begun, or begins among the measured steps, is named") {
  const auto hook_note = [](const std::vector<std::string>& overrides) -> std::string {
    for (const std::string& text : note_texts(run(overrides))) {
      if (text.find("communication hook") != std::string::npos) {
        return text;
      }
    }
    return "";
  };
  const std::string power_sgd = "ddp.communication_hook=power_sgd";
  const auto from = [&](int start) {
    return std::vector<std::string>{power_sgd,
                                    "ddp.communication_hook={kind=\"power_sgd\",start_iteration=" +
                                        std::to_string(start) + "}"};
  };
  // Steps 0 to 11, of which the first four are left out of the means.
  CHECK(hook_note({power_sgd}) ==
        "the communication hook power_sgd is a plain all-reduce before step 1000 "
        "(start_iteration), and 12 steps are simulated: this shows nothing of it; give it a "
        "smaller start_iteration");
  CHECK(hook_note(from(12)).find("shows nothing of it") != std::string::npos);
  CHECK(hook_note(from(11)) ==
        "the communication hook power_sgd is a plain all-reduce before step 11 "
        "(start_iteration), and the means are of steps 4 to 11, with it and without; take "
        "warmup_steps = 11");
  CHECK(hook_note(from(5)).find("steps 4 to 11, with it and without") != std::string::npos);
  CHECK(hook_note(from(4)).empty());
  CHECK(hook_note({"ddp.communication_hook=post_local_sgd"}).find("before step 1000") !=
        std::string::npos);
  CHECK(hook_note({"ddp.communication_hook=fp16"}).empty());
  CHECK(hook_note({power_sgd, "cluster.ranks=1"}).empty());
}

TEST_CASE("run: the model is sent after the last step of the rank that joins last") {
  // 40 MB around the ring of two take 10 ms; two scalars before it take nothing.
  const double on = step_ms({"ddp.join=[100, 100]"});
  CHECK(run({"ddp.join=[12, 12]"}).steps.back().step_ms ==
        Approx(run({"ddp.join=[100, 100]"}).steps.back().step_ms + 10).epsilon(0.001));
  CHECK(step_ms({"ddp.join=[12, 12]"}) == Approx(on + 10.0 / 8).epsilon(0.001));
  CHECK(step_ms({"ddp.join=[6, 13]"}) == Approx(on).epsilon(0.001));
}

TEST_CASE("run: join lets a rank run out of inputs") {
  const Prediction joined = run({"ddp.join=[12, 6]"});
  CHECK(joined.steps.back().rank == 1);
  CHECK(joined.steps.back().samples == 0);
  // The active rank's steps take as long as before: all-reduces still hide behind its backward.
  CHECK(joined.summary.step_time_ms.mean == Approx(36).epsilon(0.05));
  CHECK_THROWS(run({"ddp.join=[12]"}));
  CHECK_THROWS(run({"ddp.join=[3, 4]"}));
}

TEST_CASE("run: workers hide loading up to their number") {
  const auto loaded = [](int workers, const char* batch) {
    return step_ms({"host.step_sync=true",
                    "data.loading={batch=\"" + std::string(batch) + "\"}",
                    "data.workers=" + std::to_string(workers)});
  };
  // Without a sync the host loads while the device works.
  CHECK(step_ms({"data.loading={batch=\"10 ms\"}"}) == Approx(36));
  CHECK(loaded(0, "10 ms") == Approx(36 + 10));
  CHECK(loaded(1, "30 ms") == Approx(36));
  CHECK(loaded(1, "50 ms") == Approx(50));  // Loader-bound.
  CHECK(loaded(2, "70 ms") == Approx(36).epsilon(0.05));
  CHECK(loaded(2, "100 ms") == Approx(50).epsilon(0.05));
}

TEST_CASE("run: a worker loads and collates") {
  const std::vector<std::string> overrides = {"scenario.warmup_steps=3",
                                              "host.step_sync=true",
                                              "data.workers=1",
                                              "data.loading={batch=\"1 s\"}"};
  const Scenario scenario =
      read_scenario(test::source_root() + "/scenarios/token_skew.toml", overrides);
  const Prediction prediction = test::predict_quietly(scenario);
  // Steps compute for some 20 ms, so the worker alone sets the pace, with some 0.4 ms a batch to
  // collate.
  CHECK(prediction.summary.step_time_ms.mean > 1000.1);
  CHECK(prediction.summary.step_time_ms.mean < 1001);
}

TEST_CASE("run: a planner in the workers shows as periodic dips") {
  const Prediction planned = run({"scenario.steps=40",
                                  "host.step_sync=true",
                                  "data.workers=1",
                                  "data.prefetch=1",
                                  "data.loading={batch=\"1 ms\", plan_every=8, plan=\"100 ms\"}"});
  int slow = 0;
  for (const RankStepResult& row : planned.steps) {
    slow += row.rank == 0 && row.step >= 4 && row.step_ms > 60 ? 1 : 0;
  }
  CHECK(slow == 4);  // Batches 8, 16, 24 and 32.
  // Enough prefetch hides the planner: 4 batches ahead are more than 100 ms of steps.
  CHECK(step_ms({"host.step_sync=true",
                 "data.workers=1",
                 "data.prefetch=4",
                 "data.loading={batch=\"1 ms\", plan_every=8, plan=\"100 ms\"}"}) == Approx(36));
}

TEST_CASE("run: the copy of the batch to the device counts as data") {
  // 8 tokens of 16 bytes at 128 kB/s: 1 ms.
  CHECK(step_ms({"host.copy_bandwidth=0.128 MB/s"}) == Approx(37));
}

TEST_CASE("run: same seed, same noise; another seed, another") {
  const std::vector<std::string> noisy = {"noise.op_jitter=0.05", "cluster.jitter=0.02"};
  const StepTimeSummary first = run(noisy, 20).summary.step_time_ms;
  const StepTimeSummary again = run(noisy, 20).summary.step_time_ms;
  CHECK(first.mean == again.mean);
  CHECK(first.p95 == again.p95);
  auto other = noisy;
  other.emplace_back("scenario.seed=9");
  CHECK(run(other, 20).summary.step_time_ms.mean != first.mean);
  CHECK(first.p50 <= first.p95);
  CHECK(first.p95 <= first.p99);
}

TEST_CASE("run: every step waits for the slowest of its ranks") {
  const auto mean_of = [](int ranks) {
    return run({"cluster.jitter=0.05", "cluster.ranks=" + std::to_string(ranks)}, 40)
        .summary.step_time_ms.mean;
  };
  const double two = mean_of(2);
  const double sixteen = mean_of(16);
  // Expected maximum of n normal draws: 0.56 and 1.77 standard deviations; compute is 30 of 36 ms.
  CHECK(sixteen - two == Approx((1.77 - 0.56) * 0.05 * 30).epsilon(0.35));
}

TEST_CASE("run: what ranks have in common of their jitter makes none wait for another") {
  const auto times = [](const char* jitter, const char* correlation) {
    const std::string given = std::string("noise.rank_correlation=") + correlation;
    return run({"cluster.ranks=8", jitter, given}, 200).summary.step_time_ms;
  };
  const auto normal = [&](const char* correlation) {
    return times("cluster.jitter=0.05", correlation);
  };
  const StepTimeSummary own = normal("0");
  const StepTimeSummary half = normal("0.5");
  const StepTimeSummary common = normal("1");
  // The largest of 8 normal draws is 1.42 standard deviations, of the half that is own 1.42 * 0.71;
  // compute is 30 ms, 35 with the optimizer.
  const double deviation = 0.05 * 30;
  const double quiet = run({"cluster.ranks=8"}, 200).summary.step_time_ms.mean;
  CHECK(own.mean - common.mean == Approx(1.42 * deviation).epsilon(0.1));
  CHECK(half.mean - common.mean == Approx(1.42 * 0.707 * deviation).epsilon(0.1));
  CHECK(common.mean == Approx(quiet).epsilon(0.005));
  CHECK(common.p95 - common.p50 == Approx(1.645 * 0.05 * 35).epsilon(0.15));
  // Quantiles keep their spread: a step of equal ranks takes 0.8 to 1.2 of its compute.
  const StepTimeSummary uniform = times("noise.step_quantiles=[0.8, 1.2]", "1");
  CHECK(uniform.p95 - uniform.p50 == Approx(0.45 * 0.4 * 35).epsilon(0.1));
}

TEST_CASE("run: noise of any kind leaves the mean of a single rank as it is") {
  using Settings = std::vector<std::string>;
  const auto times = [](Settings noise) {
    for (const char* setting :
         {"cluster.ranks=1", "scenario.steps=44", "data.samples=64", "model.layers=1"}) {
      noise.emplace_back(setting);
    }
    return run(noise, 2000).summary.step_time_ms;
  };
  // 40 steady steps of 10 + 20 + 5 ms in 2000 draws.
  CHECK(times({}).mean == Approx(35));
  for (const Settings& noise :
       {Settings{"cluster.jitter=0.5"},
        Settings{"cluster.jitter=0.5", "noise.rank_correlation=0.5"},
        Settings{"noise.step_quantiles=[0.5, 1, 3]"},
        Settings{"noise.step_quantiles=[0.5, 1, 3]", "noise.rank_correlation=0.5"},
        Settings{"noise.op_jitter=0.5"}}) {
    CAPTURE(noise.back());
    CHECK(times(noise).mean == Approx(35).epsilon(0.005));
  }
  // One speed a draw: 0.2 / sqrt(2000) is 0.45 %.
  CHECK(times({"noise.rank_speed=0.2"}).mean == Approx(35).epsilon(0.01));
  // The jitter has the standard deviation that is stated: of a log-normal with the mean 1 and the
  // logarithm's s^2 = log(1.25), the 95th of a hundred is exp(1.645 s - s^2 / 2) = 1.94.
  const StepTimeSummary jittered = times({"cluster.jitter=0.5"});
  CHECK(jittered.p50 == Approx(35 * std::exp(-std::log(1.25) / 2)).epsilon(0.01));
  CHECK(jittered.p95 == Approx(35 * 1.942).epsilon(0.01));
}

TEST_CASE("run: a jitter that is stated replaces the profile's, also where it is none") {
  const auto jitter = [](const std::vector<std::string>& overrides) {
    const Scenario scenario = parse_scenario(kBlocks, "blocks.toml", overrides);
    Profile profile = scenario_profile(scenario);
    profile.noise.step_jitter = 0.1;
    profile.noise.rank_correlation = 0.5;
    return Run(scenario, scenario.policies.front(), profile).loads().jitter;
  };
  // stepcal's times are medians of steps, and its jitter is around them.
  CHECK(jitter({}).log_normal.at(0) == 1);
  CHECK(jitter({}).log_normal.log_sd == 0.1);
  CHECK(jitter({}).correlation == 0.5);
  const Jitter none = jitter({"cluster.jitter=0"});
  CHECK(none.least() == 1);
  CHECK(none.most() == 1);
  CHECK(none.correlation == 0);
  CHECK(jitter({"cluster.jitter=0.3"}).log_normal.at(0) < 1);
  CHECK(jitter({"noise.step_quantiles=[1, 2]"}).quantiles == std::vector<double>{1 / 1.5, 2 / 1.5});
}

TEST_CASE("run: ranks that share cores compute longer, and faster when others are done") {
  const auto mean_of = [](const std::vector<std::string>& keys) {
    std::vector<std::string> all = {"cluster.ranks=4"};
    all.insert(all.end(), keys.begin(), keys.end());
    return run(all, 20).summary.step_time_ms.mean;
  };
  const double alone = mean_of({});
  // Compute is 30 ms; on half as many cores as ranks twice that.
  CHECK(mean_of({"cluster.cores=2"}) == Approx(alone + 30));
  CHECK(mean_of({"cluster.cores=4"}) == alone);
  CHECK(mean_of({"cluster.cores=0"}) == alone);
  // The last rank has 60 ms of work, the first 30, those between 40 and 50: 180 on two cores, and
  // 10 ms of the last one are left when it is alone.
  CHECK(mean_of({"cluster.cores=2", "cluster.skew=1"}) - mean_of({"cluster.skew=1"}) ==
        Approx(95 - 60).epsilon(0.02));
  // The same by events.
  CHECK(mean_of({"cluster.cores=2", "host.step_sync=true"}) ==
        Approx(mean_of({"host.step_sync=true"}) + 30));
}

TEST_CASE("run: stalls and lasting speeds") {
  CHECK(run({"noise.stall_probability=1", "noise.stall=\"7 ms\""}, 20).summary.step_time_ms.mean ==
        Approx(36 + 7));
  // Quantiles are over the mean, so that a single value is no jitter.
  CHECK(run({"noise.step_quantiles=[1.5, 1.5]"}, 20).summary.step_time_ms.p95 == Approx(36));
  const StepTimeSummary speeds = run({"noise.rank_speed=0.1"}, 40).summary.step_time_ms;
  // A rank keeps its speed for a whole run, so the run's mean scatters.
  CHECK(speeds.high90 - speeds.low90 > 2);
  CHECK(run({"host.step_sync=true",
             "noise.loader_stall_probability=1",
             "noise.loader_stall=\"9 ms\""},
            20)
            .summary.step_time_ms.mean == Approx(36 + 9));
}

TEST_CASE("run: a table of all-reduces in the scenario replaces links") {
  const std::string table =
      "cluster.all_reduce={sizes=[\"1 MiB\", \"64 MiB\"], times=[\"2 ms\", \"128 ms\"]}";
  // 4 MB take 7.63 ms, so the ten of them are in the way: the first starts after 2 ms.
  const double one = 2.0 * 4e6 / (1 << 20);
  CHECK(step_ms({table}) == Approx(10 + 2 + 10 * one + 5).epsilon(1e-3));
}

TEST_CASE("run: two nodes are priced by the links and say so") {
  const Prediction two = run({"cluster.ranks=4",
                              "cluster.ranks_per_node=2",
                              "cluster.topology.inter_latency=10 us",
                              "cluster.topology.inter_bandwidth=1 GB/s",
                              "cluster.topology.algorithm=hierarchical"});
  CHECK(two.summary.communication_ms > run({}).summary.communication_ms);
  bool said = false;
  for (const std::string& warning : note_texts(two)) {
    said = said || warning.find("2 nodes x 2") != std::string::npos;
  }
  CHECK(said);
}
