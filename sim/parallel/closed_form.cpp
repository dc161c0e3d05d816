#include "sim/parallel/closed_form.h"

#include <algorithm>

namespace stepsim {

namespace {

/// Moves a rank's clocks by a span: H' = H + host, C' = max(C + device, H + critical).
RankClock after(const Span& span, RankClock clock) {
  return {clock.host + span.host, std::max(clock.device + span.device, clock.host + span.critical)};
}

/// Data, forward and backward of one rank, which no other rank influences. Returns its clocks at
/// the end of backward. `last_launch`: [bucket] latest launch of the ranks so far.
RankClock until_backward_end(const RankStep& work,
                             RankClock clock,
                             RankTimeline& line,
                             std::vector<SimTime>& last_launch) {
  line.start = clock.device;
  clock.host += work.data;
  clock.device = std::max(clock.device, clock.host);
  line.data_end = clock.device;
  clock = after(work.forward, clock);
  line.forward_end = clock.device;
  const std::size_t buckets = last_launch.size();
  line.ready_at.resize(buckets);
  for (std::size_t b = 0; b < buckets; ++b) {
    clock = after(work.backward[b], clock);
    const SimTime launch = std::max(clock.host, clock.device);
    line.ready_at[b] = launch;
    const SimTime last = last_launch[b];  // By value: a reference into memory would be read twice.
    last_launch[b] = std::max(last, launch);
  }
  clock = after(work.backward[buckets], clock);
  line.backward_end = clock.device;
  line.compute_end = clock.device;
  return clock;
}

/// Waits, copies out and optimizer of one rank, given the ends of the all-reduces. Returns its
/// clocks at the end of the step.
RankClock finalize(const RankStep& work,
                   bool host_is_device,
                   const StepTimeline& step,
                   RankClock clock,
                   RankTimeline& line) {
  Duration exposed{0};
  Duration copied{0};
  Duration waiting{0};
  for (std::size_t b = 0; b < step.reduce_end.size(); ++b) {
    const SimTime reduced = step.reduce_end[b];
    // All buckets before this one are reduced: what keeps its all-reduce is a rank's arrival.
    waiting += std::max(step.reduce_start[b] - clock.device, Duration{0});
    const SimTime resumed = std::max(clock.device, reduced);
    exposed += resumed - clock.device;
    clock.device = resumed;
    clock.host = host_is_device ? resumed : clock.host;
    clock = after(work.copy_out[b], clock);
    copied += clock.device - resumed;
  }
  line.exposed = exposed;
  line.waiting = waiting;
  line.copy_out = copied;
  const SimTime before = clock.device;
  clock = after(work.optimizer, clock);
  line.end = clock.device;
  line.optimizer = line.end - before;
  return {host_is_device ? clock.device : clock.host, clock.device};
}

}  // namespace

StepTimeline closed_form_step(const StepInput& input, std::span<const RankClock> clocks) {
  check(input, clocks);
  const std::size_t ranks = input.ranks.size();
  const std::size_t buckets = input.all_reduce.size();
  StepTimeline step;
  step.clocks.assign(clocks.begin(), clocks.end());
  step.ranks.resize(ranks);
  step.reduce_start.assign(buckets, SimTime::min());
  step.reduce_end.resize(buckets);
  for (std::size_t r = 0; r < ranks; ++r) {
    RankClock clock = clocks[r];
    if (input.host_is_device) {
      clock.host = std::max(clock.host, clock.device);
    }
    step.clocks[r] = until_backward_end(input.ranks[r], clock, step.ranks[r], step.reduce_start);
  }
  SimTime free = SimTime::min();
  for (std::size_t b = 0; b < buckets; ++b) {
    step.reduce_start[b] = std::max(step.reduce_start[b], free);
    free = step.reduce_end[b] = step.reduce_start[b] + input.all_reduce[b];
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    step.clocks[r] =
        finalize(input.ranks[r], input.host_is_device, step, step.clocks[r], step.ranks[r]);
  }
  return step;
}

}  // namespace stepsim
