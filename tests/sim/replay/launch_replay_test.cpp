#include "sim/replay/launch_replay.h"

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "tests/sim/replay/replay_files.h"

using namespace stepsim;

namespace {

constexpr Duration us(std::int64_t microseconds) {
  return Duration(microseconds * 1000);
}

LaunchTrace one_rank(const std::string& rows) {
  test::LaunchFiles files;
  files.ranks = "rank,step_start_us\n0,100\n";
  files.rows = rows;
  return read_launch_trace(CsvTable(files.written()));
}

LaunchTrace example() {
  return read_launch_trace(CsvTable(test::source_root() + "/scenarios/replay/program.csv"));
}

}  // namespace

// rank 0   a 12..112, b 112..312, update 363..383      (us)
// rank 1   a 12..312, b 312..512, update 512..532
// reduce            312..362: from the straggler's arrival
// The CPU sees the end of the update 5 us later and takes 2 us more.
TEST_CASE("the shipped example: a straggler delays the other rank, overlap hides its all-reduce") {
  const LaunchReplay result = replay(example());
  REQUIRE(result.ranks.size() == 2);
  CHECK(result.ranks[0].step == us(390));
  CHECK(result.ranks[1].step == us(539));
  CHECK_FALSE(result.ranks[0].measured.has_value());
  REQUIRE(result.collectives.size() == 1);
  CHECK(result.collectives[0].replayed.skew == us(200));
  CHECK(result.collectives[0].replayed.transfer == us(50));
  CHECK(result.collectives[0].replayed.end == us(362));
  CHECK_FALSE(result.collectives[0].measured.has_value());
}

TEST_CASE("without the barrier the example's fast rank does not wait: update 312..332") {
  const LaunchReplay result = replay(example(), {}, {.barrier = false});
  CHECK(result.ranks[0].step == us(339));
  CHECK(result.ranks[1].step == us(539));
  CHECK(result.collectives.empty());
}

TEST_CASE("one rank's program stands for all") {
  const LaunchReplay slow = replay(example(), {}, {.ranks_from = 1});
  CHECK(slow.ranks[0].step == us(539));
  // All arrive at 112: reduce 112..162, b 112..312, update 312..332.
  const LaunchReplay fast = replay(example(), {}, {.ranks_from = 0});
  CHECK(fast.ranks[1].step == us(339));
}

TEST_CASE("the transfer time is scaled, and then exposed on both ranks") {
  // reduce 312..562: updates 563..583.
  const LaunchReplay result = replay(example(), {}, {.transfer_scale = 5});
  CHECK(result.ranks[0].step == us(590));
  CHECK(result.ranks[1].step == us(590));
}

TEST_CASE("the CPU's own times are scaled, latencies are not") {
  // Calls at 10 and 18, synchronisation from 28: kernel 10 + 7 .. 22, CPU free at max(28 + 6, 27).
  const LaunchTrace recording = one_rank("0,5,4,gpu,7,5,,\n0,5,0,sync,7,,,\n");
  CHECK(replay(recording).ranks[0].step == us(22));
  CHECK(replay(recording, {}, {.cpu_scale = 2}).ranks[0].step == us(34));
}

TEST_CASE("work waits for a row on another stream") {
  const auto recording = [](const std::string& waits) {
    test::LaunchFiles files;
    files.header =
        "rank,gap_us,cpu_dur_us,type,stream,gpu_dur_us,waits_collective,collective,waits_row\n";
    files.ranks = "rank,step_start_us\n0,0\n";
    files.rows =
        "0,1,2,gpu,7,100,,,\n0,1,2,gpu,7,50,,,\n0,1,2,gpu,8,10,,," + waits + "\n0,1,0,sync,8,,,,\n";
    return read_launch_trace(CsvTable(files.written()));
  };
  // Kernels 8..108 and 108..158; the one on stream 8 from 14 on, or after the first or the second.
  CHECK(replay(recording("")).ranks[0].step == us(29));
  CHECK(replay(recording("0")).ranks[0].step == us(123));
  CHECK(replay(recording("1")).ranks[0].step == us(173));
  for (const char* wrong : {"2", "3", "99"}) {
    CAPTURE(wrong);
    CHECK_THROWS_WITH_AS(static_cast<void>(recording(wrong)),
                         doctest::Contains("is no earlier row of type gpu or d2h"),
                         InputError);
  }
}

