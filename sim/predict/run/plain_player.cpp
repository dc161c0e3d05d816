#include "sim/predict/run/plain_player.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/target_clones.h"
#include "sim/engine/time_limit.h"

namespace stepsim {
namespace {

RankClock after(const Span& span, RankClock clock) {
  return {clock.host + span.host, std::max(clock.device + span.device, clock.host + span.critical)};
}

/// Moves the latest launches behind those of one rank, whose clocks stand there.
STEPSIM_TARGET_CLONES void add_launches(const std::int64_t* device,
                                        const std::int64_t* host,
                                        std::size_t buckets,
                                        std::int64_t device_clock,
                                        std::int64_t host_clock,
                                        std::int64_t* latest) {
  for (std::size_t b = 0; b < buckets; ++b) {
    const std::int64_t by_device = device_clock + device[b];
    const std::int64_t by_host = host_clock + host[b];
    const std::int64_t launch = by_device > by_host ? by_device : by_host;
    latest[b] = launch > latest[b] ? launch : latest[b];
  }
}

}  // namespace

bool PlainPlayer::plays(const Run& run) {
  if (!run.reduced().plain() || !run.loads().by_rank || !run.loads().shape_stalls.empty() ||
      run.loads().cores > 0) {
    return false;
  }
  constexpr std::size_t kFewRows = 1024;
  const std::vector<std::uint32_t> classes = classes_of_ranks(run.loads());
  const std::size_t rows = (1 + *std::ranges::max_element(classes)) * run.priced().prices().size();
  return rows <= kFewRows || 4 * rows <= run.batches();
}

PlainPlayer::PlainPlayer(const Run& run)
    : run_(run),
      prices_(run.priced().prices().size()),
      host_is_device_(run.reduced().host().is_device),
      class_of_rank_(classes_of_ranks(run.loads())),
      classes_(1 + *std::ranges::max_element(class_of_rank_)) {
  first_ = steps_of(run.reduced().plain_steps().front());
  others_ = steps_of(run.reduced().plain_steps().back());
  timeline_.ranks.resize(class_of_rank_.size());
  timeline_.clocks.resize(class_of_rank_.size());
}

PlainPlayer::Steps PlainPlayer::steps_of(const PlainStep& step) const {
  Steps steps;
  steps.step = &step;
  const double free = run_.differs_by(Change::FreeCommunication) ? 0.0 : 1.0;
  double total = 0;
  for (const double seconds : step.all_reduce) {
    total += free * seconds;
    steps.all_reduce.push_back(bounded_duration(free * seconds));
  }
  (void)bounded_duration(total);
  const std::size_t rows = classes_ * prices_;
  steps.rows.resize(rows);
  steps.device.resize(rows * step.all_reduce.size());
  steps.host.resize(rows * step.all_reduce.size());
  steps.tails.resize(classes_);
  return steps;
}

void PlainPlayer::fill(Steps& steps,
                       std::size_t row,
                       std::size_t rank_class,
                       std::size_t batch) const {
  const RankFactors factors{run_.loads().rank_factor[batch % class_of_rank_.size()],
                            run_.loads().batch_factor[batch]};
  const RankStep work =
      run_.pricer().fold(run_.priced_batch(batch), steps.step->schedule, {}, factors);
  const Duration data = run_.differs_by(Change::NoData) ? Duration::zero() : work.data;
  const std::size_t buckets = steps.all_reduce.size();
  Row& known = steps.rows[row];
  known.known = true;
  known.data = {data, Duration::zero(), data};
  known.forward = then(known.data, work.forward);
  known.backward = known.forward;
  for (std::size_t b = 0; b < buckets; ++b) {
    known.backward = then(known.backward, work.backward[b]);
    steps.device[row * buckets + b] = known.backward.device.count();
    steps.host[row * buckets + b] = std::max(known.backward.critical, known.backward.host).count();
  }
  known.backward = then(known.backward, work.backward[buckets]);
  Tail& tail = steps.tails[rank_class];
  if (tail.copies.size() == buckets && !tail.copies_before.empty()) {
    return;
  }
  tail.copies = work.copy_out;
  tail.optimizer = work.optimizer;
  Span before;
  for (const Span& copy : tail.copies) {
    tail.copies_before.push_back(before);
    before = tail.copies_before.size() == 1 ? copy : then(before, copy);
  }
  tail.copies_before.push_back(before);
}

const StepTimeline& PlainPlayer::next() {
  Steps& steps = step_ == 0 ? first_ : others_;
  const std::size_t buckets = steps.all_reduce.size();
  const std::size_t ranks = class_of_rank_.size();
  const std::uint32_t* batches = &run_.planned().batches[at(step_) * ranks];
  launched_.assign(buckets, std::numeric_limits<std::int64_t>::min());
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::size_t row =
        class_of_rank_[r] * prices_ + run_.planned().different[batches[r]].price;
    if (!steps.rows[row].known) {
      fill(steps, row, class_of_rank_[r], at(step_) * ranks + r);
    }
    const Row& work = steps.rows[row];
    RankClock& clock = timeline_.clocks[r];
    if (host_is_device_) {
      clock.host = std::max(clock.host, clock.device);
    }
    RankTimeline& line = timeline_.ranks[r];
    line.start = clock.device;
    line.data_end = after(work.data, clock).device;
    line.forward_end = after(work.forward, clock).device;
    add_launches(&steps.device[row * buckets],
                 &steps.host[row * buckets],
                 buckets,
                 clock.device.time_since_epoch().count(),
                 clock.host.time_since_epoch().count(),
                 launched_.data());
    clock = after(work.backward, clock);
    line.backward_end = clock.device;
    line.compute_end = clock.device;
  }
  reduce(steps);
  for (std::size_t r = 0; r < ranks; ++r) {
    finish(steps.tails[class_of_rank_[r]], r);
  }
  if (step_ < 2) {
    timeline_.collectives = steps.step->schedule.collectives;
  }
  ++step_;
  return timeline_;
}

