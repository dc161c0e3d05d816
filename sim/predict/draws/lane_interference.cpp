#include "sim/predict/draws/lane_interference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "sim/predict/draws/lane_loops.h"

namespace stepsim {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();

/// What engine_detail::scaled() makes of whole nanoseconds.
double scaled(double time, double factor) {
  // NOLINTNEXTLINE(bugprone-incorrect-roundings): as there.
  return factor == 1 ? time : static_cast<double>(static_cast<std::int64_t>(time * factor + 0.5));
}

/// engine_detail::Progress in one lane.
struct LaneProgress {
  double left = 0;
  double since = 0;
  double slowdown = 1;

  double change(double now, double new_slowdown) {
    if (now > since) {
      left = std::max(0.0, left - scaled(now - since, 1 / slowdown));
      since = now;
    }
    slowdown = new_slowdown;
    return since + scaled(left, slowdown);
  }
};

/// Whether a rank only launches and works until the last collective that it has launched is
/// awaited: that is all that follow() goes through.
bool only_works_beside(const std::vector<LockstepMove>& moves) {
  std::int32_t launched = -1;
  std::int32_t awaited = -1;
  return std::ranges::all_of(moves, [&](const LockstepMove& move) {
    switch (move.kind) {
      case Opcode::Collective:
        launched = move.index;
        return true;
      case Opcode::StreamWait:
        awaited = std::max(awaited, move.index);
        return true;
      case Opcode::HostUntil:
      case Opcode::HostSync:
      case Opcode::HostWait:
        return awaited == launched;
      case Opcode::Work:
        return move.phase != Phase::Data || awaited == launched;
      default:
        return true;
    }
  });
}

}  // namespace

bool LaneInterference::knows(const LockstepSchedule& schedule, const EngineRules& rules) {
  const Communicator& communicator = rules.communicators.front();
  const bool one = std::ranges::all_of(
      schedule.program.program.collectives,
      [](const Collective& collective) { return collective.communicator == 0; });
  return one && communicator.workers == 1 && communicator.ranks.empty() &&
         only_works_beside(schedule.moves) &&
         std::ranges::all_of(schedule.moves, [](const LockstepMove& move) {
           switch (move.kind) {
             case Opcode::Work:
             case Opcode::Collective:
               return move.stream == kComputeStream;
             case Opcode::Record:
             case Opcode::EventWait:
             case Opcode::HostEvent:
               return false;
             default:
               return true;
           }
         });
}

LaneInterference::LaneInterference(const Run& run,
                                   std::vector<Interference> lanes,
                                   const std::vector<LaneRank>& ranks)
    : run_(run),
      lanes_(std::move(lanes)),
      ranks_(ranks),
      waves_(std::ranges::any_of(
          lanes_, [](const Interference& lane) { return lane.multiprocessors > 0; })),
      regimes_(ranks.size()),
      cursors_(ranks.size() * lanes_.size()),
      slowed_(ranks.size()),
      ready_(lanes_.size()),
      end_(lanes_.size()),
      slow_(lanes_.size()) {}

void LaneInterference::begin_step(const LaneSchedule& schedule) {
  schedule_ = &schedule;
  const LockstepSchedule& step = schedule.schedule();
  channels_.clear();
  kinds_ = mapped(step.collectives, [&](const std::vector<std::int32_t>& called) {
    const Collective& collective = step.program.program.collectives[at(called.front())];
    const std::int32_t channels = waves_ ? collective.channels : 0;
    const auto known = std::ranges::find(channels_, channels);
    const auto kind = static_cast<std::size_t>(known - channels_.begin());
    if (known == channels_.end()) {
      channels_.push_back(channels);
    }
    return kind;
  });
  const std::size_t count = kinds_.size();
  for (std::size_t r = 0; r < slowed_.size(); ++r) {
    slowed_[r].resize(std::max(slowed_[r].size(), channels_.size()));
    for (SlowedWork& slowed : slowed_[r]) {
      slowed.times.resize(ranks_[r].work.times.size());
      for (std::vector<LaneTimes>& times : slowed.times) {
        std::ranges::for_each(times, [](LaneTimes& time) { time.clear(); });
      }
      slowed.stretches.resize(std::max(slowed.stretches.size(), step.stretches.size()));
      std::ranges::for_each(slowed.stretches, [](LaneSpan& span) { span.host.clear(); });
    }
  }
  starts_.resize(std::max(starts_.size(), count));
  ends_.resize(std::max(ends_.size(), count));
  launched_ = 0;
  timed_ = 0;
  for (Regimes& regimes : regimes_) {
    regimes.resident.assign(lanes_.size(), 0.0);
    regimes.until.assign(lanes_.size(), kForever);
    regimes.number.assign(lanes_.size(), 0);
    regimes.residents = 0;
    regimes.arrivals.resize(std::max(regimes.arrivals.size(), count));
  }
  std::ranges::fill(cursors_, Cursor{});
}

