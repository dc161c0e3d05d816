// The plan of a record that describes its own model.
#include "calibrate/import/recorded/recorded_plan.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/io/json_file.h"
#include "tests/approx.h"
#include "tests/costmodel/helpers.h"

using namespace stepsim;
using stepsim::test::Approx;

namespace {

/// Three tensors of 1000, 3000 and 500 elements and two frozen ones, of 14 and 15 bytes. The first
/// bucket, of the last two, is launched after three quarters of each backward.
RunRecord described_record() {
  RunRecord record;
  record.policy = "as trained";
  record.world_size = 2;
  record.warmup_steps = 1;
  (*record.training)["model"] = Json::parse(R"({"name": "Net", "parameters": [
    {"name": "a", "shape": [10, 100], "dtype": "f32"},
    {"name": "frozen", "shape": [7], "dtype": "bf16", "frozen": true},
    {"name": "b", "shape": [3000], "dtype": "f32"},
    {"name": "c", "shape": [500], "dtype": "f32"},
    {"name": "quantized", "shape": [5, 3], "dtype": "u8", "frozen": true}], "buffers": {}})");
  for (int step = 0; step < 3; ++step) {
    for (int rank = 0; rank < 2; ++rank) {
      StepRecord row;
      row.step = step;
      row.rank = rank;
      row.lengths = {5, 9 + step};
      row.samples = 2;
      row.max_length = 9 + step;
      row.useful_tokens = 14 + step;
      row.padded_tokens = 2 * row.max_length;
      row.data_ms = 1;
      row.forward_ms = 10;
      row.backward_ms = 20;
      row.buckets = {{14000, 26, 28}, {4000, 31, 33}};
      if (step == 0) {
        row.buckets = {{18000, 31, 33}};
      }
      record.steps.push_back(row);
    }
  }
  return record;
}

std::string plan_error(const RunRecord& record) {
  return test::error_of([&] { (void)recorded_plan(record, "run.jsonl"); });
}

}  // namespace

TEST_CASE("a described record is its own plan: tensors, buckets, batches") {
  const Plan plan = recorded_plan(described_record(), "run.jsonl");
  CHECK(plan.policy == "as trained");
  CHECK(plan.ranks == 2);
  CHECK(plan.steps == 3);
  CHECK(plan.warmup_steps == 1);
  REQUIRE(plan.model.tensors.size() == 3);
  CHECK(plan.model.name == "Net");
  CHECK(plan.model.parameter_dtype == Dtype::F32);
  CHECK(plan.model.attention == AttentionKind::Dense);
  CHECK(plan.model.tensors[1].name == "b");
  CHECK(plan.buckets == std::vector<std::vector<int>>{{2, 1}, {0}});
  CHECK(plan.model.frozen ==
        std::vector<Parameter>{{"frozen", {7}, Dtype::Bf16}, {"quantized", {8}, Dtype::F16}});
  REQUIRE(plan.micro_batches.size() == 6);
  CHECK(plan.micro_batches[5].lengths == std::vector<std::int64_t>{5, 11});
}

TEST_CASE("tensors of a described record take the backward's time as the buckets were launched") {
  const Plan plan = recorded_plan(described_record(), "run.jsonl");
  // (26 - 1 - 10) / 20 of the backward, divided as 3000 to 500.
  CHECK(plan.model.tensors[1].backward == Approx(0.75e9 * 6 / 7).epsilon(1e-8));
  CHECK(plan.model.tensors[2].backward == Approx(0.75e9 / 7).epsilon(1e-8));
  CHECK(plan.model.tensors[0].backward == 250'000'000);

  RunRecord unwatched = described_record();
  for (StepRecord& row : unwatched.steps) {
    row.buckets.clear();
  }
  const Plan by_elements = recorded_plan(unwatched, "run.jsonl");
  CHECK(by_elements.buckets.empty());
  CHECK(by_elements.model.tensors[0].backward == 1000);
  CHECK(by_elements.model.tensors[1].backward == 3000);

  // 500 and 3000 elements reach the first bucket's cap together, the rest goes to the second.
  (*unwatched.training)["ddp"] = {{"first_bucket_bytes", 2001}, {"bucket_cap_bytes", 26214400}};
  const Plan by_caps = recorded_plan(unwatched, "run.jsonl");
  CHECK(by_caps.buckets == std::vector<std::vector<int>>{{2, 1}, {0}});
  CHECK(by_caps.model.tensors[0].backward == 1000);
}

