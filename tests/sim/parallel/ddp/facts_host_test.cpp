// Facts of DistributedDataParallel: the host, interference, and what is reported.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/network/interference.h"
#include "sim/predict/predict.h"
#include "tests/approx.h"
#include "tests/sim/parallel/ddp/ddp_fixture.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

Instruction op(Duration work, Duration launch = Duration(0), std::uint8_t stream = kComputeStream) {
  Instruction in;
  in.kind = Opcode::Work;
  in.stream = stream;
  in.host = in.latency = launch;
  in.work = work;
  return in;
}

/// A collective that needs nothing of the compute stream.
Instruction send(std::int32_t index, Duration latency = Duration(0)) {
  Instruction in;
  in.kind = Opcode::Collective;
  in.stream = kNoStream;
  in.index = index;
  in.latency = latency;
  return in;
}

ExecutionTrace play(const Program& program, const Interference& interference, int queue_depth = 0) {
  EngineRules rules;
  rules.interference = interference;
  rules.queue_depth = queue_depth;
  Engine engine(rules, std::vector<RankClock>(program.ranks.size()));
  return engine.play(program);
}

Collective transfer(std::int64_t ns, std::int32_t channels = 0) {
  Collective collective;
  collective.transfer = Duration(ns);
  collective.channels = channels;
  return collective;
}

/// End of a backward of `ops` equal ops beside `buckets` equal transfers that are all ready at 0.
SimTime overlapped(
    std::int64_t backward, int ops, std::int64_t all, int buckets, double k, int ranks = 1) {
  Program program;
  program.ranks.resize(static_cast<std::size_t>(ranks));
  for (int b = 0; b < buckets; ++b) {
    program.collectives.push_back(transfer(all / buckets));
  }
  for (std::vector<Instruction>& rank : program.ranks) {
    for (int b = 0; b < buckets; ++b) {
      rank.push_back(send(b));
    }
    for (int i = 0; i < ops; ++i) {
      rank.push_back(op(Duration(backward / ops)));
    }
  }
  Interference interference;
  interference.compute = interference.transfer = k;
  const ExecutionTrace played = play(program, interference);
  return std::max(played.ranks[0].device_end, played.collectives.back().end);
}

/// End of one op of 1000 ns and so many blocks beside a collective that is resident throughout.
SimTime beside(int blocks, int channels, const Interference& interference) {
  Program program;
  Instruction gemm = op(Duration(1000));
  gemm.blocks = blocks;
  program.ranks = {{send(0), gemm}};
  program.collectives = {transfer(100'000, channels)};
  return play(program, interference).ranks[0].device_end;
}

constexpr const char* kScenario = R"([scenario]
name = "overlap"
question = "How much of the communication hides?"
seed = 1
steps = 5
warmup_steps = 2

[cluster]
ranks = 2
slow_ranks = [{ rank = 1, factor = 1.2 }]
all_reduce = { sizes = ["1 KiB", "64 MiB"], times = ["0.3 ms", "60 ms"] }

[model]
preset = "tiny-classifier"

[ddp]
bucket_cap = "64 KiB"
first_bucket_cap = "4 KiB"

[times]
forward = "2 ms"
backward = "4 ms"
optimizer = "0.5 ms"
copy_bandwidth = "10 GB/s"

[host]
hook = "1 us"

[data]
samples = 400
lengths = { uniform = [16, 128] }

[[policy]]
name = "fixed 8"
kind = "fixed"
batch_size = 8
)";

}  // namespace

TEST_CASE("with kernels shorter than their launches the step is the host's time") {
  constexpr int kParameters = 20;
  DdpCase work(std::vector<std::int64_t>(kParameters, 1000));
  work.limits(1000, 5000);
  const auto buckets = static_cast<std::int64_t>(work.buckets.rebuilt.size());
  work.launch = Duration(1000);
  work.prices.hook = Duration(300);
  work.prices.enqueue = Duration(2000);
  work.copy_in = work.copy_out = work.optimizer = Duration(100);
  work.reduce = [](double) { return Duration(1); };
  work.compute(Duration(100), Duration(100));
  const DdpRun ddp = work.play();
  // A launch for the forward, the optimizer, and three a parameter.
  const std::int64_t expected = (2 + 3 * kParameters) * 1000 + kParameters * 300 + buckets * 2000;
  CHECK(ddp.played.ranks[0].host_end == time_at(expected));
  // The device is done one kernel after the host's last launch.
  CHECK(ddp.device_end() == time_at(expected + 100));

  DdpCase local = work;
  local.step.iterations[0].synchronises = false;
  local.step.iterations[0].launching = Launching::None;
  const Duration added = ddp.device_end() - local.play().device_end();
  CHECK(added == Duration(kParameters * (2 * 1000 + 300) + buckets * 2000));
  // A bucket view saves one launch a parameter.
  work.options.gradient_as_bucket_view = true;
  CHECK(work.play().device_end() == ddp.device_end() - Duration(kParameters * 1000));
}

