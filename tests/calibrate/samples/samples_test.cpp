#include "calibrate/samples/samples.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "calibrate/fit/interference_fit.h"
#include "calibrate/measure/measure_rank.h"
#include "calibrate/samples/sample_log.h"
#include "calibrate/samples/sample_writer.h"
#include "costmodel/base/input_error.h"
#include "tests/approx.h"
#include "tests/calibrate/measure/fake_backend.h"
#include "tests/test_data.h"

using stepsim::test::Approx;

namespace stepsim {
namespace {

const std::vector<Op> kStep = [] {
  std::vector<Op> ops = {collate_op(), elements_op(OpClass::Optimizer, 100, Dtype::F32)};
  ops.push_back(ops.front());  // Twice a step.
  return ops;
}();

std::string header_line() {
  MeasurePlan plan = choose_plan(test::small_request("unused"), {1e-3, 1e-10});
  const Json header = {
      {"format", "stepsim-samples/1"}, {"device", "fake"}, {"plan", plan_json(plan)}};
  return header.dump();
}

/// A header, the ops of pass 0, and one step of 2 samples on one rank: collate 10 us, optimizer 4.
std::string small_file(const std::string& folder) {
  const std::string path = folder + "/samples.jsonl";
  SampleWriter writer(path, 0);
  writer.write(header_line());
  writer.write(pass_json(0, distinct_ops(kStep)).dump());
  const BatchShape batch{2, 20, 30, 500};
  writer.write(step_line(0, 0, 1.5, batch, {{10e-6, 4e-6}}));
  return path;
}

void append(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::app) << text;
}

}  // namespace

TEST_CASE("the plan of a measurement survives its JSON form") {
  const MeasurePlan plan = choose_plan(test::small_request("unused"), {1e-3, 1e-10});
  CHECK(measure_plan_from_json(parse_json(plan_json(plan).dump(), "plan"), "plan", 1) == plan);
}

TEST_CASE("a samples file has one writer at a time, and none that has not read all of it") {
  const std::string path = small_file(test::fresh_folder());
  const std::uintmax_t bytes = read_sample_file(path, nullptr).whole_bytes;
  const auto error_of_second = [&path](std::uintmax_t keep_bytes) {
    try {
      SampleWriter second(path, keep_bytes);
      return std::string("none");
    } catch (const InputError& error) {
      return std::string(error.what());
    }
  };
  const std::string taken = path + ": error: another process is writing it";
  {
    const SampleWriter first(path, bytes);
    CHECK(error_of_second(bytes).starts_with(taken));
  }
  CHECK(error_of_second(bytes) == "none");
  // Another process has added a line between this one's reading and writing.
  CHECK(error_of_second(bytes - 5).starts_with(taken));
  CHECK(read_sample_file(path, nullptr).whole_bytes == bytes);
  append(path, "{\"kind\":\"tor");
  CHECK(error_of_second(bytes) == "none");
  CHECK(read_sample_file(path, nullptr).whole_bytes == bytes);
}

TEST_CASE("what is written is read: ops with their counts, batch, sentinels and all-reduces") {
  const std::string path = small_file(test::fresh_folder());
  append(path,
         collective_line(0, 2, 1, {CollectiveKind::AllReduce, 1024, false}, {3e-6, 1e-6, 2e-6}) +
             "\n" + sentinel_line(0, 1, 2.5, 7e-3) + "\n" + pass_end_line(0, 3) + "\n");
  const SampleSet set = read_samples(path, nullptr);
  REQUIRE(set.ops.size() == 2);
  CHECK(set.ops[0].op.op_class == OpClass::Collate);
  CHECK(set.ops[0].per_step == 2);
  CHECK(set.ops[0].seconds == Approx(10e-6));
  CHECK(set.ops[0].batch == BatchShape{2, 20, 30, 500});
  CHECK(set.ops[1].op.n == 100);
  CHECK(set.ops[1].op.rows == RowUnit::Elements);
  REQUIRE(set.jitter.size() == 1);
  CHECK(set.jitter[0].step_seconds[0] == Approx(24e-6));
  REQUIRE(set.collectives.size() == 1);
  CHECK(set.collectives[0].seconds == Approx(2e-6));
  CHECK(set.collectives[0].repetitions == 3);
  REQUIRE(set.sentinels.size() == 1);
  CHECK(set.sentinels[0].seconds == Approx(7e-3));
  CHECK(set.plan.ranks == 2);
}

