#include "costmodel/records/plan_file.h"

#include <chrono>

#include <doctest/doctest.h>

#include "costmodel/model/model_presets.h"
#include "tests/costmodel/helpers.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

MicroBatch micro_batch(int step, int rank, int number, bool targets, RandomValues& draw) {
  MicroBatch batch;
  batch.step = step;
  batch.rank = rank;
  batch.micro_batch = number;
  for (int i = draw.whole(8); i > 0; --i) {
    batch.samples.push_back(draw.whole(3000));
    batch.lengths.push_back(1 + draw.whole(255));
    if (targets) {
      batch.targets.push_back(1 + draw.whole(255));
    }
  }
  if (batch.lengths.size() > 2 && draw.whole(2) == 0) {
    batch.sequences = {batch.lengths.front(), batch_shape(batch.lengths).useful_tokens};
    batch.sequences.back() -= batch.sequences.front();
  }
  batch.loss_scale = draw.real();
  if (!batch.lengths.empty() && draw.coin()) {
    batch.padded_length = batch.shape().max_length + 1 + draw.whole(63);
  }
  for (std::size_t i = draw.coin() ? batch.samples.size() : 0; i > 0; --i) {
    batch.offsets.push_back(draw.whole(500));
  }
  return batch;
}

/// A plan of any shape that is allowed.
Plan random_plan(std::uint64_t seed) {
  RandomValues draw(seed);
  Plan plan;
  plan.scenario = draw.text();
  plan.policy = draw.text();
  plan.profile = draw.text();
  plan.profile_id = plan.profile.empty() ? "" : draw.text();
  plan.seed = ~seed;
  plan.ranks = 1 + draw.whole(4);
  plan.steps = 1 + draw.whole(5);
  plan.warmup_steps = draw.whole(plan.steps - 1);
  plan.model = model_preset("tiny-classifier");
  plan.model.layers = 1 + draw.whole(2);
  plan.optimizer = draw.coin() ? "adamw" : "sgd";
  auto& forward = plan.initial_buckets.emplace_back();
  plan.buckets.resize(1 + static_cast<std::size_t>(draw.whole(2)));
  const int total = static_cast<int>(parameters(plan.model).size());
  for (int i = 0; i < total; ++i) {
    forward.push_back(i);
    plan.buckets[static_cast<std::size_t>(i) % plan.buckets.size()].push_back(total - 1 - i);
  }
  for (int step = 0; step < plan.steps; ++step) {
    for (int rank = 0; rank < plan.ranks; ++rank) {
      for (int i = draw.whole(2); i >= 0; --i) {
        const auto& rows = plan.micro_batches;
        const bool again = !rows.empty() && rows.back().step == step && rows.back().rank == rank;
        const int number = again ? rows.back().micro_batch + 1 : 0;
        plan.micro_batches.push_back(micro_batch(step, rank, number, seed % 2 == 0, draw));
      }
    }
  }
  return plan;
}

/// Two steps of two ranks.
std::string small_plan_text() {
  Plan plan;
  plan.scenario = "s";
  plan.policy = "fixed";
  plan.ranks = 2;
  plan.steps = 2;
  plan.model = model_preset("tiny-classifier");
  plan.initial_buckets = {{14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}};
  plan.buckets = plan.initial_buckets;
  for (int step = 0; step < 2; ++step) {
    for (int rank = 0; rank < 2; ++rank) {
      plan.micro_batches.push_back({step, rank, 0, {7, 8}, {100, 50}, 1});
    }
  }
  const std::string path = fresh_folder() + "/plan.jsonl";
  write_plan(path, plan);
  return content(path);
}

/// The error of the small plan after one change, without the folder of its file.
std::string error_after(const std::string& from, const std::string& to) {
  return error_of_file("plan.jsonl", replaced(small_plan_text(), from, to), read_plan);
}

}  // namespace

TEST_CASE("a plan reads back as it was written") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    CAPTURE(seed);
    const Plan plan = random_plan(seed);
    const std::string path = fresh_folder() + "/plan.jsonl";
    write_plan(path, plan);
    CHECK(read_plan(path) == plan);
  }
}

TEST_CASE("a row of a plan is the line in the documentation") {
  const std::string text = small_plan_text();
  const std::size_t start = text.find('\n') + 1;
  CHECK(text.substr(start, text.find('\n', start) - start) ==
        R"({"step":0,"rank":0,"micro_batch":0,"samples":[7,8],"lengths":[100,50],)"
        R"("max_length":100,"useful_tokens":150,"padded_tokens":200,"loss_scale":1})");
}