bool LaneInterference::is_alone(std::size_t rank, const LaneSpan& span) {
  Regimes& regimes = regimes_[rank];
  const LaneRank& state = ranks_[rank];
  const LaneTimes& stream = state.streams[kComputeStream];
  bool alone = true;
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    if (stream[l] >= regimes.until[l]) {
      Regime regime = regimes.of(l);
      settle(rank, l, stream[l], regime);
      regimes.set(l, regime);
    }
    const double end = std::max(stream[l] + span.device[l], state.host[l] + span.critical[l]);
    alone = alone && regimes.resident[l] == 0 && end <= regimes.until[l];
  }
  return alone;
}

void LaneInterference::work(
    std::size_t move, std::size_t rank, LaneQueue* queue, LaneTimes& host, LaneTimes& stream) {
  const LockstepMove& what = schedule_->schedule().moves[move];
  if (what.index >= 0) {
    work_on_stretch(at(what.index), rank, queue, host, stream);
    return;
  }
  if (queue != nullptr) {
    queue->wait(host);
  }
  const LaneSchedule::Times times = schedule_->times(move);
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    ready_[l] = host[l] + (times.latency[l] - times.work[l]);
  }
  if (what.bound == Bound::Unaffected) {
    for (std::size_t l = 0; l < lanes_.size(); ++l) {
      stream[l] = std::max(stream[l], ready_[l]) + times.work[l];
    }
  } else {
    const LaneKernel kernel{what.bound, what.blocks};
    work_on(rank,
            kernel,
            ready_.data(),
            times.work,
            slowed_by(regimes_[rank], kernel, times.work),
            stream);
  }
  add(times.host, lanes_.size(), host.data());
  if (queue != nullptr) {
    queue->push(stream);
  }
}

void LaneInterference::work_on_stretch(
    std::size_t number, std::size_t rank, LaneQueue* queue, LaneTimes& host, LaneTimes& stream) {
  if (queue == nullptr && work_beside(number, rank, host, stream)) {
    return;
  }
  const LaneWork& work = ranks_[rank].work;
  const std::int32_t micro_batch = schedule_->schedule().stretches[number].micro_batch;
  const std::vector<std::int32_t>& kernels = schedule_->kernels(number, rank);
  for (std::size_t k = 0; k < kernels.size(); ++k) {
    if (queue != nullptr) {
      queue->wait(host);
    }
    const double* time = work.time_of(*schedule_, rank, number, k);
    add(work.launch_of(number, k).data(), lanes_.size(), host.data());
    work_on(rank,
            kernel_of(rank, micro_batch, kernels[k]),
            host.data(),
            time,
            slowed_kernel(rank, number, k, time),
            stream);
    if (queue != nullptr) {
      queue->push(stream);
    }
  }
}