TEST_CASE("work that the recording held up for no known reason is held up again") {
  test::LaunchFiles files;
  files.header =
      "rank,gap_us,cpu_dur_us,type,stream,gpu_dur_us,waits_collective,collective,held_us\n";
  files.ranks = "rank,step_start_us,cut\n0,0,1\n";
  files.rows = "0,1,2,gpu,7,100,,,\n0,1,2,gpu,7,50,,,30\n0,1,0,sync,7,,,,\n";
  const LaunchReplay result = replay(read_launch_trace(CsvTable(files.written())));
  // Kernels 8..108 and, once it could start, 30 us later: 138..188.
  CHECK(result.ranks[0].step == us(193));
  CHECK(result.ranks[0].cut);
}

TEST_CASE("a blocking copy ends with its copy, whatever its recorded call took") {
  // Kernel 8..108, copy 108..118, CPU goes on at 125 (not 900 later), then 10 us to the end.
  CHECK(replay(one_rank("0,1,4,gpu,7,100,,\n0,5,900,d2h,7,10,,\n0,10,0,end,,,,\n")).ranks[0].step ==
        us(135));
  // A copy of 0 us: start 1 + 7, end 8, so 15 by its end and 9 by its call.
  CHECK(replay(one_rank("0,1,900,d2h,7,0,,\n")).ranks[0].step == us(15));
}

TEST_CASE("a synchronisation with an idle stream takes its call only") {
  // Kernel 7..8, idle long before 50: 50 + 3.
  CHECK(replay(one_rank("0,0,4,gpu,7,1,,\n0,46,0,sync,7,,,\n")).ranks[0].step == us(53));
  // Not before the kernel's end + 5: kernel 7..57, call at 10.
  CHECK(replay(one_rank("0,0,4,gpu,7,50,,\n0,6,0,sync,7,,,\n")).ranks[0].step == us(62));
}

TEST_CASE("calls that overlap take back what both took") {
  // Calls 10..14 and 12..13: the step ends at 13.
  CHECK(replay(one_rank("0,10,4,cpu,,,,\n0,-2,1,cpu,,,,\n")).ranks[0].step == us(13));
}

TEST_CASE("collectives of the communication stream follow each other by 1 us") {
  // Collective 0 is ready at 10, ends at 60; collective 1 (no producer) is ready at 11 and starts
  // at 61, ends at 66. Its waiting kernel starts at 67, ends at 70; CPU at 75.
  const LaunchTrace recording =
      one_rank("0,0,1,nccl,20,,,0\n0,0,1,nccl,20,,,1\n0,0,1,gpu,7,3,1,\n0,0,0,sync,7,,,\n");
  const LaunchReplay result = replay(recording);
  REQUIRE(result.collectives.size() == 2);
  CHECK(result.collectives[0].replayed.end == us(100 + 60));
  CHECK(result.collectives[1].replayed.end == us(100 + 66));
  CHECK(result.ranks[0].step == us(75));
}

TEST_CASE("a producer stream without work delays nothing, later work neither") {
  // Only what was launched before counts: the kernel behind the collective runs 8..1008.
  const LaunchTrace recording = one_rank("0,0,1,nccl,20,,,0\n0,0,1,gpu,7,1000,,\n");
  CHECK(replay(recording).collectives[0].replayed.end == us(100 + 60));
}

TEST_CASE("recorded residencies as transfer times: of a rank, or the shortest") {
  test::LaunchFiles files;
  files.collectives = "collective,producer_stream,fitted_D_us\n0,7,\n";
  files.rows =
      "0,0,1,nccl,20,400,,0\n0,0,0,sync,20,,,\n"
      "1,300,1,nccl,20,90,,0\n1,0,0,sync,20,,,\n";
  const LaunchTrace recording = read_launch_trace(CsvTable(files.written()));
  // Last arrival at 310; the stream is free 1 us after the end, the CPU 5 us later.
  CHECK(replay(recording, {}, {.transfers_from = 0}).ranks[0].step == us(716));
  CHECK(replay(recording, {}, {.transfers_from = 1}).ranks[0].step == us(406));
  CHECK(replay(recording, {}, {.transfers_from = kShortest}).ranks[0].step == us(406));
}
