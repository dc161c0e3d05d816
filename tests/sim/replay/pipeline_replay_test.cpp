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
  CHECK(only_step_ms(recording, {.host_gaps = false}) == Approx(48));
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

// Each host is busy for 2 ms before its optimizer; the second replica's reduce-scatter waits for
// the first one, whose host takes 3 ms to begin it.
TEST_CASE("what a host does between two rows counts, and what it waits for does not") {
  const PipelineTrace recording = read(
      "0,0,0,params-all-gather,0,0,4\n"
      "0,0,0,forward-compute,0,5,25\n"
      "0,0,0,grads-reduce-scatter,0,33,7\n"
      "0,0,0,optimizer,0,42,5\n"
      "0,1,0,params-all-gather,0,0,4\n"
      "0,1,0,forward-compute,0,5,5\n"
      "0,1,0,grads-reduce-scatter,0,33,7\n"
      "0,1,0,optimizer,0,42,5\n");
  CHECK(to_ms(recording.steps[0].measured) == 47);
  CHECK(only_step_ms(recording, {}) == Approx(47));
  CHECK(only_step_ms(recording, {.host_gaps = false}) == Approx(41));
  // Balanced forwards of 15 ms: both arrive at 20, and begin at 23.
  CHECK(only_step_ms(recording, {.balanced = true}) == Approx(37));
}

TEST_CASE("a gap far above those of the other replicas is no work of the host") {
  std::string rows;
  for (int replica = 0; replica < 5; ++replica) {
    const std::string who = "0," + std::to_string(replica) + ",0,";
    const int gap = replica == 0 ? 500 : 1;
    rows += who + "params-all-gather,0,0,10\n" + who + "forward-compute,0," +
            std::to_string(10 + gap) + ",20\n";
  }
  // Four times the median.
  CHECK(only_step_ms(read(rows), {}) == Approx(10 + 4 + 20));
}

TEST_CASE("cut steps are left out, and the others replayed") {
  std::string second = kTwoStages;
  for (std::size_t at = 0; (at = second.find("7,0,", at)) != std::string::npos; ++at) {
    if (at == 0 || second[at - 1] == '\n') {
      second[at] = '8';
    }
  }
  // A send without its receive; a worker that begins late; no optimizer.
  const std::string lonely = "5,0,0,forward-send,0,0,5\n5,0,1,optimizer,0,0,5\n";
  const std::string late =
      "6,0,0,params-all-gather,0,0,1\n6,0,0,optimizer,0,90,1\n"
      "6,0,1,backward-compute,0,60,20\n6,0,1,optimizer,0,80,1\n";
  const std::string unfinished =
      "9,0,0,params-all-gather,0,0,1\n9,0,0,forward-compute,0,1,9\n"
      "9,0,1,params-all-gather,0,0,1\n9,0,1,forward-compute,0,1,9\n";
  const PipelineTrace recording = read(lonely + late + kTwoStages + second + unfinished);
  REQUIRE(recording.steps.size() == 2);
  CHECK(recording.steps[0].number == 7);
  CHECK(recording.steps[1].number == 8);
  REQUIRE(recording.cut.size() == 3);
  CHECK(recording.cut[0].number == 5);
  CHECK(recording.cut[0].why ==
        "step 5, dp_rank 0, pp_stage 0: 1 rows of forward-send, but 0 of forward-recv on the other "
        "side, step 5, dp_rank 0, pp_stage 1: ");
  CHECK(recording.cut[1].number == 6);
  CHECK(recording.cut[1].why ==
        "begins inside: the first row of dp_rank 0, pp_stage 1 starts 60 ms after the step");
  CHECK(recording.cut[2].number == 9);
  CHECK(recording.cut[2].why == "has 0 rows of optimizer, where other steps have 2");
  CHECK(replay(recording).size() == 2);
  // One step alone, or all alike: nothing tells that a stage that begins late was cut.
  CHECK(read(late).cut.empty());
  // A recording of nothing else is refused.
  CHECK(pipeline_error_holds(pipeline_error(late + unfinished),
                             "no step is whole: step 6 begins inside"));
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