/// The record with a second micro-batch of one sample of 20 tokens in front of each step's: its
/// backward takes 20 ms, too.
RunRecord accumulated_record(bool reduces_all) {
  RunRecord record = described_record();
  for (StepRecord& row : record.steps) {
    row.lengths.insert(row.lengths.begin(), 20);
    row.micro_batches = 2;
    row.micro_batch_samples = {1, 2};
    row.micro_batch_max_lengths = {24, row.max_length};
    row.samples = 3;
    row.useful_tokens += 20;
    row.padded_tokens += 24;
    row.max_length = 24;
    row.forward_ms *= 2;
    row.backward_ms *= 2;
    for (BucketRecord& bucket : row.buckets) {
      bucket.launch_ms += 30;
      bucket.end_ms += 30;
    }
    if (reduces_all) {
      std::vector<BucketRecord> first = row.buckets;
      for (BucketRecord& bucket : first) {  // The first micro-batch's, which nobody waits for.
        bucket.launch_ms -= 30;
        bucket.end_ms = bucket.launch_ms;
      }
      row.buckets.insert(row.buckets.begin(), first.begin(), first.end());
    }
  }
  return record;
}

TEST_CASE("micro-batches of a described record are told apart, and only the last one has buckets") {
  for (const bool reduces_all : {false, true}) {
    CAPTURE(reduces_all);
    const Plan plan = recorded_plan(accumulated_record(reduces_all), "run.jsonl");
    REQUIRE(plan.micro_batches.size() == 12);
    CHECK(plan.micro_batches[10].lengths == std::vector<std::int64_t>{20});
    CHECK(plan.micro_batches[10].padded_length == 24);
    CHECK(plan.micro_batches[11].micro_batch == 1);
    CHECK(plan.micro_batches[11].lengths == std::vector<std::int64_t>{5, 11});
    CHECK(plan.micro_batches[11].padded_length == 0);
    CHECK(plan.buckets == std::vector<std::vector<int>>{{2, 1}, {0}});
    CHECK(plan.model.tensors[0].backward == 250'000'000);
  }
}

TEST_CASE("batches without padding but of differing lengths are packed ones") {
  RunRecord record = described_record();
  for (StepRecord& row : record.steps) {
    row.padded_tokens = row.useful_tokens;
  }
  CHECK(recorded_plan(record, "run.jsonl").model.attention == AttentionKind::Varlen);
}

TEST_CASE("a record that cannot be its own plan says what it lacks") {
  RunRecord record = described_record();
  *record.training = Json();
  CHECK(
      plan_error(record) ==
      "run.jsonl: error: does not describe its model; record with Recorder(…, model=ddp), or give "
      "--plan, the plan that it ran");

  record = described_record();
  record.steps[3].lengths.clear();
  CHECK(plan_error(record) ==
        "run.jsonl: error: step 1, rank 1: 2 samples and 0 lengths; record with step(lengths=…)");

  record = described_record();
  record.steps[2].micro_batches = 4;
  CHECK(
      plan_error(record) ==
      "run.jsonl: error: step 1, rank 0: 4 micro-batches; give --plan, which tells them apart, or "
      "record with this version's stepsim_recorder.py");

  record = described_record();
  record.steps[2].buckets = {{1 << 20, 26, 28}, {4000, 31, 33}};
  CHECK(plan_error(record) ==
        "run.jsonl: error: its buckets hold more bytes than its model's parameters");

  record = described_record();
  (*record.training)["model"]["parameters"][2]["shape"] = {-3};
  CHECK(plan_error(record) == "run.jsonl: error: tensors: b has a size outside 1..1099511627776");

  record = described_record();
  (*record.training)["model"]["parameters"][2]["name"] = "a";
  CHECK(plan_error(record) == "run.jsonl: error: tensors: the name 'a' is empty or used twice");

  record = described_record();
  (*record.training)["model"]["parameters"][2]["dtype"] = "bf16";
  CHECK(plan_error(record) ==
        "run.jsonl: error: parameters of f32 and bf16; only models of one dtype are known");
}

