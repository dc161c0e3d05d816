#include "sim/ddp/closed_form.h"

#include <algorithm>
#include <utility>

namespace stepsim {

namespace {

/// Applies a span to a rank's clocks: H' = H + host, C' = max(C + device, H + critical).
void apply(const Span& span, RankClock& clock) {
  clock.device = std::max(clock.device + span.device, clock.host + span.critical);
  clock.host += span.host;
}

/// Data, forward and backward of one rank, which no other rank influences.
RankTimeline until_backward_end(const RankStep& work, bool host_is_device, RankClock& clock) {
  if (host_is_device) {
    clock.host = std::max(clock.host, clock.device);
  }
  RankTimeline line;
  line.start = clock.device;
  clock.host += work.data;
  clock.device = std::max(clock.device, clock.host);
  line.data_end = clock.device;
  apply(work.forward, clock);
  line.forward_end = clock.device;
  const std::size_t buckets = work.copy_out.size();
  line.launch.resize(buckets);
  for (std::size_t b = 0; b < buckets; ++b) {
    apply(work.backward[b], clock);
    line.launch[b] = std::max(clock.host, clock.device);
  }
  apply(work.backward[buckets], clock);
  line.backward_end = clock.device;
  return line;
}

/// Waits, copies out and optimizer of one rank, given the ends of the all-reduces.
void finalize(const RankStep& work,
              bool host_is_device,
              const std::vector<SimTime>& reduce_end,
              RankClock& clock,
              RankTimeline& line) {
  for (std::size_t b = 0; b < reduce_end.size(); ++b) {
    const SimTime resumed = std::max(clock.device, reduce_end[b]);
    line.exposed += resumed - clock.device;
    clock.device = resumed;
    if (host_is_device) {
      clock.host = clock.device;
    }
    apply(work.copy_out[b], clock);
    line.copy_out += clock.device - resumed;
  }
  const SimTime copied = clock.device;
  apply(work.optimizer, clock);
  line.end = clock.device;
  line.optimizer = line.end - copied;
  if (host_is_device) {
    clock.host = clock.device;
  }
}

}  // namespace

StepTimeline closed_form_step(const StepInput& input, std::span<const RankClock> clocks) {
  check(input, clocks);
  const std::size_t buckets = input.all_reduce.size();
  StepTimeline step;
  step.clocks.assign(clocks.begin(), clocks.end());
  step.ranks.reserve(input.ranks.size());
  step.reduce_start.assign(buckets, SimTime::min());
  step.reduce_end.resize(buckets);
  for (std::size_t r = 0; r < input.ranks.size(); ++r) {
    RankTimeline& line = step.ranks.emplace_back(
        until_backward_end(input.ranks[r], input.host_is_device, step.clocks[r]));
    for (std::size_t b = 0; b < buckets; ++b) {
      step.reduce_start[b] = std::max(step.reduce_start[b], line.launch[b]);
    }
  }
  SimTime free = SimTime::min();
  for (std::size_t b = 0; b < buckets; ++b) {
    step.reduce_start[b] = std::max(step.reduce_start[b], free);
    free = step.reduce_end[b] = step.reduce_start[b] + input.all_reduce[b];
  }
  for (std::size_t r = 0; r < input.ranks.size(); ++r) {
    finalize(input.ranks[r], input.host_is_device, step.reduce_end, step.clocks[r], step.ranks[r]);
  }
  return step;
}

}  // namespace stepsim
