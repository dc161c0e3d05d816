#include <algorithm>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>

#include "sim/parallel/closed_form.h"
#include "tests/oracles/step_simulator.h"
#include "tests/sim/parallel/ddp/random_step.h"
#include "tests/sim/parallel/ddp/step_program.h"

using namespace stepsim;
using test::RandomSteps;

namespace {

constexpr std::uint64_t kScenarios = 600;

Duration total(const RankTimeline& line) {
  return line.end - line.start;
}

Duration sum_of(const std::vector<Duration>& durations) {
  return std::accumulate(durations.begin(), durations.end(), Duration::zero());
}

void scale(StepTimeline& step, std::int64_t k) {
  const auto times = [&](SimTime& t) { t = SimTime(t.time_since_epoch() * k); };
  for (RankTimeline& line : step.ranks) {
    times(line.start);
    times(line.data_end);
    times(line.forward_end);
    times(line.backward_end);
    times(line.compute_end);
    times(line.end);
    line.exposed *= k;
    line.waiting *= k;
    line.copy_out *= k;
    line.optimizer *= k;
    std::for_each(line.ready_at.begin(), line.ready_at.end(), times);
  }
  std::for_each(step.reduce_start.begin(), step.reduce_start.end(), times);
  std::for_each(step.reduce_end.begin(), step.reduce_end.end(), times);
  for (RankClock& clock : step.clocks) {
    times(clock.host);
    times(clock.device);
  }
}

}  // namespace

TEST_CASE("event simulation, engine and closed form agree over chained steps") {
  for (std::uint64_t seed = 0; seed < kScenarios; ++seed) {
    CAPTURE(seed);
    RandomSteps steps(seed);
    std::vector<RankClock> clocks = steps.clocks();
    Engine engine({}, clocks);
    for (int step = 0; step < 4; ++step) {
      CAPTURE(step);
      const StepInput input = steps.next();
      std::uint64_t events = 0;
      const StepTimeline by_events = simulate_step(input, clocks, &events);
      const StepTimeline by_formula = closed_form_step(input, clocks);
      REQUIRE(by_events == by_formula);
      REQUIRE(events >= input.ranks.size() * (4 + 2 * input.all_reduce.size()));
      REQUIRE(play_step(input, engine) == by_formula);
      clocks = by_events.clocks;
    }
  }
}

TEST_CASE("the waits that are noted are the exposed time, each until an all-reduce ends") {
  for (std::uint64_t seed = 0; seed < kScenarios; ++seed) {
    CAPTURE(seed);
    RandomSteps steps(seed);
    Engine engine({}, steps.clocks());
    const StepTimeline step = play_step(steps.next(), engine, true);
    std::vector<Duration> waited(step.ranks.size(), Duration::zero());
    for (const TraceSpan& wait : step.waits) {
      const auto rank = static_cast<std::size_t>(wait.rank);
      REQUIRE(wait.begin < wait.end);
      REQUIRE(wait.begin >= step.ranks[rank].backward_end);
      REQUIRE(std::count(step.reduce_end.begin(), step.reduce_end.end(), wait.end) > 0);
      waited[rank] += wait.end - wait.begin;
    }
    for (std::size_t r = 0; r < waited.size(); ++r) {
      REQUIRE(waited[r] == step.ranks[r].exposed);
    }
  }
}

TEST_CASE("the parts of a rank's step sum to the step") {
  for (std::uint64_t seed = 0; seed < kScenarios; ++seed) {
    CAPTURE(seed);
    RandomSteps steps(seed);
    const StepTimeline step = simulate_step(steps.next(), steps.clocks());
    for (const RankTimeline& line : step.ranks) {
      const Duration parts = (line.data_end - line.start) + (line.forward_end - line.data_end) +
                             (line.backward_end - line.forward_end) + line.exposed + line.copy_out +
                             line.optimizer;
      REQUIRE(parts == total(line));
    }
  }
}

TEST_CASE("a longer duration anywhere makes no rank end earlier") {
  for (std::uint64_t seed = 0; seed < kScenarios; ++seed) {
    CAPTURE(seed);
    RandomSteps steps(seed);
    StepInput input = steps.next();
    const std::vector<RankClock> clocks = steps.clocks();
    const StepTimeline before = closed_form_step(input, clocks);
    const std::vector<Duration*> all = test::durations(input);
    for (int change = 0; change < 10; ++change) {
      Duration& longer = *all[steps.below(all.size())];
      const Duration kept = longer;
      longer += Duration(static_cast<std::int64_t>(1 + steps.below(100)));
      const StepTimeline after = simulate_step(input, clocks);
      for (std::size_t r = 0; r < after.ranks.size(); ++r) {
        REQUIRE(after.ranks[r].end >= before.ranks[r].end);
        REQUIRE(after.clocks[r].host >= before.clocks[r].host);
      }
      longer = kept;
    }
  }
}

TEST_CASE("a step is no shorter than a rank's compute or than all all-reduces") {
  for (std::uint64_t seed = 0; seed < kScenarios; ++seed) {
    CAPTURE(seed);
    RandomSteps steps(seed);
    const StepInput input = steps.next();
    const StepTimeline step = simulate_step(input, steps.clocks());
    for (std::size_t r = 0; r < step.ranks.size(); ++r) {
      const RankStep& work = input.ranks[r];
      Duration compute = work.forward.device + work.optimizer.device;
      for (const Span& span : work.backward) {
        compute += span.device;
      }
      for (const Span& span : work.copy_out) {
        compute += span.device;
      }
      REQUIRE(total(step.ranks[r]) >= compute);
      REQUIRE(total(step.ranks[r]) >= sum_of(input.all_reduce));
    }
  }
}

