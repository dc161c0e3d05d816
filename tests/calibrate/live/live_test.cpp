#include "calibrate/live/live.h"

#include <algorithm>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "calibrate/cpu/cpu_backend.h"
#include "calibrate/cpu/gloo_group.h"
#include "calibrate/cpu/gloo_reducer.h"
#include "calibrate/live/schedule.h"
#include "calibrate/live/step_line.h"
#include "calibrate/ranks/rank_processes.h"
#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

TransformerConfig small_model() {
  TransformerConfig config;
  config.name = "small";
  config.family = ModelFamily::TokenClassifier;
  config.layers = 1;
  config.hidden = 16;
  config.heads = 2;
  config.kv_heads = 2;
  config.ffn = 32;
  config.vocab = 100;
  config.max_length = 64;
  config.classes = 4;
  return config;
}

std::unique_ptr<Backend> cpu_backend(const RankContext& context,
                                     const TransformerConfig& model,
                                     const std::vector<std::vector<int>>& buckets) {
  return std::make_unique<CpuBackend>(
      model, buckets, context.rank(), context.ranks(), context.folder());
}

/// Lengths depend on step, rank and `base`; two buckets from the second step on.
Plan plan_of(const std::string& policy, int steps, int ranks, std::int64_t base) {
  Plan plan;
  plan.scenario = "test";
  plan.policy = policy;
  plan.ranks = ranks;
  plan.steps = steps;
  plan.warmup_steps = 1;
  plan.model = small_model();
  const std::vector<int> order = ready_order(plan.model);
  plan.initial_buckets = {order};
  plan.buckets = {{order.begin(), order.begin() + 4}, {order.begin() + 4, order.end()}};
  std::int64_t id = 0;
  for (int step = 0; step < steps; ++step) {
    for (int rank = 0; rank < ranks; ++rank) {
      MicroBatch batch;
      batch.step = step;
      batch.rank = rank;
      batch.samples = {id, id + 1};
      batch.lengths = {base + rank, base + step % 30};
      batch.padded_length = step % 2 == 0 ? 0 : base + 31;
      plan.micro_batches.push_back(batch);
      id += 2;
    }
  }
  return plan;
}

const auto kNoProgress = [](const LiveProgress&) {};