TEST_CASE("a host that is ahead leaves the step to the device") {
  DdpCase work({1000, 1000, 1000});
  const SimTime free = work.play().device_end();
  work.launch = Duration(10);
  work.compute(Duration(500), Duration(1000));
  // Only the first launch shows.
  CHECK(work.play().device_end() == free + Duration(10));
}

TEST_CASE("on the CPU enqueueing takes the computing thread's time") {
  DdpCase work({1000, 1000});
  work.limits(1000, 1000);
  work.host.waits_for_collectives = work.host.is_device = true;
  const SimTime free = work.play().device_end();
  work.prices.enqueue = Duration(200);
  const DdpRun run = work.play();
  CHECK(run.launch(0) == time_at(1500 + 200));
  CHECK(run.launch(1) == time_at(2500 + 400));
  CHECK(run.device_end() == free + Duration(400));
}

TEST_CASE("the host is at most so many launches ahead of a stream") {
  // 3000 kernels of 190 ns, launches of 5. The first ends at 5 + 190, the k-th at 5 + 190 k.
  Program program;
  program.ranks = {std::vector<Instruction>(3000, op(Duration(190), Duration(5)))};
  CHECK(play(program, {}).ranks[0].host_end == time_at(3000 * 5));
  // The last of them may be launched when the 2000th has ended.
  CHECK(play(program, {}, 1000).ranks[0].host_end == time_at(5 + 190 * 2000 + 5));
  CHECK(play(program, {}, 1000).ranks[0].device_end == time_at(5 + 190 * 3000));
  // 1000 of them do not block, 1001 do.
  program.ranks[0].resize(1000);
  CHECK(play(program, {}, 1000).ranks[0].host_end == time_at(1000 * 5));
  program.ranks[0].push_back(op(Duration(190), Duration(5)));
  CHECK(play(program, {}, 1000).ranks[0].host_end == time_at(1000 * 5 + 5));
  program.ranks[0].front() = op(Duration(9000), Duration(5));
  CHECK(play(program, {}, 1000).ranks[0].host_end == time_at(9005 + 5));
}

TEST_CASE("every stream has its own queue") {
  Program program;
  program.ranks.resize(1);
  for (int i = 0; i < 3000; ++i) {
    program.ranks[0].push_back(op(Duration(190), Duration(5), static_cast<std::uint8_t>(i % 3)));
  }
  CHECK(play(program, {}, 1000).ranks[0].host_end == time_at(3000 * 5));
}

TEST_CASE("a DDP step keeps its host within the queue") {
  DdpCase work(std::vector<std::int64_t>(50, 1000));
  work.launch = Duration(1);
  work.compute(Duration(500), Duration(1000));
  CHECK(work.play().played.ranks[0].host_end < time_at(500));
  // Buckets of 1, 10, 10, 10, 10 and 9 gradients, and a copy-out each. The last ten launches, nine
  // copy-outs of bucket 5 and the optimizer, wait for those of bucket 4, which end together.
  work.rules.queue_depth = 10;
  const DdpRun run = work.play();
  CHECK(run.played.ranks[0].host_end == run.end(4) + Duration(10));
  CHECK(run.device_end() == run.end(5));
}