bool LaneInterference::work_beside(std::size_t number,
                                   std::size_t rank,
                                   LaneTimes& host,
                                   LaneTimes& stream) {
  const Regimes& regimes = regimes_[rank];
  if (ranks_[rank].work.has_own(number) || regimes.residents < lanes_.size()) {
    return false;
  }
  const std::optional<std::size_t> kind = common_kind(regimes);
  const LaneTimes& alone = ranks_[rank].work.stretch(static_cast<std::int32_t>(number)).device;
  bool stays = kind.has_value();
  for (std::size_t l = 0; stays && l < lanes_.size(); ++l) {
    stays = stream[l] + alone[l] <= regimes.until[l];
  }
  if (!stays) {
    return false;
  }
  const LaneSpan& span = slowed_stretch(rank, *kind, number);
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    end_[l] = std::max(stream[l] + span.device[l], host[l] + span.critical[l]);
    stays = stays && end_[l] <= regimes.until[l];
  }
  if (stays) {
    stream.swap(end_);
    add(span.host.data(), lanes_.size(), host.data());
  }
  return stays;
}

LaneInterference::LaneKernel LaneInterference::kernel_of(std::size_t rank,
                                                         std::int32_t micro_batch,
                                                         std::int32_t work) const {
  const std::size_t batch = ranks_[rank].work.first_batch + at(micro_batch);
  return {run_.pricer().bound_of(work),
          waves_ ? run_.pricer().blocks_of(run_.priced_batch(batch), work) : 0};
}

void LaneInterference::work_on(std::size_t rank,
                               const LaneKernel& kernel,
                               const double* ready,
                               const double* time,
                               const double* slowed,
                               LaneTimes& stream) {
  Regimes& regimes = regimes_[rank];
  const bool known = slowed_work(ready,
                                 time,
                                 slowed,
                                 regimes.resident.data(),
                                 regimes.until.data(),
                                 stream.data(),
                                 lanes_.size(),
                                 end_.data());
  for (std::size_t l = 0; !known && l < lanes_.size(); ++l) {
    const double start = std::max(stream[l], ready[l]);
    if (start < regimes.until[l] && end_[l] <= regimes.until[l]) {
      continue;
    }
    Regime regime = regimes.of(l);
    end_[l] = end_of(rank, l, kernel, start, time[l], regime);
    regimes.set(l, regime);
  }
  stream.swap(end_);
}

std::optional<std::size_t> LaneInterference::common_kind(const Regimes& regimes) const {
  if (channels_.size() <= 1) {
    return 0;
  }
  std::optional<std::size_t> common;
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    if (regimes.resident[l] == 0) {
      continue;
    }
    const std::size_t kind = kinds_[regimes.number[l]];
    if (common.value_or(kind) != kind) {
      return std::nullopt;
    }
    common = kind;
  }
  return common.value_or(0);
}

const LaneTimes& LaneInterference::slowed_time(std::size_t rank,
                                               std::size_t kind,
                                               std::int32_t micro_batch,
                                               std::int32_t work) {
  std::vector<LaneTimes>& known = slowed_[rank][kind].times[at(micro_batch)];
  if (at(work) >= known.size()) {
    known.resize(at(work) + 1);
  }
  LaneTimes& times = known[at(work)];
  if (times.empty()) {
    times.resize(lanes_.size());
    slowed_times(ranks_[rank].work.times[at(micro_batch)][at(work)].data(),
                 slowdowns(kernel_of(rank, micro_batch, work), kind).data(),
                 lanes_.size(),
                 times.data());
  }
  return times;
}

const LaneSpan& LaneInterference::slowed_stretch(std::size_t rank,
                                                 std::size_t kind,
                                                 std::size_t number) {
  LaneSpan& span = slowed_[rank][kind].stretches[ranks_[rank].work.of[number]];
  if (!span.host.empty()) {
    return span;
  }
  const LockstepStretch& stretch = schedule_->schedule().stretches[number];
  span.reset(lanes_.size());
  for (const RepeatedWork& part : stretch.work_of(static_cast<int>(rank))) {
    part_.reset(lanes_.size());
    LaneSpan& once = part.times == 1 ? span : part_;
    for (const std::int32_t work : part.work) {
      once.add(ranks_[rank].work.launch->data(),
               slowed_time(rank, kind, stretch.micro_batch, work).data());
    }
    if (part.times > 1) {
      span.add(part_, part.times);
    }
  }
  return span;
}