std::string input_error_of(const std::vector<Plan>& plans) {
  try {
    check_live_plans(plans, {"a.jsonl", "b.jsonl"});
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("plans take turns by blocks, and another one leads every round and repeat") {
  const auto rounds = rounds_of({5, 3}, 2, 0);
  REQUIRE(rounds.size() == 3);
  CHECK(rounds[0] == std::vector<Block>{{0, 0, 2}, {1, 0, 2}});
  CHECK(rounds[1] == std::vector<Block>{{1, 2, 3}, {0, 2, 4}});
  CHECK(rounds[2] == std::vector<Block>{{0, 4, 5}});
  CHECK(rounds_of({5, 3}, 2, 1)[0] == std::vector<Block>{{1, 0, 2}, {0, 0, 2}});
}

TEST_CASE("a line between rank and parent reads back exactly") {
  LiveLine line;
  line.plan = 3;
  line.step.repeat = 1;
  line.step.step = 7;
  line.step.rank = 2;
  line.step.useful_tokens = 1234567890123;
  line.step.start_ms = 123456789.123456789;
  line.step.loss = 1.0 / 3.0;
  line.step.buckets = {{4096, 0.1, 0.7}, {8, 1e-9, 2e6}};
  const LiveLine back = parse_line(format_line(line));
  CHECK(format_line(back) == format_line(line));
  CHECK(back.step.loss == line.step.loss);
  CHECK(back.step.start_ms == line.step.start_ms);
  CHECK(back.step.buckets.at(1).end_ms == 2e6);
  CHECK_THROWS_AS(static_cast<void>(parse_line(R"({"plan":0,"step":{}})")), EnvironmentFault);
  CHECK_THROWS_AS(static_cast<void>(parse_line(format_line(line) + " x")), EnvironmentFault);
}

TEST_CASE("a live run records every step of every rank, repeat and plan, with consistent times") {
  const std::vector<Plan> plans = {plan_of("a", 5, 2, 20), plan_of("b", 3, 2, 9)};
  LiveOptions options;
  options.block = 2;
  options.repeats = 2;
  int progressed = 0;
  std::vector<RunRecord> records;
  run_live(
      plans,
      cpu_backend,
      options,
      [&](const LiveProgress& p) { progressed = p.steps_done * 100 + p.steps_total; },
      records);
  CHECK(progressed == 1616);
  REQUIRE(records.size() == 2);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const RunRecord& record = records[i];
    CHECK(record.policy == plans[i].policy);
    CHECK(record.world_size == 2);
    CHECK(record.warmup_steps == 1);
    CHECK(record.sentinel_ms.size() == 6);
    CHECK(record.started_at.size() == 20);
    CHECK(record.versions->contains("gloo"));
    REQUIRE(record.steps.size() == static_cast<std::size_t>(plans[i].steps * 2 * 2));
    std::size_t at = 0;
    for (int repeat = 0; repeat < 2; ++repeat) {
      for (const MicroBatch& batch : plans[i].micro_batches) {
        const StepRecord& step = record.steps[at++];
        CHECK(step.repeat == repeat);
        CHECK(step.step == batch.step);
        CHECK(step.rank == batch.rank);
        CHECK(step.padded_tokens == batch.shape().padded_tokens());
        const double parts =
            step.data_ms + step.forward_ms + step.backward_ms + step.wait_ms + step.optimizer_ms;
        CHECK(parts <= step.step_ms);
        CHECK(parts >= 0.5 * step.step_ms);
        CHECK(step.thread_cpu_ms > 0);
        CHECK(step.loss > 0);
        REQUIRE(step.buckets.size() == 2);
        CHECK(step.buckets[0].launch_ms <= step.buckets[1].launch_ms);
        CHECK(step.buckets[0].end_ms <= step.buckets[1].end_ms);
        CHECK(step.buckets[1].end_ms <= step.step_ms);
        CHECK(step.buckets[0].bytes + step.buckets[1].bytes == 4 * parameter_count(plans[i].model));
      }
    }
  }
}

TEST_CASE("no rank's bucket ends before the last rank has launched it, on the common clock") {
  std::vector<RunRecord> records;
  run_live({plan_of("a", 4, 2, 30)}, cpu_backend, LiveOptions{}, kNoProgress, records);
  const auto& steps = records.at(0).steps;
  REQUIRE(steps.size() == 8);
  for (std::size_t i = 0; i < steps.size(); i += 2) {
    if (i > 0) {  // Milliseconds: a rank's steps follow each other.
      CHECK(steps[i].start_ms - steps[i - 2].start_ms >= 0.9 * steps[i - 2].step_ms);
    }
    for (std::size_t bucket = 0; bucket < 2; ++bucket) {
      const auto launch = [&](std::size_t k) {
        return steps[k].start_ms + steps[k].buckets[bucket].launch_ms;
      };
      const auto end = [&](std::size_t k) {
        return steps[k].start_ms + steps[k].buckets[bucket].end_ms;
      };
      constexpr double kRounding = 1e-3;  // Milliseconds since the machine started, in doubles.
      CHECK(std::min(end(i), end(i + 1)) + kRounding >= std::max(launch(i), launch(i + 1)));
    }
  }
}

TEST_CASE("ranks that train on different data keep the same weights") {
  const Plan plan = plan_of("a", 1, 2, 20);
  std::vector<std::string> sums(2);
  run_ranks(
      2,
      [&](const RankContext& context) {
        cpu::Trainer trainer(plan.model, context.ranks(), 1);
        trainer.set_buckets(plan.buckets);
        GlooGroup group(context.rank(), context.ranks(), context.folder());
        GlooReducer reducer(group);
        for (int step = 0; step < 5; ++step) {
          reducer.start_step();
          const std::vector<std::int64_t> lengths = {10 + 20 * context.rank(), 7 + step};
          trainer.step(lengths, 1.0, &reducer, nullptr);
        }
        double sum = 0;
        for (std::size_t p = 0; p < parameters(plan.model).size(); ++p) {
          for (std::int64_t i = 0; i < trainer.elements(p); ++i) {
            sum = 1.0000001 * sum + static_cast<double>(trainer.weights(p)[i]);
          }
        }
        context.send(fmt::format("{}", sum));
      },
      [&](int rank, const std::string& line) { sums[static_cast<std::size_t>(rank)] = line; });
  CHECK(!sums[0].empty());
  CHECK(sums[0] == sums[1]);
}

TEST_CASE("an interrupted live run keeps the steps that all ranks have finished") {
  std::vector<RunRecord> records;
  LiveOptions options;
  options.block = 1;
  const auto stop_at_third = [](const LiveProgress& progress) {
    if (progress.steps_done == 3) {
      std::raise(SIGINT);
    }
  };
  CHECK_THROWS_AS(
      run_live({plan_of("a", 2000, 2, 20)}, cpu_backend, options, stop_at_third, records),
      Interrupted);
  REQUIRE(records.size() == 1);
  const auto& steps = records[0].steps;
  CHECK(steps.size() >= 4);
  CHECK(steps.size() < 4000);
  CHECK(steps.size() % 2 == 0);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    CHECK(steps[i].step == static_cast<int>(i / 2));
    CHECK(steps[i].rank == static_cast<int>(i % 2));
  }
}

TEST_CASE("plans that cannot share a live run are refused with the reason") {
  const Plan good = plan_of("a", 2, 2, 20);
  CHECK(input_error_of({}) == "a live run needs at least one plan");
  CHECK(input_error_of({good, plan_of("b", 2, 3, 20)}) ==
        "b.jsonl: 3 ranks, where a.jsonl has 2; plans of one live run share them");
  Plan other = good;
  other.model.ffn = 64;
  CHECK(input_error_of({good, other}) ==
        "b.jsonl: its model differs from that of a.jsonl; plans of one live run share it");
  Plan accumulated = good;
  accumulated.micro_batches.push_back(good.micro_batches[0]);
  accumulated.micro_batches.back().micro_batch = 1;
  CHECK(input_error_of({accumulated}) ==
        "a.jsonl: step 0 of rank 0 has several micro-batches; a live run does one a step (make the "
        "plan with ddp.accumulation_steps = 1)");
  Plan incomplete = good;
  incomplete.micro_batches.pop_back();
  CHECK(input_error_of({incomplete}) == "a.jsonl: step 1 of rank 1 has no samples");
  Plan momentum = good;
  momentum.optimizer = "sgd";
  CHECK(input_error_of({momentum}) == "a.jsonl: optimizer 'sgd'; a live run uses 'adamw'");
}

}  // namespace stepsim