TEST_CASE(
    "buckets hold the tensors that have their bytes, also where gradients were not ready in "
    "order") {
  // As recorded of a convolution: its weight is ready before its bias.
  RunRecord record = described_record();
  (*record.training)["model"]["parameters"] = Json::parse(R"([
    {"name": "conv.weight", "shape": [96, 80, 3], "dtype": "f32"},
    {"name": "conv.bias", "shape": [96], "dtype": "f32"},
    {"name": "linear.weight", "shape": [96, 96], "dtype": "f32"},
    {"name": "linear.bias", "shape": [96], "dtype": "f32"},
    {"name": "out.weight", "shape": [40, 96], "dtype": "f32"}])");
  const auto with_buckets = [&](const std::vector<std::int64_t>& elements) {
    for (StepRecord& row : record.steps) {
      row.buckets.clear();
      for (const std::int64_t count : elements) {
        row.buckets.push_back({4 * count, 26, 28});
      }
    }
    return recorded_plan(record, "run.jsonl").buckets;
  };
  using Buckets = std::vector<std::vector<int>>;
  CHECK(with_buckets({40 * 96 + 96 + 96 * 96 + 96 * 80 * 3, 96}) == Buckets{{4, 3, 2, 0}, {1}});
  CHECK(with_buckets({40 * 96 + 96 * 96, 96 + 96 + 96 * 80 * 3}) == Buckets{{4, 2}, {3, 1, 0}});
  CHECK(with_buckets({40 * 96 + 96 * 96 + 96, 96 * 80 * 3 + 96}) == Buckets{{4, 3, 2}, {1, 0}});
  // No choice has the bytes of an unknown bucket: the order decides, and no bucket is empty.
  CHECK(with_buckets({96 * 80 * 3 + 96 * 96 + 96 + 40 * 96 + 1, 95}) == Buckets{{4, 3, 2, 1}, {0}});
  CHECK(with_buckets({1, 1, 1, 1, 1}) == Buckets{{4}, {3}, {2}, {1}, {0}});
  CHECK_THROWS_WITH_AS(with_buckets({1, 1, 1, 1, 1, 1}),
                       "run.jsonl: error: has 6 buckets for 5 trained tensors",
                       InputError);
}

TEST_CASE("where all micro-batches wait for gradients, launches are placed without those waits") {
  RunRecord record = described_record();
  const Plan once = recorded_plan(record, "run.jsonl");
  for (StepRecord& row :
       record.steps) {  // Twice the same, one behind the other, 7 ms of wait each.
    row.micro_batches = 2;
    row.micro_batch_samples = {1, 1};
    row.micro_batch_max_lengths = {row.max_length, row.max_length};
    row.forward_ms *= 2;
    row.backward_ms *= 2;
    row.wait_ms = 14;
    row.buckets = {{14000, 26, 28}, {4000, 31, 38}, {14000, 63, 65}, {4000, 68, 75}};
    if (row.step == 0) {
      row.buckets = {{18000, 31, 38}, {18000, 68, 75}};
    }
  }
  const Plan twice = recorded_plan(record, "run.jsonl");
  CHECK(twice.buckets == once.buckets);
  CHECK(twice.model == once.model);
}

TEST_CASE("records of one model whose launches differ a little are of one model") {
  RunRecord other = described_record();
  for (StepRecord& row : other.steps) {
    row.buckets[0].launch_ms -= row.step > 0 ? 4 : 0;
  }
  const std::vector<RecordFile> files = {{"one.jsonl", described_record()}, {"two.jsonl", other}};
  const std::vector<Plan> plans = recorded_plans(files);
  CHECK(plans[0].model == plans[1].model);
  const double share = 0.5 * (15.0 / 20 + 11.0 / 20);
  const auto& tensors = plans[0].model.tensors;
  CHECK(static_cast<double>(tensors[1].backward + tensors[2].backward) == Approx(1e9 * share));
}

TEST_CASE("a record keeps what it says about the training") {
  const RunRecord record = described_record();
  const std::string path = "described_record.jsonl";
  write_run_record(path, record);
  CHECK(read_run_record(path).training == record.training);
  std::remove(path.c_str());
}

TEST_CASE("a record without bucket times takes shares and buckets from one that has them") {
  RunRecord plain = described_record();
  for (StepRecord& row : plain.steps) {
    row.buckets.clear();
  }
  RunRecord other = plain;
  (*other.training)["model"]["parameters"].erase(0);
  const std::vector<RecordFile> files = {
      {"plain.jsonl", plain}, {"watched.jsonl", described_record()}, {"other.jsonl", other}};
  const std::vector<Plan> plans = recorded_plans(files);
  CHECK(plans[0].model == plans[1].model);
  CHECK(plans[0].buckets == plans[1].buckets);
  CHECK(plans[0].micro_batches.size() == 6);
  CHECK(plans[2] == recorded_plan(other, "other.jsonl"));
}
