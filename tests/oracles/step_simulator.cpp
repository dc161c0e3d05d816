#include "tests/oracles/step_simulator.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "sim/engine/event_queue.h"

namespace stepsim {

namespace {

enum class Kind : std::int32_t {
  DataEnd,       ///< The batch is there and the device is free.
  ForwardEnd,    ///< The device ends the forward.
  BackwardEnd,   ///< The device ends backward span `index`.
  Arrival,       ///< A launch of bucket `index` for which the host was late.
  ReduceEnd,     ///< The all-reduce of bucket `index` ends on all ranks.
  CopyOutEnd,    ///< The device ends the copy-out of bucket `index`.
  OptimizerEnd,  ///< The device ends the step.
};

SimTime first_time(std::span<const RankClock> clocks) {
  SimTime first = clocks.front().device;
  for (const RankClock& clock : clocks) {
    first = std::min(first, clock.device);
  }
  return first;
}

/// One step under way. A rank's device clock is the time of its pending event; what is kept of the
/// past is the host's clock and when the current wait or span began.
class StepRun {
 public:
  StepRun(const StepInput& input, std::span<const RankClock> clocks)
      : input_(input),
        buckets_(static_cast<std::int32_t>(input.all_reduce.size())),
        events_(first_time(clocks)),
        lanes_(input.ranks.size()),
        arrived_(input.all_reduce.size(), 0) {
    step_.ranks.resize(input.ranks.size());
    step_.reduce_start.resize(input.all_reduce.size());
    step_.reduce_end.resize(input.all_reduce.size());
    step_.clocks.resize(input.ranks.size());
    waiting_.reserve(input.ranks.size());
    for (std::size_t r = 0; r < clocks.size(); ++r) {
      start(static_cast<std::int32_t>(r), clocks[r]);
    }
  }

  void run() {
    while (!events_.empty()) {
      handle(events_.pop());
    }
  }

  StepTimeline take() { return std::move(step_); }
  [[nodiscard]] std::uint64_t events_handled() const { return events_.events_handled(); }

 private:
  /// A rank's host and where its device is since when.
  struct Lane {
    SimTime host;
    SimTime since;  ///< Begin of the current wait, copy-out or optimizer.
  };

  [[nodiscard]] const RankStep& work(std::int32_t rank) const { return input_.ranks[at(rank)]; }
  RankTimeline& line(std::int32_t rank) { return step_.ranks[at(rank)]; }
  Lane& lane(std::int32_t rank) { return lanes_[at(rank)]; }
  static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

  void start(std::int32_t rank, const RankClock& clock) {
    const SimTime host = input_.host_is_device ? std::max(clock.host, clock.device) : clock.host;
    lane(rank).host = host + work(rank).data;
    line(rank).start = clock.device;
    line(rank).ready_at.resize(at(buckets_));
    push(std::max(clock.device, lane(rank).host), Kind::DataEnd, rank, 0);
  }

  void handle(const Event& event) {
    const std::int32_t rank = event.rank;
    switch (static_cast<Kind>(event.kind)) {
      case Kind::DataEnd:
        line(rank).data_end = event.time;
        compute(rank, work(rank).forward, Kind::ForwardEnd, 0);
        break;
      case Kind::ForwardEnd:
        line(rank).forward_end = event.time;
        compute(rank, work(rank).backward.front(), Kind::BackwardEnd, 0);
        break;
      case Kind::BackwardEnd:
        backward_ended(rank, event.index);
        break;
      case Kind::Arrival:
        arrive(rank, event.index);
        break;
      case Kind::ReduceEnd:
        reduce_ended(event.index);
        break;
      case Kind::CopyOutEnd:
        line(rank).copy_out += event.time - lane(rank).since;
        wait_for(rank, event.index + 1);
        break;
      case Kind::OptimizerEnd:
        line(rank).optimizer = event.time - lane(rank).since;
        line(rank).end = event.time;
        step_.clocks[at(rank)] = {input_.host_is_device ? event.time : lane(rank).host, event.time};
        break;
    }
  }