TEST_CASE("overlapped time is max(B, C) + k min(B, C) exactly") {
  const auto times = {600'000, 1'200'000, 3'000'000, 3'600'000};
  for (const double k : {0.0, 0.25, 0.5, 1.0}) {
    for (const std::int64_t backward : times) {
      for (const std::int64_t all : times) {
        CAPTURE(k);
        CAPTURE(backward);
        CAPTURE(all);
        const auto both = static_cast<double>(std::min(backward, all));
        const SimTime expected =
            time_at(std::max(backward, all) + static_cast<std::int64_t>(k * both));
        CHECK(overlapped(backward, 1, all, 1, k) == expected);
        CHECK(overlapped(backward, 10, all, 1, k) == expected);
        CHECK(overlapped(backward, 1, all, 5, k) == expected);
        CHECK(overlapped(backward, 12, all, 5, k) == expected);
        CHECK(overlapped(backward, 8, all, 4, k, 4) == expected);
      }
    }
  }
}

TEST_CASE("compute is slower only while a collective is resident") {
  // One op of 1000 at slowdown 1.5 beside a transfer of 300 that arrives at 200: done 200 by then,
  // another 200 by 500, the remaining 600 alone. Ends at 1100.
  Interference interference;
  interference.compute = 0.5;
  Program program;
  program.ranks = {{op(Duration(1000)), send(0, Duration(200))}};
  program.collectives = {transfer(300)};
  const ExecutionTrace played = play(program, interference);
  CHECK(played.collectives[0].start == time_at(200));
  CHECK(played.collectives[0].end == time_at(500));
  CHECK(played.ranks[0].device_end == time_at(1100));
  // Arriving when the op has ended it costs nothing.
  program.ranks[0][1] = send(0, Duration(1000));
  CHECK(play(program, interference).ranks[0].device_end == time_at(1000));
}

TEST_CASE("a rank whose collective waits for others is slowed from its own start") {
  // Rank 1 comes at 600; the transfer runs from 600 to 700. Rank 0 has it resident for 700: done
  // 700 / 1.4 = 500 by then, the other 500 alone.
  Interference interference;
  interference.compute = 0.4;
  Program program;
  program.ranks = {{send(0), op(Duration(1000))}, {send(0, Duration(600)), op(Duration(1000))}};
  program.collectives = {transfer(100)};
  CHECK(play(program, interference).ranks[0].device_end == time_at(1200));
  interference.while_waiting = false;
  // Resident for the 100 of the transfer only: 100 - 100 / 1.4 = 28.57 later.
  CHECK(play(program, interference).ranks[0].device_end == time_at(1029));
}

TEST_CASE("the slowdown stays within the limit of 40 % by default") {
  Interference interference;
  interference.multiprocessors = 132;
  interference.memory_share = 0.9;
  double most = 1;
  for (int blocks = 0; blocks <= 1000; blocks += 11) {
    for (int channels = 0; channels <= 140; channels += 4) {
      for (const Bound bound : {Bound::Compute, Bound::Memory, Bound::Unaffected}) {
        const double slowdown = compute_slowdown(interference, bound, blocks, channels);
        CHECK(slowdown >= 1);
        most = std::max(most, slowdown);
      }
    }
  }
  CHECK(most == 1.4);
  CHECK(beside(132, 1, interference) == time_at(1400));
}

TEST_CASE("waves: a full one doubles when one multiprocessor is taken, half a one later") {
  Interference interference;
  interference.multiprocessors = 132;
  interference.limit = 10;
  CHECK(beside(132, 0, interference) == time_at(1000));
  CHECK(beside(132, 1, interference) == time_at(2000));
  CHECK(beside(131, 1, interference) == time_at(1000));
  CHECK(beside(66, 1, interference) == time_at(1000));
  CHECK(beside(66, 66, interference) == time_at(1000));
  CHECK(beside(66, 67, interference) == time_at(2000));
  // Two waves become three.
  CHECK(beside(264, 1, interference) == time_at(1500));
}

TEST_CASE("memory-bound work slows by the bandwidth that is taken") {
  Interference interference;
  interference.memory_share = 0.2;
  CHECK(compute_slowdown(interference, Bound::Memory, 0, 16) == Approx(1.25));
  CHECK(compute_slowdown(interference, Bound::Compute, 132, 16) == 1);
  CHECK(compute_slowdown(interference, Bound::Unaffected, 0, 16) == 1);
}

TEST_CASE("without interference the step is the ideal one, to the nanosecond") {
  DdpCase work(std::vector<std::int64_t>(17, 1300), 3);
  work.limits(1000, 4000);
  work.launch = Duration(7);
  work.prices.hook = Duration(3);
  work.copy_in = work.copy_out = Duration(41);
  work.batch(1).backward[4].work += Duration(777);
  const DdpRun ideal = work.play();
  // Channels alone do nothing; rates that differ from 1 by nothing do nothing either.
  work.prices.channels = [](double) { return 16; };
  work.rules.interference.limit = 0.1;
  const DdpRun off = work.play();
  CHECK(off.played.spans == ideal.played.spans);
  // Through the interference's own events: so little that it rounds to nothing.
  work.rules.interference.compute = 1e-12;
  const DdpRun through = work.play();
  for (std::size_t rank = 0; rank < 3; ++rank) {
    CHECK(off.device_end(rank) == ideal.device_end(rank));
    CHECK(through.device_end(rank) == ideal.device_end(rank));
    CHECK(through.played.ranks[rank].phases == ideal.played.ranks[rank].phases);
  }
  // And with some, slower, by no more than it says.
  work.rules.interference.compute = 0.19;
  const DdpRun slowed = work.play();
  CHECK(slowed.device_end() > ideal.device_end());
  CHECK(to_seconds(slowed.device_end().time_since_epoch()) <=
        1.19 * to_seconds(ideal.device_end().time_since_epoch()));
}

TEST_CASE("the overlap metrics of a prediction come back from its timeline and spans") {
  const Scenario scenario = parse_scenario(kScenario, "x.toml");
  const Prediction prediction = predict(scenario,
                                        scenario.policies[0],
                                        scenario_profile(scenario),
                                        {.noise_runs = 0, .keep_timelines = true});
  REQUIRE(prediction.timelines.size() == 5);
  double busy = 0;
  double hidden = 0;
  double exposed = 0;
  double forward = 0;
  double backward = 0;
  double optimizer = 0;
  for (std::size_t step = 2; step < 5; ++step) {
    const StepTimeline& timeline = prediction.timelines[step];
    REQUIRE(!timeline.spans.empty());
    std::vector<SimTime> forward_end(2);
    std::vector<SimTime> backward_end(2);
    std::vector<SimTime> optimizer_begin(2, SimTime::max());
    std::vector<Duration> copies(2);
    for (const TraceSpan& span : timeline.spans) {
      const auto rank = static_cast<std::size_t>(span.rank);
      const double ms = to_ms(span.end - span.begin) / 2 / 3;
      switch (span.phase) {
        case Phase::Forward:
          forward_end[rank] = std::max(forward_end[rank], span.end);
          forward += ms;
          break;
        case Phase::Backward:
          backward_end[rank] = std::max(backward_end[rank], span.end);
          backward += ms;
          break;
        case Phase::CopyOut:
          copies[rank] += span.end - span.begin;
          optimizer += ms;
          break;
        default:
          optimizer_begin[rank] = std::min(optimizer_begin[rank], span.begin);
          optimizer += ms;
      }
    }
    const SimTime last_backward = *std::max_element(backward_end.begin(), backward_end.end());
    for (std::size_t b = 0; b < timeline.reduce_end.size(); ++b) {
      busy += to_ms(timeline.reduce_end[b] - timeline.reduce_start[b]) / 3;
      const SimTime until = std::min(timeline.reduce_end[b], last_backward);
      hidden += std::max(0.0, to_ms(until - timeline.reduce_start[b])) / 3;
    }
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const RankTimeline& line = timeline.ranks[rank];
      // As DDP's own logging: from the first launch to the end of the finalizing, of which up to
      // the backward's end is overlapped.
      const SimTime first_launch = line.ready_at.front();
      const Duration communication = optimizer_begin[rank] - first_launch;
      const Duration overlap = backward_end[rank] - first_launch;
      CHECK(overlap > Duration(0));
      CHECK(communication - overlap == line.exposed + copies[rank]);
      CHECK(backward_end[rank] == line.compute_end);
      CHECK(forward_end[rank] == line.forward_end);
      exposed += to_ms(communication - overlap - copies[rank]) / 2 / 3;
    }
  }
  const PredictionSummary& summary = prediction.summary;
  CHECK(summary.communication_ms == Approx(busy));
  CHECK(summary.exposed_communication_ms == Approx(exposed));
  CHECK(summary.overlap_fraction == Approx(hidden / busy));
  CHECK(summary.forward_ms == Approx(forward));
  CHECK(summary.backward_ms == Approx(backward));
  CHECK(summary.optimizer_ms == Approx(optimizer));
  CHECK(hidden > 0);
  CHECK(exposed > 0);
}