TEST_CASE(
    "the ops of a batch shape add up to its mean step, though each median leaves hiccups out") {
  const std::string path = small_file(test::fresh_folder());
  // Steps of 10+4+10, 30+4+30 and 10+20+10 us: the sum of medians is 24, the mean step 128 / 3.
  const BatchShape batch{2, 20, 30, 500};
  append(path, step_line(0, 1, 2, batch, {{30e-6, 4e-6}, {10e-6, 20e-6}}) + "\n");
  const SampleSet set = read_samples(path, nullptr);
  double sum = 0;
  for (const OpSample& sample : set.ops) {
    sum += sample.seconds * sample.per_step;
  }
  CHECK(sum == Approx(128e-6 / 3));
}

TEST_CASE("a cut last line is left out with a warning") {
  const std::string path = small_file(test::fresh_folder());
  append(path, R"({"kind":"step","pass":0,"ra)");
  std::vector<std::string> warnings;
  const SampleSet set = read_samples(path, &warnings);
  CHECK(set.ops.size() == 2);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0] == path + ": the last line is cut off; it is left out");
}

TEST_CASE("other damage is an error with file and line") {
  const std::string path = small_file(test::fresh_folder());
  const std::vector<std::string> damages = {
      "{\"kind\":\"step\",\n",
      "[1]\n",
      "{\"kind\":\"stepp\"}\n",
      R"({"kind":"step","pass":7,"rank":0,"at_seconds":1,"samples":2,"max_length":20,)"
      R"("useful_tokens":30,"sum_squares":500,"op_us":[[1,2]]})"
      "\n",
      R"({"kind":"step","pass":0,"rank":0,"at_seconds":1,"samples":2,"max_length":20,)"
      R"("useful_tokens":30,"sum_squares":500,"op_us":[[1,2,3]]})"
      "\n",
      R"({"kind":"all_reduce","pass":0,"ranks":2,"bytes":8,"us":[-1]})"
      "\n",
      R"({"kind":"all_reduce","pass":0,"ranks":2,"bytes":8,"us":"x"})"
      "\n",
      R"({"kind":"collective","pass":0,"op":"all_gater","ranks":2,"nodes":1,"bytes":8,"us":[1]})"
      "\n"};
  std::ifstream in(path);
  const std::string good((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  for (const std::string& damage : damages) {
    CAPTURE(damage);
    std::ofstream(path) << good << damage;
    std::string message;
    try {
      static_cast<void>(read_samples(path, nullptr));
    } catch (const InputError& error) {
      message = error.what();
    }
    CHECK(message.rfind(path + ":4:", 0) == 0);
  }
}

TEST_CASE("a file of another format is refused") {
  const std::string path = test::fresh_folder() + "/x";
  for (const char* text :
       {"", "{\"format\":\"stepsim-plan/1\"}\n", "{\"kind\":\"step\"}\n", "x\n"}) {
    CAPTURE(text);
    std::ofstream(path) << text;
    CHECK_THROWS_AS(static_cast<void>(read_samples(path, nullptr)), InputError);
  }
}

TEST_CASE("writing on a full disk is a fault of the machine") {
  CHECK_THROWS_WITH_AS(SampleWriter("/dev/full", 0).write("x"),
                       "cannot write /dev/full: No space left on device",
                       EnvironmentFault);
}

TEST_CASE("a collective lasts from the last arrival to the last end") {
  // rank 0:  |10 ......... 15|      rank 1:      |12 ...... 16|     16 - 12 = 4
  const std::vector<double> seconds =
      combine_ranks({{{}, {10, 20, 30}, {15, 21, 31}, {true, true, true}},
                     {{}, {12, 19, 30}, {16, 20.5, 32}, {true, true, false}}});
  REQUIRE(seconds.size() == 2);  // The third is no time on rank 1.
  CHECK(seconds[0] == Approx(4));
  CHECK(seconds[1] == Approx(1));
  // 20 calls back to back are told as one of them.
  const CollectiveTask pipelined{CollectiveKind::AllGather, 8, true};
  CHECK(combine_ranks({{pipelined, {0}, {10}, {true}}, {pipelined, {0}, {30}, {true}}})[0] ==
        Approx(1.5));
}

TEST_CASE("collectives are kept apart by kind, nodes and whether they go back to back") {
  const std::string path = small_file(test::fresh_folder());
  const auto line = [](CollectiveKind kind, int nodes, bool pipelined, double seconds) {
    return collective_line(0, 4, nodes, {kind, 1024, pipelined}, {seconds}) + "\n";
  };
  append(path,
         line(CollectiveKind::AllGather, 1, false, 1e-6) +
             line(CollectiveKind::AllGather, 2, false, 2e-6) +
             line(CollectiveKind::AllReduce, 1, false, 3e-6) +
             line(CollectiveKind::AllReduce, 1, true, 4e-6) +
             // As stepcal 0.1 wrote it.
             R"({"kind":"all_reduce","pass":1,"ranks":4,"bytes":1024,"us":[5.0]})" + "\n");
  const SampleSet set = read_samples(path, nullptr);
  REQUIRE(set.collectives.size() == 4);
  CHECK(set.collectives[0].kind == "all_gather");
  CHECK(set.collectives[0].nodes == 1);
  CHECK(set.collectives[1].nodes == 2);
  CHECK(set.collectives[1].seconds == Approx(2e-6));
  CHECK(set.collectives[2].kind == "all_reduce");
  CHECK(set.collectives[2].seconds == Approx(4e-6));  // Of 3 and 5.
  CHECK_FALSE(set.collectives[2].pipelined);
  CHECK(set.collectives[3].pipelined);
  CHECK(set.collectives[3].seconds == Approx(4e-6));
}

TEST_CASE("an overlap with a stand-in tells nothing of the transfer") {
  const std::string path = small_file(test::fresh_folder());
  const OverlapSample stand_in{8, 4096, 2e-6, 0, "gemm", 0, 3e-6, 4e-6};
  const OverlapSample real{8, 4096, 2e-6, 3e-6, "gemm", 0, 3e-6, 4e-6};
  append(path, overlap_line(0, stand_in) + "\n" + overlap_line(0, real) + "\n");
  const SampleSet set = read_samples(path, nullptr);
  REQUIRE(set.overlaps.size() == 2);
  CHECK(set.overlaps[0].collective_beside == 0);
  CHECK(set.overlaps[1].collective_beside == Approx(3e-6));
  std::vector<std::string> warnings;
  const auto fit = fit_interference({stand_in, stand_in}, 0, &warnings);
  REQUIRE(fit);
  CHECK(fit->value.transfer == 0);
  CHECK_FALSE(fit->transfer);
  CHECK(fit->value.compute == Approx(1.0 / 3));
  CHECK(std::count(warnings.begin(),
                   warnings.end(),
                   "overlap: no transfer was measured beside compute (it needs two GPUs); its "
                   "stretch is taken as 0") == 1);
}

TEST_CASE("a plan of stepcal 0.1 names its sizes of all-reduces") {
  Json json = plan_json(choose_plan(test::small_request("unused"), {1e-3, 1e-10}));
  json["all_reduce_bytes"] = {1024, 4096};
  for (const char* key : {"collectives", "collective_bytes", "nodes"}) {
    json.erase(key);
  }
  const MeasurePlan plan = measure_plan_from_json(parse_json(json.dump(), "plan"), "plan", 1);
  CHECK(plan.collectives == std::vector<CollectiveKind>{CollectiveKind::AllReduce});
  CHECK(plan.collective_bytes == std::vector<std::int64_t>{1024, 4096});
  CHECK(plan.nodes == 1);
}

}  // namespace stepsim