const double* LaneInterference::slowed_by(const Regimes& regimes,
                                          const LaneKernel& kernel,
                                          const double* time) {
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    const double factor =
        regimes.resident[l] == 0 ? 1 : slowdowns(kernel, kinds_[regimes.number[l]])[l];
    slow_[l] = scaled(time[l], factor);
  }
  return slow_.data();
}

const double* LaneInterference::slowed_kernel(std::size_t rank,
                                              std::size_t stretch,
                                              std::size_t kernel,
                                              const double* time) {
  const Regimes& regimes = regimes_[rank];
  if (regimes.residents == 0) {
    return time;
  }
  const std::int32_t micro_batch = schedule_->schedule().stretches[stretch].micro_batch;
  const std::int32_t work = schedule_->kernels(stretch, rank)[kernel];
  const std::optional<std::size_t> kind = common_kind(regimes);
  if (kind && !ranks_[rank].work.has_own(stretch)) {
    return slowed_time(rank, *kind, micro_batch, work).data();
  }
  const LaneKernel of_work = kernel_of(rank, micro_batch, work);
  if (!kind) {
    return slowed_by(regimes, of_work, time);
  }
  slowed_times(time, slowdowns(of_work, *kind).data(), lanes_.size(), slow_.data());
  return slow_.data();
}

const LaneTimes& LaneInterference::slowdowns(const LaneKernel& kernel, std::size_t kind) {
  const std::int32_t channels = channels_.empty() ? 0 : channels_[kind];
  const bool by_waves = waves_ && kernel.bound == Bound::Compute;
  LaneTimes& known = by_waves
                         ? by_waves_[(std::uint64_t{static_cast<std::uint32_t>(channels)} << 32U) |
                                     std::uint64_t{static_cast<std::uint32_t>(kernel.blocks)}]
                         : by_bound_[static_cast<std::size_t>(kernel.bound)];
  if (known.empty()) {
    known = mapped(lanes_, [&](const Interference& lane) {
      return compute_slowdown(lane, kernel.bound, kernel.blocks, channels);
    });
  }
  return known;
}

double LaneInterference::slowdown(std::size_t lane,
                                  const LaneKernel& kernel,
                                  const Regime& regime) {
  return regime.is_resident ? slowdowns(kernel, kinds_[regime.number])[lane] : 1;
}

double LaneInterference::end_of(std::size_t rank,
                                std::size_t lane,
                                const LaneKernel& kernel,
                                double start,
                                double time,
                                Regime& regime) {
  if (time == 0) {
    return start;
  }
  settle(rank, lane, start, regime);
  LaneProgress progress{time, start, slowdown(lane, kernel, regime)};
  double end = start + scaled(time, progress.slowdown);
  while (end > regime.until) {
    const double now = regime.until;
    change(rank, lane, regime);
    const double rate = slowdown(lane, kernel, regime);
    if (rate != progress.slowdown) {
      end = progress.change(now, rate);
    }
  }
  return end;
}

double LaneInterference::until(std::size_t rank, std::size_t lane, const Regime& regime) const {
  const std::size_t number = regime.number;
  if (number >= (regime.is_resident ? timed_ : launched_)) {
    return kForever;  // It has no end yet, or the rank has not launched it.
  }
  if (regime.is_resident) {
    return ends_[number][lane];
  }
  if (!lanes_[lane].while_waiting) {
    return starts_[number][lane];
  }
  const double arrival = regimes_[rank].arrivals[number][lane];
  return number == 0 ? arrival : std::max(arrival, ends_[number - 1][lane]);
}

void LaneInterference::change(std::size_t rank, std::size_t lane, Regime& regime) const {
  if (regime.is_resident) {
    ++regime.number;
  }
  regime.is_resident = !regime.is_resident;
  regime.until = until(rank, lane, regime);
}

void LaneInterference::settle(std::size_t rank,
                              std::size_t lane,
                              double time,
                              Regime& regime) const {
  while (time >= regime.until) {
    change(rank, lane, regime);
  }
}