TEST_CASE("only a batch that holds a part of a sample has offsets") {
  const std::string lengths = R"("lengths":[100,50],)";
  const std::string path =
      written("plan.jsonl", replaced(small_plan_text(), lengths, lengths + R"("offsets":[0,30],)"));
  Plan plan = read_plan(path);
  CHECK(plan.micro_batches[0].offsets == std::vector<std::int64_t>{0, 30});
  CHECK(plan.micro_batches[1].offsets.empty());
  const std::string again = fresh_folder() + "/plan.jsonl";
  write_plan(again, plan);
  CHECK(content(again) == content(path));
  const auto error_of_offsets = [&](const std::string& offsets) {
    return error_after(lengths, lengths + "\"offsets\":" + offsets + ",");
  };
  CHECK(error_of_offsets("[0]") == "plan.jsonl:2: error: offsets: 1 offsets for 2 samples");
  CHECK(error_of_offsets("[]") == "plan.jsonl:2: error: offsets: 0 offsets for 2 samples");
  CHECK(error_of_offsets("[0,-1]") ==
        "plan.jsonl:2: error: offsets[1]: -1 is outside 0..1073741774");
  CHECK(error_of_offsets("[1073741724,0]").empty());
  CHECK(error_of_offsets("[1073741725,0]") ==
        "plan.jsonl:2: error: offsets[0]: 1073741725 is outside 0..1073741724");
  CHECK(error_of_offsets("7") != "");
}

TEST_CASE("a batch can be padded beyond its longest sample") {
  const std::string totals = R"("max_length":100,"useful_tokens":150,"padded_tokens":200)";
  const std::string padded = R"("max_length":128,"useful_tokens":150,"padded_tokens":256)";
  const std::string path = written("plan.jsonl", replaced(small_plan_text(), totals, padded));
  const Plan plan = read_plan(path);
  CHECK(plan.micro_batches[0].padded_length == 128);
  CHECK(plan.micro_batches[0].shape().padded_tokens() == 256);
  CHECK(plan.micro_batches[1].padded_length == 0);
  const std::string again = fresh_folder() + "/plan.jsonl";
  write_plan(again, plan);
  CHECK(content(again) == content(path));
  CHECK(error_after(totals, R"("max_length":128,"useful_tokens":150,"padded_tokens":200)") ==
        "plan.jsonl:2: error: padded_tokens: 200 does not agree with the lengths (256)");
  CHECK(error_after("\"max_length\":100", "\"max_length\":67108865") ==
        "plan.jsonl:2: error: max_length: 67108865 does not agree with the lengths (100)");
}

TEST_CASE("what a plan states twice must agree") {
  CHECK(error_after("\"max_length\":100", "\"max_length\":99") ==
        "plan.jsonl:2: error: max_length: 99 does not agree with the lengths (100)");
  CHECK(error_after("\"useful_tokens\":150", "\"useful_tokens\":151") ==
        "plan.jsonl:2: error: useful_tokens: 151 does not agree with the lengths (150)");
  CHECK(error_after("\"padded_tokens\":200", "\"padded_tokens\":150") ==
        "plan.jsonl:2: error: padded_tokens: 150 does not agree with the lengths (200)");
  CHECK(error_after("\"samples\":[7,8]", "\"samples\":[7]") ==
        "plan.jsonl:2: error: lengths: 2 lengths for 1 samples");
  CHECK(error_after("\"lengths\":[100,50]", "\"lengths\":[100,0]") ==
        "plan.jsonl:2: error: lengths[1]: 0 is outside 1..67108864");
  CHECK(error_after("\"padded_tokens\":200", "\"padded_tokens\":200,\"sequences\":[100,51]") ==
        "plan.jsonl:2: error: sequences: their sum is not that of the lengths (150)");
  CHECK(error_after("\"padded_tokens\":200", "\"padded_tokens\":200,\"sequences\":[150,0]") ==
        "plan.jsonl:2: error: sequences[1]: 0 is outside 1..67108864");
  CHECK(error_after("\"max_length\":100,\"useful_tokens\":150,\"padded_tokens\":200",
                    "\"max_length\":150,\"useful_tokens\":150,\"padded_tokens\":150,"
                    "\"sequences\":[150]") == "");
}