void PlainPlayer::reduce(const Steps& steps) {
  const std::size_t buckets = steps.all_reduce.size();
  timeline_.reduce_start.resize(buckets);
  timeline_.reduce_end.resize(buckets);
  SimTime free = SimTime::min();
  for (std::size_t b = 0; b < buckets; ++b) {
    timeline_.reduce_start[b] = std::max(SimTime(Duration(launched_[b])), free);
    free = timeline_.reduce_end[b] = timeline_.reduce_start[b] + steps.all_reduce[b];
  }
}

/// Waits, copies out and optimizer of one rank. Buckets that are reduced before its backward ends
/// hold it up nowhere.
void PlainPlayer::finish(const Tail& tail, std::size_t rank) {
  RankTimeline& line = timeline_.ranks[rank];
  RankClock clock = timeline_.clocks[rank];
  const std::vector<SimTime>& ends = timeline_.reduce_end;
  const std::size_t buckets = ends.size();
  std::size_t b = 0;
  while (b < buckets && ends[b] <= clock.device) {
    ++b;
  }
  line.exposed = Duration::zero();
  line.waiting = Duration::zero();
  line.copy_out = Duration::zero();
  if (b > 0) {
    const SimTime before = clock.device;
    clock.host = host_is_device_ ? clock.device : clock.host;
    clock = after(tail.copies_before[b], clock);
    line.copy_out = clock.device - before;
  }
  for (; b < buckets; ++b) {
    line.waiting += std::max(timeline_.reduce_start[b] - clock.device, Duration::zero());
    const SimTime resumed = std::max(clock.device, ends[b]);
    line.exposed += resumed - clock.device;
    clock.device = resumed;
    clock.host = host_is_device_ ? resumed : clock.host;
    clock = after(tail.copies[b], clock);
    line.copy_out += clock.device - resumed;
  }
  const SimTime before = clock.device;
  clock = after(tail.optimizer, clock);
  line.optimizer = clock.device - before;
  line.end = clock.device;
  clock.host = host_is_device_ ? clock.device : clock.host;
  (void)bounded(std::max(clock.host, clock.device));
  timeline_.clocks[rank] = clock;
}

}  // namespace stepsim