void LaneInterference::launch(std::size_t rank, const LaneTimes& arrival) {
  Regimes& regimes = regimes_[rank];
  regimes.arrivals[launched_] = arrival;
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    if (regimes.number[l] == launched_ && lanes_[l].while_waiting) {
      regimes.until[l] =
          launched_ == 0 ? arrival[l] : std::max(arrival[l], ends_[launched_ - 1][l]);
    }
  }
}

void LaneInterference::time(std::size_t move,
                            const LaneTimes& start,
                            const LaneTimes& transfer,
                            LaneTimes& end) {
  const std::size_t number = launched_++;
  starts_[number] = start;
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    end[l] = start[l] + transfer[l];
  }
  end_beside_compute(move, start, transfer, end);
  ends_[timed_++] = end;
  for (Regimes& regimes : regimes_) {
    for (std::size_t l = 0; l < lanes_.size(); ++l) {
      if (regimes.number[l] == number && !lanes_[l].while_waiting) {
        regimes.until[l] = start[l];
      }
    }
  }
}

void LaneInterference::end_beside_compute(std::size_t move,
                                          const LaneTimes& start,
                                          const LaneTimes& transfer,
                                          LaneTimes& end) {
  struct Transfer {
    std::size_t lane = 0;
    LaneProgress progress;
    Reach reach;
    double before = 0;  // What was reached in the round before.
  };
  std::vector<Transfer> transfers;
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    if (lanes_[l].transfer <= 0) {
      continue;
    }
    Transfer one{l, {transfer[l], start[l]}, {0, start[l]}, start[l]};
    one.reach.end = one.progress.change(start[l], 1 + lanes_[l].transfer);
    transfers.push_back(one);
  }
  // True: it ends as far as is known. Else it goes on where the next kernel begins.
  const auto ends = [&](Transfer& one) {
    Reach& reach = one.reach;
    if (reach.reached < reach.end && reach.reached == one.before) {
      reach.end = one.progress.change(reach.reached, 1);
      if (reach.begins < reach.end) {
        reach.end = one.progress.change(reach.begins, 1 + lanes_[one.lane].transfer);
        reach.reached = reach.begins;
      } else {
        reach.reached = reach.end;
      }
    }
    one.before = reach.reached;
    reach.begins = kForever;
    end[one.lane] = reach.end;
    return reach.reached >= reach.end;
  };
  while (!transfers.empty()) {
    std::size_t open = transfers.size();
    for (std::size_t r = 0; r < ranks_.size() && open > 0; ++r) {
      for (Transfer& one : transfers) {
        if (one.reach.reached < one.reach.end) {
          follow(cursor(move, r, one.lane), r, one.lane, one.reach);
          open -= one.reach.reached < one.reach.end ? 0 : 1;
        }
      }
    }
    std::erase_if(transfers, ends);
  }
}

LaneInterference::Cursor& LaneInterference::cursor(std::size_t move,
                                                   std::size_t rank,
                                                   std::size_t lane) {
  Cursor& cursor = cursors_[rank * lanes_.size() + lane];
  if (cursor.move < move) {
    const Regimes& regimes = regimes_[rank];
    cursor.move = move;
    cursor.kernel = 0;
    cursor.host = ranks_[rank].host[lane];
    cursor.free = ranks_[rank].streams[kComputeStream][lane];
    cursor.regime = regimes.of(lane);
  }
  if (cursor.regime.until == kForever) {
    cursor.regime.until = until(rank, lane, cursor.regime);
  }
  settle(rank, lane, cursor.free, cursor.regime);
  return cursor;
}

void LaneInterference::follow(Cursor& cursor, std::size_t rank, std::size_t lane, Reach& reach) {
  const std::vector<LockstepMove>& moves = schedule_->schedule().moves;
  for (; cursor.move < moves.size(); ++cursor.move, cursor.kernel = 0) {
    const LockstepMove& move = moves[cursor.move];
    const bool goes_on = move.kind != Opcode::Work ? go_on(cursor, lane)
                         : move.index < 0          ? follow_kernel(cursor, rank, lane, reach)
                                                   : follow_stretch(cursor, rank, lane, reach);
    if (!goes_on) {
      return;
    }
  }
}