TEST_CASE("second lengths stand in every row that holds samples, one a sample, or in none") {
  const std::string all = replaced_all(
      small_plan_text(), "\"lengths\":[100,50]", "\"lengths\":[100,50],\"target_lengths\":[9,70]");
  const Plan plan = read_plan(written("plan.jsonl", all));
  CHECK(plan.micro_batches.back().targets == std::vector<std::int64_t>{9, 70});
  const auto error_with = [](const std::string& targets) {
    return error_after("\"lengths\":[100,50]", "\"lengths\":[100,50]," + targets);
  };
  CHECK(error_with("\"target_lengths\":[9]") ==
        "plan.jsonl:2: error: target_lengths: 1 lengths for 2 samples");
  CHECK(error_with("\"target_lengths\":[9,0]") ==
        "plan.jsonl:2: error: target_lengths[1]: 0 is outside 1..67108864");
  CHECK(error_with("\"target_lengths\":[9,70]") ==
        "plan.jsonl:3: error: target_lengths are in some rows and not in others; expected all or "
        "none");
}

TEST_CASE("each step and rank of a plan has its row, in order") {
  CHECK(error_after("\"step\":0,\"rank\":1", "\"step\":0,\"rank\":2") ==
        "plan.jsonl:3: error: rank: 2 is outside 0..1");
  CHECK(error_after("\"step\":0,\"rank\":1", "\"step\":1,\"rank\":0") ==
        "plan.jsonl:3: error: step 1, rank 0, micro_batch 0 does not follow step 0, rank 0, "
        "micro_batch 0; rows go by step, rank and micro_batch, none left out");
  CHECK(error_after("\"ranks\":2", "\"ranks\":3") ==
        "plan.jsonl:4: error: step 1, rank 0, micro_batch 0 does not follow step 0, rank 1, "
        "micro_batch 0; rows go by step, rank and micro_batch, none left out");
  CHECK(error_after("\"steps\":2", "\"steps\":3") ==
        "plan.jsonl:5: error: the plan ends early: its header declares 3 steps of 2 ranks");
  CHECK(error_after("\"warmup_steps\":0", "\"warmup_steps\":2") ==
        "plan.jsonl:1: error: warmup_steps: 2 is outside 0..1");
}

TEST_CASE("buckets hold each parameter of the model once") {
  CHECK(error_after("[[14,13,", "[[13,") ==
        "plan.jsonl:1: error: initial_buckets: parameter 14 is in no bucket");
  CHECK(error_after("[[14,13,", "[[14,14,13,") ==
        "plan.jsonl:1: error: initial_buckets[0]: parameter 14 is twice");
  CHECK(error_after("[[14,13,", "[[15,14,13,") ==
        "plan.jsonl:1: error: initial_buckets[0]: 15 is no parameter index of the model (0..14)");
}

TEST_CASE("a plan that is cut off or of another version is refused") {
  CHECK(error_after("stepsim-plan/1", "stepsim-plan/2") ==
        "plan.jsonl:1: error: format: wrong version: expected stepsim-plan/1, got "
        "'stepsim-plan/2'");
  const std::string text = small_plan_text();
  const std::string path = written("plan.jsonl", text.substr(0, text.size() - 10));
  CHECK(error_of([&path] { (void)read_plan(path); }) ==
        path + ":5: error: the last line is cut off");
  const std::string empty = written("plan.jsonl", "");
  CHECK(error_of([&empty] { (void)read_plan(empty); }) ==
        empty + ":1: error: no header; the first line must hold \"format\": \"stepsim-plan/1\"");
}

TEST_CASE("members that nobody knows are left alone") {
  CHECK(error_after("\"step\":0,", "\"step\":0,\"note\":\"x\",") == "");
}

TEST_CASE("a plan of 100,000 rows is written and read in seconds") {
  Plan plan = random_plan(1);
  plan.ranks = 8;
  plan.steps = 12500;
  plan.micro_batches.clear();
  RandomValues draw(2);
  for (int i = 0; i < plan.ranks * plan.steps; ++i) {
    plan.micro_batches.push_back(micro_batch(i / plan.ranks, i % plan.ranks, 0, false, draw));
  }
  const std::string path = fresh_folder() + "/plan.jsonl";
  const auto start = std::chrono::steady_clock::now();
  write_plan(path, plan);
  const bool equal = read_plan(path) == plan;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  CHECK(equal);
  // It takes about one second on one core. Anything quadratic would take hours; the slack is for
  // sanitizers on a machine that does other things.
  CHECK(elapsed.count() < 60);
}