  void push(SimTime time, Kind kind, std::int32_t rank, std::int32_t index) {
    events_.push(time, static_cast<std::int32_t>(kind), rank, index);
  }

  /// The device is idle now and gets this work. The host launches it from its own clock on.
  void compute(std::int32_t rank, const Span& span, Kind end_kind, std::int32_t index) {
    SimTime& host = lane(rank).host;
    const SimTime end = std::max(events_.now() + span.device, host + span.critical);
    host += span.host;
    push(end, end_kind, rank, index);
  }

  void backward_ended(std::int32_t rank, std::int32_t index) {
    if (index == buckets_) {
      line(rank).backward_end = events_.now();
      line(rank).compute_end = events_.now();
      wait_for(rank, 0);
      return;
    }
    if (lane(rank).host > events_.now()) {
      push(lane(rank).host, Kind::Arrival, rank, index);
    } else {
      arrive(rank, index);
    }
    compute(rank, work(rank).backward[at(index + 1)], Kind::BackwardEnd, index + 1);
  }

  void arrive(std::int32_t rank, std::int32_t bucket) {
    line(rank).ready_at[at(bucket)] = events_.now();
    ++arrived_[at(bucket)];
    start_next_reduce();
  }

  /// The communicator takes buckets strictly in order, each when all ranks are there.
  void start_next_reduce() {
    if (communicator_busy_ || reduced_ == buckets_ ||
        arrived_[at(reduced_)] != input_.ranks.size()) {
      return;
    }
    communicator_busy_ = true;
    step_.reduce_start[at(reduced_)] = events_.now();
    push(events_.now() + input_.all_reduce[at(reduced_)], Kind::ReduceEnd, 0, reduced_);
  }

  void reduce_ended(std::int32_t bucket) {
    step_.reduce_end[at(bucket)] = events_.now();
    communicator_busy_ = false;
    ++reduced_;
    start_next_reduce();
    // Buckets end in order, so whoever waits, waits for this one.
    for (const std::int32_t rank : waiting_) {
      copy_out(rank, bucket);
    }
    waiting_.clear();
  }

  /// The device has nothing to do before the all-reduce of `bucket` has ended.
  void wait_for(std::int32_t rank, std::int32_t bucket) {
    lane(rank).since = events_.now();
    if (bucket == buckets_) {
      compute(rank, work(rank).optimizer, Kind::OptimizerEnd, 0);
    } else if (bucket < reduced_) {
      copy_out(rank, bucket);
    } else {
      waiting_.push_back(rank);
    }
  }

  void copy_out(std::int32_t rank, std::int32_t bucket) {
    line(rank).exposed += events_.now() - lane(rank).since;
    line(rank).waiting += std::max(step_.reduce_start[at(bucket)] - lane(rank).since, Duration{0});
    lane(rank).since = events_.now();
    if (input_.host_is_device) {
      lane(rank).host = events_.now();
    }
    compute(rank, work(rank).copy_out[at(bucket)], Kind::CopyOutEnd, bucket);
  }

  const StepInput& input_;
  std::int32_t buckets_;
  EventQueue events_;
  std::vector<Lane> lanes_;            ///< [rank]
  std::vector<std::size_t> arrived_;   ///< [bucket] ranks that have launched it.
  std::vector<std::int32_t> waiting_;  ///< Ranks that wait for bucket `reduced_`.
  std::int32_t reduced_ = 0;           ///< Buckets whose all-reduce has ended.
  bool communicator_busy_ = false;
  StepTimeline step_;
};

}  // namespace

StepTimeline simulate_step(const StepInput& input,
                           std::span<const RankClock> clocks,
                           std::uint64_t* events) {
  check(input, clocks);
  StepRun run(input, clocks);
  run.run();
  if (events != nullptr) {
    *events = run.events_handled();
  }
  return run.take();
}

}  // namespace stepsim
