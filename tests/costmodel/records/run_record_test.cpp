#include "costmodel/records/run_record.h"

#include <cmath>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/costmodel/helpers.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

StepRecord random_step(int repeat, int step, int rank, RandomValues& draw) {
  StepRecord record;
  record.repeat = repeat;
  record.step = step;
  record.rank = rank;
  record.samples = draw.whole(64);
  record.max_length = draw.whole(512);
  record.useful_tokens = draw.whole(10000);
  record.padded_tokens = record.useful_tokens + draw.whole(10000);
  for (double* time : {&record.start_ms,
                       &record.data_ms,
                       &record.forward_ms,
                       &record.backward_ms,
                       &record.wait_ms,
                       &record.optimizer_ms,
                       &record.step_ms,
                       &record.thread_cpu_ms,
                       &record.forward_cpu_ms,
                       &record.backward_cpu_ms,
                       &record.data_host_ms,
                       &record.forward_host_ms,
                       &record.backward_host_ms,
                       &record.optimizer_host_ms,
                       &record.lag_ms,
                       &record.loss}) {
    *time = draw.real();
  }
  record.compiled_graphs = draw.whole(3);
  record.micro_batches = 1 + draw.whole(3);
  if (record.micro_batches > 1) {
    record.micro_batch_samples.assign(static_cast<std::size_t>(record.micro_batches), 0);
    record.micro_batch_samples.back() = record.samples;
    record.micro_batch_max_lengths = record.micro_batch_samples;
  }
  for (int i = draw.whole(3); i > 0; --i) {
    record.lengths.push_back(1 + draw.whole(512));
  }
  for (int i = draw.whole(3); i > 0; --i) {
    record.buckets.push_back({draw.whole(1 << 30), draw.real(), draw.real()});
  }
  for (int i = draw.whole(3); i > 0; --i) {
    const double launch = draw.real();
    record.gathers.push_back({draw.whole(4), launch, launch + draw.real(), draw.real()});
  }
  return record;
}

RunRecord random_record(std::uint64_t seed) {
  RandomValues draw(seed);
  RunRecord record;
  record.scenario = draw.text();
  record.policy = draw.text();
  record.plan_profile = draw.text();
  record.plan_profile_id = record.plan_profile.empty() ? "" : draw.text();
  record.world_size = 1 + draw.whole(3);
  record.backend = "gloo";
  record.device = draw.text();
  record.started_at = "2025-01-02T03:04:05Z";
  record.warmup_steps = draw.whole(3);
  record.repeats = 1 + draw.whole(2);
  *record.versions = {{"stepsim", "0.1.0"}, {"eigen", draw.text()}};
  for (int i = draw.whole(4); i > 0; --i) {
    record.sentinel_ms.push_back(draw.real());
  }
  for (int repeat = 0; repeat < record.repeats; ++repeat) {
    for (int step = 0; step < 3; ++step) {
      for (int rank = 0; rank < record.world_size; ++rank) {
        record.steps.push_back(random_step(repeat, step, rank, draw));
      }
    }
  }
  return record;
}

/// What a recorder outside of this project writes at least.
const std::string kForeign =
    R"({"format":"stepsim-run-record/1","world_size":2})"
    "\n"
    R"({"step":0,"rank":0,"samples":8,"max_length":100,"useful_tokens":700,"padded_tokens":800,)"
    R"("start_ms":0,"data_ms":1,"forward_ms":2,"backward_ms":3,"optimizer_ms":1,"step_ms":7})"
    "\n"
    R"({"step":0,"rank":1,"samples":8,"max_length":90,"useful_tokens":700,"padded_tokens":720,)"
    R"("start_ms":0.5,"data_ms":1,"forward_ms":2,"backward_ms":3,"optimizer_ms":1,"step_ms":7,)"
    R"("lengths":[1,2],"peak_memory_bytes":5})"
    "\n";

std::string record_error_after(const std::string& from, const std::string& to) {
  return error_of_file("run.jsonl", replaced(kForeign, from, to), [](const std::string& path) {
    return read_run_record(path);
  });
}

}  // namespace