TEST_CASE("all durations times k give all times times k") {
  for (std::uint64_t seed = 0; seed < kScenarios; ++seed) {
    CAPTURE(seed);
    RandomSteps steps(seed);
    StepInput input = steps.next();
    std::vector<RankClock> clocks = steps.clocks();
    const auto k = static_cast<std::int64_t>(2 + steps.below(1000));
    StepTimeline expected = simulate_step(input, clocks);
    scale(expected, k);
    for (Duration* duration : test::durations(input)) {
      *duration *= k;
    }
    for (RankClock& clock : clocks) {
      clock = {SimTime(clock.host.time_since_epoch() * k),
               SimTime(clock.device.time_since_epoch() * k)};
    }
    REQUIRE(simulate_step(input, clocks) == expected);
  }
}

TEST_CASE("permuting ranks permutes their timelines and changes nothing else") {
  for (std::uint64_t seed = 0; seed < kScenarios; ++seed) {
    CAPTURE(seed);
    RandomSteps steps(seed);
    const StepInput input = steps.next();
    const std::vector<RankClock> clocks = steps.clocks();
    const StepTimeline step = simulate_step(input, clocks);
    std::vector<std::size_t> order(input.ranks.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t i = order.size(); i-- > 1;) {
      std::swap(order[i], order[steps.below(i + 1)]);
    }
    StepInput permuted = input;
    std::vector<RankClock> permuted_clocks = clocks;
    StepTimeline expected = step;
    for (std::size_t i = 0; i < order.size(); ++i) {
      permuted.ranks[i] = input.ranks[order[i]];
      permuted_clocks[i] = clocks[order[i]];
      expected.ranks[i] = step.ranks[order[i]];
      expected.clocks[i] = step.clocks[order[i]];
    }
    REQUIRE(simulate_step(permuted, permuted_clocks) == expected);
  }
}

TEST_CASE("delaying one rank's gradient by d delays a bucket's end on all ranks by at most d") {
  for (std::uint64_t seed = 0; seed < kScenarios; ++seed) {
    CAPTURE(seed);
    RandomSteps steps(seed);
    StepInput input = steps.next();
    if (input.all_reduce.empty()) {
      continue;
    }
    const std::vector<RankClock> clocks = steps.clocks();
    const StepTimeline before = simulate_step(input, clocks);
    const std::size_t bucket = steps.below(input.all_reduce.size());
    const auto delay = Duration(static_cast<std::int64_t>(1 + steps.below(300)));
    Span& work = input.ranks[steps.below(input.ranks.size())].backward[bucket];
    work.device += delay;
    work.critical += delay;
    const StepTimeline after = simulate_step(input, clocks);
    for (std::size_t b = 0; b < input.all_reduce.size(); ++b) {
      const Duration later = after.reduce_end[b] - before.reduce_end[b];
      REQUIRE(later >= Duration::zero());
      REQUIRE(later <= (b < bucket ? Duration::zero() : delay));
    }
  }
}

TEST_CASE("a lone rank on an endless network pays compute and copies only") {
  for (std::uint64_t seed = 0; seed < kScenarios; ++seed) {
    CAPTURE(seed);
    RandomSteps steps(seed);
    StepInput input = steps.next();
    input.ranks.resize(1);
    std::fill(input.all_reduce.begin(), input.all_reduce.end(), Duration::zero());
    // Device-bound: without launch costs the step is the plain sum of its work.
    for (Span* span : {&input.ranks[0].forward, &input.ranks[0].optimizer}) {
      *span = op_span(Duration::zero(), span->device);
    }
    Duration expected = input.ranks[0].forward.device + input.ranks[0].optimizer.device;
    for (auto* spans : {&input.ranks[0].backward, &input.ranks[0].copy_out}) {
      for (Span& span : *spans) {
        span = op_span(Duration::zero(), span.device);
        expected += span.device;
      }
    }
    expected += input.ranks[0].data;
    const StepTimeline step = simulate_step(input, std::vector<RankClock>{RankClock{}});
    REQUIRE(total(step.ranks[0]) == expected);
    REQUIRE(step.ranks[0].exposed == Duration::zero());
  }
}

TEST_CASE("collectives run one at a time, in bucket order, after every rank's launch") {
  for (std::uint64_t seed = 0; seed < kScenarios; ++seed) {
    CAPTURE(seed);
    RandomSteps steps(seed);
    const StepInput input = steps.next();
    const StepTimeline step = simulate_step(input, steps.clocks());
    for (std::size_t b = 0; b < input.all_reduce.size(); ++b) {
      SimTime earliest = b == 0 ? SimTime::min() : step.reduce_end[b - 1];
      for (const RankTimeline& line : step.ranks) {
        earliest = std::max(earliest, line.ready_at[b]);
        REQUIRE((b == 0 || line.ready_at[b] >= line.ready_at[b - 1]));
        REQUIRE(line.end >= step.reduce_end[b]);
      }
      REQUIRE(step.reduce_start[b] == earliest);
      REQUIRE(step.reduce_end[b] == step.reduce_start[b] + input.all_reduce[b]);
    }
  }
}

TEST_CASE("the last bucket's all-reduce is hidden by copies at most") {
  for (std::uint64_t seed = 0; seed < kScenarios; ++seed) {
    CAPTURE(seed);
    RandomSteps steps(seed);
    StepInput input = steps.next();
    if (input.all_reduce.empty()) {
      continue;
    }
    for (RankStep& rank : input.ranks) {
      rank.backward.back() = Span{};
    }
    for (const RankTimeline& line : simulate_step(input, steps.clocks()).ranks) {
      REQUIRE(line.exposed + line.copy_out >= input.all_reduce.back());
    }
  }
}