bool LaneInterference::go_on(Cursor& cursor, std::size_t lane) const {
  const LockstepMove& move = schedule_->schedule().moves[cursor.move];
  const LaneSchedule::Times times = schedule_->times(cursor.move);
  if (move.kind == Opcode::StreamWait) {
    if (at(move.index) >= timed_) {
      return false;
    }
    cursor.free = std::max(cursor.free, ends_[at(move.index)][lane] + times.latency[lane]);
  }
  cursor.host += times.host[lane];
  return true;
}

bool LaneInterference::follow_kernel(Cursor& cursor,
                                     std::size_t rank,
                                     std::size_t lane,
                                     Reach& reach) {
  const LockstepMove& move = schedule_->schedule().moves[cursor.move];
  const LaneSchedule::Times times = schedule_->times(cursor.move);
  const double time = times.work[lane];
  const double start = std::max(cursor.free, cursor.host + (times.latency[lane] - time));
  double ends = start + time;
  if (move.bound != Bound::Unaffected && time > 0) {
    if (!reach.holds(start)) {
      return false;
    }
    const LaneKernel kernel{move.bound, move.blocks};
    Regime regime = cursor.regime;
    ends = end_of(rank, lane, kernel, start, time, regime);
    if (!reach.goes_on(ends)) {
      return false;
    }
    cursor.regime = regime;
  }
  cursor.host += times.host[lane];
  cursor.free = ends;
  return true;
}

bool LaneInterference::follow_stretch(Cursor& cursor,
                                      std::size_t rank,
                                      std::size_t lane,
                                      Reach& reach) {
  const std::size_t stretch = at(schedule_->schedule().moves[cursor.move].index);
  const std::vector<std::int32_t>& kernels = schedule_->kernels(stretch, rank);
  const std::int32_t micro_batch = schedule_->schedule().stretches[stretch].micro_batch;
  const LaneWork& of_rank = ranks_[rank].work;
  const Regime& regime = cursor.regime;
  const bool stays = !of_rank.has_own(stretch) && regime.is_resident && regime.until == kForever;
  const std::size_t kind = stays ? kinds_[regime.number] : 0;
  if (stays && cursor.kernel == 0 && cursor.free <= reach.reached) {
    // A device that never pauses alone does not when it is slowed either.
    const LaneSpan& alone = of_rank.stretch(static_cast<std::int32_t>(stretch));
    const bool never_pauses =
        cursor.free + alone.device[lane] >= cursor.host + alone.critical[lane];
    if (never_pauses && cursor.free + alone.device[lane] >= reach.end) {
      reach.reached = reach.end;
      return false;
    }
    const LaneSpan& span = slowed_stretch(rank, kind, stretch);
    const double ends = cursor.free + span.device[lane];
    if (never_pauses || ends >= cursor.host + span.critical[lane]) {
      if (!reach.goes_on(ends)) {
        return false;
      }
      cursor.host += span.host[lane];
      cursor.free = ends;
      return true;
    }
  }
  for (; cursor.kernel < kernels.size(); ++cursor.kernel) {
    const std::int32_t work = kernels[cursor.kernel];
    const double time = of_rank.time_of(*schedule_, rank, stretch, cursor.kernel)[lane];
    const double host = cursor.host + of_rank.launch_of(stretch, cursor.kernel)[lane];
    const double start = std::max(cursor.free, host);
    double ends = start;
    if (time > 0) {
      if (!reach.holds(start)) {
        return false;
      }
      Regime then = regime;
      ends = stays ? start + slowed_time(rank, kind, micro_batch, work)[lane]
                   : end_of(rank, lane, kernel_of(rank, micro_batch, work), start, time, then);
      if (!reach.goes_on(ends)) {
        return false;  // The rank will know what slows the rest of this kernel.
      }
      cursor.regime = then;
    }
    cursor.host = host;
    cursor.free = ends;
  }
  return true;
}

}  // namespace stepsim