TEST_CASE("a sample without tokens is refused by its line") {
  CHECK(record_error_after("[1,2]", "[1,0]")
            .find("run.jsonl:3: error: lengths[1]: 0: a sample has "
                  "one token at least") != std::string::npos);
}

TEST_CASE("a run record reads back as it was written") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    CAPTURE(seed);
    const RunRecord record = random_record(seed);
    const std::string path = fresh_folder() + "/run.jsonl";
    write_run_record(path, record);
    std::vector<std::string> warnings;
    CHECK(read_run_record(path, &warnings) == record);
    CHECK(warnings.empty());
  }
}

TEST_CASE("a record of another recorder needs none of our own members") {
  const RunRecord record = read_run_record(written("run.jsonl", kForeign));
  REQUIRE(record.steps.size() == 2);
  CHECK(record.steps[1].start_ms == 0.5);
  CHECK(record.steps[1].wait_ms == 0);
  CHECK(record.steps[1].buckets.empty());
  CHECK(record.repeats == 1);
}

TEST_CASE("a killed run stays readable without its last line") {
  const std::string path = written("run.jsonl", kForeign.substr(0, kForeign.size() - 20));
  std::vector<std::string> warnings;
  CHECK(read_run_record(path, &warnings).steps.size() == 1);
  CHECK(warnings ==
        std::vector<std::string>{path + ":3: the last line is cut off and was left out"});
}

TEST_CASE("other damage of a run record is refused by line") {
  CHECK(record_error_after("\"data_ms\":1", "\"data_ms\":1,\"forward_host_ms\":1") ==
        "run.jsonl:2: error: data_host_ms: missing");
  CHECK(record_error_after("\"rank\":1", "\"rank\":2") ==
        "run.jsonl:3: error: rank: 2 is outside 0..1");
  CHECK(record_error_after("\"rank\":1", "\"rank\":0") ==
        "run.jsonl:3: error: step 0 of rank 0 is there twice (repeat 0)");
  CHECK(record_error_after("\"data_ms\":1", "\"data_ms\":-1") ==
        "run.jsonl:2: error: data_ms: -1 is negative");
  CHECK(record_error_after("\"data_ms\":1", "\"data_ms\":\"1\"") ==
        "run.jsonl:2: error: data_ms: expected a finite number, found a text");
  CHECK(record_error_after("\"data_ms\":1,", "") == "run.jsonl:2: error: data_ms: missing");
  CHECK(
      record_error_after("\"data_ms\":1,", "\"data_ms\":NaN,").find("'NaN' is not a JSON number") !=
      std::string::npos);
  CHECK(record_error_after("\"lengths\":[1,2]",
                           R"("lengths":[1,2],"gathers":[{"unit":0,"launch_ms":2,"end_ms":1}])") ==
        "run.jsonl:3: error: gathers[0].end_ms: 1 is before its launch_ms, 2");
  CHECK(record_error_after("\"world_size\":2", "\"world_size\":0") ==
        "run.jsonl:1: error: world_size: 0 is below 1");
}

TEST_CASE("a run whose loss is no number any more keeps its times") {
  RunRecord record = random_record(3);
  record.steps.front().loss = std::nan("");
  const std::string path = fresh_folder() + "/run.jsonl";
  write_run_record(path, record);
  CHECK(content(path).find("\"loss\":null") != std::string::npos);
  const RunRecord again = read_run_record(path);
  CHECK(std::isnan(again.steps.front().loss));
  CHECK(again.steps.front().step_ms == record.steps.front().step_ms);
}

TEST_CASE("padded tokens hold the useful ones") {
  CHECK(record_error_after(R"("padded_tokens":800)", R"("padded_tokens":3)")
            .find("run.jsonl:2: error: padded_tokens: 3 are fewer than the 700 useful ones") !=
        std::string::npos);
  CHECK(record_error_after(R"("padded_tokens":800)", R"("padded_tokens":700)").empty());
}
