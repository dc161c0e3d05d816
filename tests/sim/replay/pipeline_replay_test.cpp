#include "sim/replay/pipeline_replay.h"

#include <doctest/doctest.h>

#include "tests/approx.h"
#include "tests/costmodel/helpers.h"

using namespace stepsim;
using stepsim::test::Approx;

namespace {

const std::string kHeader = "step,dp_rank,pp_stage,op,seq,start_ms,dur_ms\n";

/// One replica with two stages and two micro-batches. Starts only give the order.
const std::string kTwoStages =
    "7,0,0,params-all-gather,0,0,1\n"
    "7,0,0,forward-compute,0,1,8\n"
    "7,0,0,forward-send,0,9,3\n"
    "7,0,0,forward-compute,1,12,12\n"
    "7,0,0,backward-recv,0,42,4\n"
    "7,0,0,forward-send,1,42,3\n"
    "7,0,0,backward-compute,0,46,20\n"
    "7,0,0,backward-recv,1,76,4\n"
    "7,0,0,backward-compute,1,80,20\n"
    "7,0,0,optimizer,0,100,1\n"
    "7,0,1,params-all-gather,0,0,2\n"
    "7,0,1,forward-recv,0,9,3\n"
    "7,0,1,forward-compute,0,12,10\n"
    "7,0,1,backward-compute,0,22,20\n"
    "7,0,1,backward-send,0,42,4\n"
    "7,0,1,forward-recv,1,42,3\n"
    "7,0,1,forward-compute,1,46,10\n"
    "7,0,1,backward-compute,1,56,20\n"
    "7,0,1,backward-send,1,76,4\n"
    "7,0,1,optimizer,0,80,1\n";

PipelineTrace read(const std::string& rows) {
  return read_pipeline_trace(CsvTable(test::written("ops.csv", kHeader + rows)));
}

double only_step_ms(const PipelineTrace& recording, const PipelineReplayOptions& options) {
  const auto steps = replay(recording, options);
  REQUIRE(steps.size() == 1);
  return to_ms(steps[0]);
}

std::string pipeline_error(const std::string& rows) {
  return test::error_of([&] { (void)replay(read(rows)); });
}

bool pipeline_error_holds(const std::string& text, const std::string& part) {
  CAPTURE(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

// ms        1   9  12    24      42 46     66      80     100
// stage 0   |F0 |>>|F1...|       |xx|B0....|       |B1....|O
// stage 1       |>>|F0..|B0......|xx|F1..|B1.....|<<|O
TEST_CASE("blocking sends: both stages wait for the transfer, and the step is 101 ms") {
  const PipelineTrace recording = read(kTwoStages);
  CHECK(to_ms(recording.steps[0].measured) == 101);
  CHECK(only_step_ms(recording, {}) == Approx(101));
}

// Forward 1 ends on stage 0 at 21, its transfer at 24: stage 1 goes on at 42 with it, at 52 with
// the backward, ends that at 72. Backward 1 starts on stage 0 at 76, ends at 96.
TEST_CASE("buffered sends: only the receiver waits, and the step is 97 ms") {
  CHECK(only_step_ms(read(kTwoStages), {.sends = SendMode::Buffered}) == Approx(97));
}

// Forward 0 of stage 0 takes the mean of 8 and 12: all that follows is 2 ms later.
TEST_CASE("balanced: each forward and backward takes its stage's mean") {
  CHECK(only_step_ms(read(kTwoStages), {.balanced = true}) == Approx(103));
  CHECK(only_step_ms(read(kTwoStages), {.sends = SendMode::Buffered, .balanced = true}) ==
        Approx(99));
}

// The reduce-scatter starts when both replicas are there, at 30; 35 and 37. Clipping starts at 37
// and ends at 38 and 39; the optimizer of replica 0 at 48, of replica 1 at 40.
TEST_CASE("operations of a group start when all its workers are there") {
  const PipelineTrace recording = read(
      "0,0,0,forward-compute,0,0,10\n"
      "0,0,0,grads-reduce-scatter,0,30,5\n"
      "0,0,0,optimizer-clip-main-grad,0,37,1\n"
      "0,0,0,optimizer,0,39,10\n"
      "0,1,0,forward-compute,0,0,30\n"
      "0,1,0,grads-reduce-scatter,0,30,7\n"
      "0,1,0,optimizer-clip-main-grad,0,37,2\n"
      "0,1,0,optimizer,0,39,1\n");
  CHECK(only_step_ms(recording, {}) == Approx(48));
}

TEST_CASE("embeddings are reduced by the stages that have them, in each replica") {
  // Three stages: 0 and 2 hold embeddings. Stage 2 arrives at 20, so stage 0 ends at 23, stage 1 at
  // 21 by its own work.
  const PipelineTrace recording = read(
      "0,0,0,forward-compute,0,0,5\n"
      "0,0,0,embedding-grads-all-reduce,0,20,3\n"
      "0,0,1,forward-compute,0,0,21\n"
      "0,0,2,forward-compute,0,0,20\n"
      "0,0,2,embedding-grads-all-reduce,0,20,3\n");
  CHECK(only_step_ms(recording, {}) == Approx(23));
}

TEST_CASE("a communication below zero counts as none, computing below zero is refused") {
  CHECK(only_step_ms(read("0,0,0,forward-compute,0,0,5\n0,0,0,grads-reduce-scatter,0,5,-0.1\n"),
                     {}) == Approx(5));
  CHECK(pipeline_error_holds(pipeline_error("0,0,0,forward-compute,0,0,-5\n"),
                             "ops.csv:2:27: error: dur_ms: less"));
}

TEST_CASE("rows that cannot be are refused") {
  CHECK(pipeline_error_holds(pipeline_error(""), "holds no rows"));
  CHECK(pipeline_error_holds(pipeline_error("4,0,0,optimizer,0,0,0\n"), "step 4: takes no time"));
  CHECK(pipeline_error_holds(pipeline_error("0,0,0,forward,0,0,5\n"), "unknown op 'forward'"));
  CHECK(pipeline_error_holds(pipeline_error("0,0,0,forward-send,0,0,5\n"),
                             "op: stage 0 has no such neighbour"));
  CHECK(pipeline_error_holds(
      pipeline_error("0,0,0,forward-compute,1,0,5\n"),
      "step 0, dp_rank 0, pp_stage 0: forward-compute: seq is 1, but 0 is next"));
  CHECK(pipeline_error_holds(
      pipeline_error("0,0,0,forward-compute,0,0,5\n0,999999,9999,forward-compute,0,0,5\n"),
      "2 rows are too few for 1000000 replicas with 10000 stages"));
  CHECK(pipeline_error_holds(
      pipeline_error("0,0,0,optimizer,0,0,5\n0,0,0,optimizer,1,0,5\n0,1,1,optimizer,0,0,5\n"
                     "0,1,1,optimizer,1,0,5\n"),
      "step 0, dp_rank 0, pp_stage 1: no rows"));
}

TEST_CASE("a send without its receive is refused with both counts") {
  CHECK(pipeline_error_holds(
      pipeline_error("0,0,0,forward-send,0,0,5\n0,0,1,optimizer,0,0,5\n"),
      "step 0, dp_rank 0, pp_stage 0: 1 rows of forward-send, but 0 of forward-recv"));
  CHECK(pipeline_error_holds(
      pipeline_error("0,0,0,grads-reduce-scatter,0,0,5\n0,1,0,optimizer,0,0,5\n"),
      "step 0, dp_rank 1, pp_stage 0: 0 rows of grads-reduce-scatter, but 1"));
}

TEST_CASE("stages that wait for each other for ever are refused with their step") {
  const std::string rows =
      "3,0,0,backward-recv,0,0,1\n3,0,0,forward-compute,0,1,1\n3,0,0,forward-send,0,2,1\n"
      "3,0,1,forward-recv,0,0,1\n3,0,1,forward-compute,0,1,1\n3,0,1,backward-send,0,2,1\n";
  CHECK(pipeline_error_holds(pipeline_error(rows), "step 3: workers wait for each other for ever"));
}
