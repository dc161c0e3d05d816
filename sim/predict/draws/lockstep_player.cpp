#include "sim/predict/draws/lockstep_player.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "costmodel/compute/shared_cores.h"
#include "sim/predict/draws/lane_loops.h"

namespace stepsim {
namespace {

constexpr double kMsPerNs = 1e-6;
/// Before all clocks, and so far that nothing that is added makes it later than one of them.
constexpr double kNever = -0x1p62;

/// Whether two runs' costs give the same times to all that is not a rank's own work.
bool same_times(const DrawnCosts& a, const DrawnCosts& b) {
  return a.common == b.common && a.factors.host == b.factors.host &&
         a.factors.collective == b.factors.collective &&
         a.factors.collective_sizes == b.factors.collective_sizes;
}

void later_of(LaneTimes& clock, const LaneTimes& other) {
  for (std::size_t l = 0; l < clock.size(); ++l) {
    clock[l] = std::max(clock[l], other[l]);
  }
}

}  // namespace

LockstepPlayer::LockstepPlayer(Run& run, int number, std::span<const Draw> draws)
    : run_(run),
      ranks_(at(run.scenario().ranks)),
      draws_(draws.size()),
      lanes_(draws.size() * draws.front().size()),
      drawn_(draws),
      factors_{std::vector(run.pricer().groups().size(), std::vector(lanes_, 1.0)),
               std::vector<double>(lanes_),
               std::vector<double>(lanes_)},
      common_(lanes_),
      rules_(run.reduced().engine_rules({})),
      none_(lanes_),
      longest_ms_(draws_),
      total_ms_(lanes_) {
  for (std::size_t d = 0; d < draws_; ++d) {
    for (std::size_t r = 0; r < draws[d].size(); ++r) {
      const std::size_t lane = r * draws_ + d;
      const DrawnCosts& costs = draws[d][r];
      for (std::size_t g = 0; g < costs.factors.group.size(); ++g) {
        factors_.group[g][lane] = costs.factors.group[g];
      }
      factors_.host[lane] = costs.factors.host;
      factors_.stall[lane] = costs.common * costs.factors.new_shapes;
      common_[lane] = costs.common;
    }
    noise_.emplace_back(seed_of_draw(run.scenario().seed, at(number) + d));
  }
  slowed_.resize(lanes_, run.scenario().interference);
  for (std::size_t l = 0; l < lanes_; ++l) {
    const std::optional<Interference>& drawn = draws[l % draws_][l / draws_].factors.interference;
    slowed_[l] = drawn.value_or(slowed_[l]);
  }
  if (std::ranges::none_of(slowed_, &Interference::active)) {
    slowed_.clear();
  }
  sums_.ranks.resize(ranks_);
  find_schedules(run);
  // What the schedules price for the first time may have groups of its own.
  factors_.group.resize(run.pricer().groups().size(), std::vector(lanes_, 1.0));
  folder_ = std::make_unique<LaneFolder>(
      run, factors_, lanes_, draws_, !slowed_.empty() || rules_.queue_depth > 0);
}

std::vector<double> LockstepPlayer::mean_ms(std::size_t run) const {
  const auto steps = static_cast<double>(run_.scenario().steps - run_.scenario().warmup_steps);
  return mapped(std::span(total_ms_).subspan(run * draws_, draws_),
                [&](double ms) { return ms / steps; });
}

/// A step whose program has no schedule ends the list. Where compute slows transfers, ranks are
/// followed ahead of their queues.
void LockstepPlayer::find_schedules(Run& run) {
  const auto looks_ahead = [](const Interference& lane) { return lane.transfer > 0; };
  if (rules_.queue_depth > 0 && std::ranges::any_of(slowed_, looks_ahead)) {
    return;
  }
  IterationSequence iterations = run.reduced().iterations();
  std::vector<const KnownSchedule*> known;
  for (int step = 0; step < run.scenario().steps; ++step) {
    const StepWork work = run.reduced().step_without_work(step, iterations);
    const KnownSchedule* schedule = run.reduced().schedule(work);
    if (schedule == nullptr ||
        (!slowed_.empty() && !LaneInterference::knows(schedule->schedule, rules_))) {
      return;
    }
    const auto place = std::ranges::find(known, schedule);
    of_step_.push_back(static_cast<std::size_t>(place - known.begin()));
    if (place != known.end()) {
      continue;
    }
    known.push_back(schedule);
    schedules_.push_back(std::make_unique<LaneSchedule>(schedule->schedule, lanes_));
    set_times(run, work, *schedules_.back());
    schedules_.back()->list_kernels(run.pricer().model_work());
  }
}

void LockstepPlayer::set_times(Run& run, StepWork step, LaneSchedule& schedule) {
  step.first_rank_only = true;
  for (std::size_t r = 0; r < drawn_.front().size(); ++r) {
    LockstepTimes times;
    for (std::size_t d = 0; d < draws_; ++d) {
      const DrawnCosts& costs = drawn_[d][r];
      if (d == 0 || !same_times(costs, drawn_[d - 1][r])) {
        times = times_of(schedule.schedule(),
                         run.reduced().numbered_program(step, costs.factors, costs.common));
      }
      schedule.set(r * draws_ + d, times);
    }
  }
}

bool LockstepPlayer::play(const std::function<void(int step)>& on_step) {
  if (of_step_.size() < at(run_.scenario().steps)) {
    return false;
  }
  begin();
  for (int step = 0; step < run_.scenario().steps; ++step) {
    if (!play_step(step, *schedules_[of_step_[at(step)]])) {
      return false;
    }
    on_step(step);
  }
  return true;
}

/// Players that wait for their turn take no memory for the ranks.
void LockstepPlayer::begin() {
  slowness_.resize(ranks_);
  state_.resize(ranks_);
  for (std::size_t r = 0; r < ranks_; ++r) {
    slowness_[r].compute.resize(lanes_);
    slowness_[r].load.assign(at(run_.scenario().ddp.accumulation_steps),
                             std::vector<double>(lanes_));
    state_[r].host.assign(lanes_, 0.0);
    state_[r].streams.assign(kStreams, LaneTimes(lanes_));
    if (rules_.queue_depth > 0) {
      state_[r].queues.assign(kStreams, LaneQueue(at(rules_.queue_depth)));
    }
  }
  const LogNormal lasting = of_mean_one(run_.scenario().noise.rank_speed);
  lasting_.assign(draws_, std::vector(ranks_, 1.0));
  for (std::size_t d = 0; lasting.log_sd > 0 && d < draws_; ++d) {
    std::ranges::generate(lasting_[d], [&] { return noise_[d].factor(lasting); });
  }
  loaders_.assign(lanes_, Loader(run_.scenario().loader, run_.scenario().ranks));
  free_.resize(rules_.communicators.size());
  if (!slowed_.empty()) {
    interference_.emplace(run_, slowed_, state_);
  }
}

void LockstepPlayer::draw_noise(int step, const LaneSchedule& schedule) {
  const Jitter& jitter = run_.loads().jitter;
  const bool shares_cores = run_.loads().cores > 0;  // For which all speeds are known first.
  for (std::size_t d = 0; d < draws_; ++d) {
    const double common = jitter.common_score(noise_[d]);
    for (std::size_t r = 0; shares_cores && r < ranks_; ++r) {
      set_slowness(d, r, jitter.factor(noise_[d], common));
    }
    for (std::size_t r = 0; r < ranks_; ++r) {
      if (!shares_cores) {
        set_slowness(d, r, jitter.factor(noise_[d], common));
      }
      draw_rank(d, r, schedule);
    }
  }
  const std::size_t micro_batches = slowness_.front().load.size();
  for (std::size_t r = 0; r < ranks_; ++r) {
    for (std::size_t m = 0; m < micro_batches; ++m) {
      const std::size_t batch = (at(step) * ranks_ + r) * micro_batches + m;
      std::ranges::fill(slowness_[r].load[m], run_.loads().batch_factor[batch]);
    }
  }
  if (shares_cores) {
    share_cores(step);
  }
}

void LockstepPlayer::set_slowness(std::size_t draw, std::size_t rank, double drawn) {
  const double factor = run_.loads().rank_factor[rank];
  for (std::size_t l = draw; l < lanes_; l += draws_) {
    slowness_[rank].compute[l] = common_[l] * factor * lasting_[draw][rank] * drawn;
  }
}

void LockstepPlayer::draw_rank(std::size_t draw, std::size_t rank, const LaneSchedule& schedule) {
  const NoiseOptions& options = run_.scenario().noise;
  NoiseDraws& noise = noise_[draw];
  LaneSlowness& slowness = slowness_[rank];
  const std::size_t micro_batches = slowness.load.size();
  const LogNormal jitter = of_mean_one(options.op_jitter);
  const auto stall = [&](double probability, Duration time) {
    return noise.uniform() < probability ? static_cast<double>(time.count()) : 0.0;
  };
  for (std::size_t m = 0; m < micro_batches; ++m) {
    if (options.op_jitter > 0) {
      slowness.ops.resize(micro_batches);
      slowness.ops[m].resize(schedule.model_kernels(m) * draws_);
      for (std::size_t k = draw; k < slowness.ops[m].size(); k += draws_) {
        slowness.ops[m][k] = noise.factor(jitter);
      }
    }
    if (options.loader_stall_probability > 0) {
      slowness.loading.resize(micro_batches, LaneTimes(draws_));
      slowness.loading[m][draw] = stall(options.loader_stall_probability, options.loader_stall);
    }
  }
  if (options.stall_probability > 0) {
    slowness.stall.resize(draws_);
    slowness.stall[draw] = stall(options.stall_probability, options.stall);
  }
}

/// Does in all lanes what StepSimulator::share_cores() does.
void LockstepPlayer::share_cores(int step) {
  const std::size_t micro_batches = slowness_.front().load.size();
  for (std::size_t l = 0; l < lanes_; ++l) {
    std::size_t first = 0;
    for (const int on_node : run_.scenario().placement.node_ranks()) {
      std::vector<double> seconds(at(on_node));
      for (std::size_t i = 0; i < seconds.size() * micro_batches; ++i) {
        const std::size_t rank = first + i / micro_batches;
        const std::size_t batch = (at(step) * ranks_ + first) * micro_batches + i;
        seconds[i / micro_batches] += slowness_[rank].compute[l] *
                                      run_.loads().batch_factor[batch] *
                                      run_.pricer().compute_seconds(run_.priced_batch(batch));
      }
      for (const double factor : shared_core_factors(seconds, run_.loads().cores)) {
        for (std::vector<double>& load : slowness_[first].load) {
          load[l] *= factor;
        }
        ++first;
      }
    }
  }
}

void LockstepPlayer::draw_transfers(const LaneSchedule& schedule) {
  const std::vector<double>& spread = run_.reduced().all_reduce_spread();
  const std::size_t count = schedule.schedule().program.program.collectives.size();
  transfers_.resize(std::max(transfers_.size(), count));
  const bool free = run_.differs_by(Change::FreeCommunication);
  const bool drawn = !free && !spread.empty();
  for (std::size_t c = 0; c < count; ++c) {
    const double* transfer = schedule.transfer(static_cast<std::int32_t>(c));
    transfers_[c].assign(transfer, transfer + lanes_);
    if (free) {
      transfers_[c].assign(lanes_, 0.0);
    }
  }
  for (std::size_t d = 0; drawn && d < draws_; ++d) {
    for (std::size_t c = 0; c < count; ++c) {
      const double factor = noise_[d].from(spread);
      for (std::size_t l = d; l < lanes_; l += draws_) {
        // StepSimulator::drawn_transfers() rounds it likewise.
        const Duration whole(static_cast<std::int64_t>(transfers_[c][l]));
        transfers_[c][l] = static_cast<double>(to_duration(to_seconds(whole) * factor).count());
      }
    }
  }
}

void LockstepPlayer::begin_step(const LaneSchedule& schedule) {
  const Program& program = schedule.schedule().program.program;
  for (LaneRank& rank : state_) {
    for (const std::uint8_t stream : schedule.side_streams()) {
      rank.streams[stream].assign(lanes_, kNever);
    }
    rank.events.resize(std::max(rank.events.size(), schedule.event_places()), LaneTimes(lanes_));
    rank.marks.resize(at(program.marks), LaneTimes(lanes_));
    rank.phases.assign(kPhases, LaneTimes(draws_));
    rank.waiting.assign(draws_, 0.0);
  }
  called_.resize(std::max(called_.size(), program.collectives.size()));
  for (std::size_t c = 0; c < program.collectives.size(); ++c) {
    called_[c].last_arrival.assign(lanes_, kNever);
    called_[c].ranks = 0;
    called_[c].is_timed = false;
  }
  for (LaneTimes& free : free_) {
    free.assign(lanes_, kNever);
  }
  if (interference_) {
    interference_->begin_step(schedule);
  }
}

bool LockstepPlayer::fold(int step, std::size_t rank, const LaneSchedule& schedule) {
  const std::size_t micro_batches = slowness_[rank].load.size();
  const std::size_t first = (at(step) * ranks_ + rank) * micro_batches;
  if (!folder_->fold(schedule, static_cast<int>(rank), first, slowness_[rank], state_[rank].work)) {
    return false;
  }
  const bool loads = run_.scenario().loader != LoaderOptions{} || !slowness_[rank].loading.empty();
  if (loads && !run_.differs_by(Change::NoData)) {
    load(step, rank);
  }
  return true;
}

void LockstepPlayer::load(int step, std::size_t rank) {
  LaneWork& work = state_[rank].work;
  const std::size_t micro_batches = work.data.size();
  const int number = static_cast<int>(rank);
  const std::vector<LaneTimes>& stalls = slowness_[rank].loading;
  work.ready.resize(micro_batches, LaneTimes(lanes_));
  for (std::size_t m = 0; m < micro_batches; ++m) {
    const std::size_t of_rank = at(step) * micro_batches + m;
    const std::size_t batch = (at(step) * ranks_ + rank) * micro_batches + m;
    const Duration load =
        loaders_.front().cost(number,
                              static_cast<std::int64_t>(of_rank),
                              run_.pricer().input_tokens(run_.batch(batch).shape));
    for (std::size_t l = 0; l < lanes_; ++l) {
      double& data = work.data[m][l];
      data += static_cast<double>(load.count());
      data += stalls.empty() ? 0 : stalls[m][l % draws_];
      if (loaders_[l].has_workers()) {
        const Duration taken(static_cast<std::int64_t>(std::exchange(data, 0.0)));
        const SimTime ready = loaders_[l].ready(number, taken);
        work.ready[m][l] = static_cast<double>(ready.time_since_epoch().count());
      }
    }
  }
}

bool LockstepPlayer::play_step(int step, const LaneSchedule& schedule) {
  draw_noise(step, schedule);
  for (std::size_t r = 0; r < ranks_; ++r) {
    if (!fold(step, r, schedule)) {
      return false;
    }
  }
  draw_transfers(schedule);
  begin_step(schedule);
  const std::vector<LockstepMove>& moves = schedule.schedule().moves;
  // Between two collectives no rank depends on another: each makes its moves at one go.
  for (std::size_t begin = 0; begin < moves.size();) {
    std::size_t end = begin;
    while (end < moves.size() && moves[end].kind != Opcode::Collective) {
      ++end;
    }
    const bool calls = end < moves.size();
    end += calls ? 1 : 0;
    for (std::size_t r = 0; r < ranks_; ++r) {
      for (std::size_t m = begin; m < end; ++m) {
        make(schedule, m, r);
      }
    }
    if (calls && !transfer(schedule, end - 1)) {
      return false;
    }
    begin = end;
  }
  if (!exact()) {
    return false;
  }
  if (step >= run_.scenario().warmup_steps) {
    end_step(schedule);
  }
  return true;
}

void LockstepPlayer::make(const LaneSchedule& schedule, std::size_t number, std::size_t rank) {
  const LockstepMove& move = schedule.schedule().moves[number];
  const LaneSchedule::Times times = schedule.times(number);
  LaneRank& state = state_[rank];
  LaneTimes& free = state.streams[move.stream == kNoStream ? kComputeStream : move.stream];
  double* host = state.host.data();
  // What passes on the compute stream is counted.
  const std::size_t counted = move.stream == kComputeStream ? draws_ : 0;
  const auto event = [&]() -> LaneTimes& {
    return state.events[at(schedule.place_of_event(move.index))];
  };
  const auto pass_until = [&](Phase phase, const LaneTimes& time, const double* after) {
    double* passed = state.phases[static_cast<std::size_t>(phase)].data();
    wait_until(time.data(), after, lanes_, counted, free.data(), passed);
  };
  const auto called = [&]() -> Called& {
    return called_[at(schedule.schedule().collectives[at(move.index)][rank])];
  };
  /// The host goes on, and not before another time.
  const auto host_until = [&](const LaneTimes& time) {
    add(times.host, lanes_, host);
    wait_until(time.data(), times.latency, lanes_, host);
  };
  switch (move.kind) {
    case Opcode::Host:
      add(times.host, lanes_, host);
      break;
    case Opcode::HostWait:
      host_until(called().end);
      break;
    case Opcode::HostEvent:
      host_until(event());
      break;
    case Opcode::HostSync:
      host_until(free);
      break;
    case Opcode::Work:
      work(schedule, number, rank);
      break;
    case Opcode::Collective: {
      Called& collective = called();
      ++collective.ranks;
      arrival_ = free;
      wait_until(host, times.latency, lanes_, arrival_.data());
      wait_until(arrival_.data(), none_.data(), lanes_, collective.last_arrival.data());
      if (interference_) {
        interference_->launch(rank, arrival_);
      }
      add(times.host, lanes_, host);
      break;
    }
    case Opcode::StreamWait: {
      const Called& collective = called();
      if (move.stream == kComputeStream) {
        for (std::size_t d = 0; d < draws_; ++d) {
          state.waiting[d] += std::max(0.0, collective.last_arrival[d] - free[d]);
        }
      }
      pass_until(Phase::Wait, collective.end, times.latency);
      add(times.host, lanes_, host);
      break;
    }
    case Opcode::Record:
      if (schedule.place_of_event(move.index) >= 0) {
        event() = free;
      }
      break;
    case Opcode::EventWait:
      pass_until(move.phase, event(), none_.data());
      break;
    case Opcode::Mark:
      state.marks[at(move.index)] = free;
      break;
    case Opcode::HostUntil:
      add(times.host, lanes_, host);
      wait_until(state.work.ready[at(move.index)].data(), none_.data(), lanes_, host);
      for (std::size_t l = 0; l < lanes_; ++l) {
        loaders_[l].fetched(static_cast<int>(rank),
                            SimTime(Duration(static_cast<std::int64_t>(host[l]))));
      }
      break;
  }
}

void LockstepPlayer::work(const LaneSchedule& schedule, std::size_t number, std::size_t of_rank) {
  const LockstepMove& move = schedule.schedule().moves[number];
  LaneRank& rank = state_[of_rank];
  const bool is_batch = move.phase == Phase::Data;
  const bool is_stretch = !is_batch && move.index >= 0;
  LaneQueue* queue = rank.queues.empty() ? nullptr : &rank.queues[move.stream];
  if (is_batch) {
    add(rank.work.data[at(move.index)].data(), lanes_, rank.host.data());
  }
  const bool one_by_one = is_stretch && (queue != nullptr || rank.work.has_own(at(move.index)));
  if (one_by_one || (interference_ && !is_batch && !is_alone(move, of_rank))) {
    LaneTimes& stream = rank.streams[move.stream];
    LaneTimes& passed = rank.phases[static_cast<std::size_t>(move.phase)];
    const std::size_t counted = move.stream == kComputeStream ? draws_ : 0;
    for (std::size_t d = 0; d < counted; ++d) {
      passed[d] -= stream[d];
    }
    if (interference_) {
      interference_->work(number, of_rank, queue, rank.host, stream);
    } else {
      launch(schedule, number, of_rank);
    }
    add(stream.data(), counted, passed.data());
    return;
  }
  if (queue != nullptr) {
    queue->wait(rank.host);
  }
  const auto enqueue = [&](const double* host, const double* device, const double* critical) {
    work_on_stream(host,
                   device,
                   critical,
                   lanes_,
                   move.stream == kComputeStream ? draws_ : 0,
                   rank.host.data(),
                   rank.streams[move.stream].data(),
                   rank.phases[static_cast<std::size_t>(move.phase)].data());
  };
  if (is_batch || is_stretch) {
    const LaneSpan& span =
        is_batch ? rank.work.copies[at(move.index)] : rank.work.stretch(move.index);
    enqueue(span.host.data(), span.device.data(), span.critical.data());
  } else {
    const LaneSchedule::Times times = schedule.times(number);
    enqueue(times.host, times.work, times.latency);
  }
  if (queue != nullptr) {
    queue->push(rank.streams[move.stream]);
  }
}

/// Whether no collective slows the work of a move.
bool LockstepPlayer::is_alone(const LockstepMove& move, std::size_t rank) {
  return move.index >= 0 && interference_->is_alone(rank, state_[rank].work.stretch(move.index));
}

void LockstepPlayer::launch(const LaneSchedule& schedule, std::size_t number, std::size_t of_rank) {
  const LockstepMove& move = schedule.schedule().moves[number];
  LaneRank& rank = state_[of_rank];
  LaneTimes& stream = rank.streams[move.stream];
  LaneQueue* queue = rank.queues.empty() ? nullptr : &rank.queues[move.stream];
  const std::size_t stretch = at(move.index);
  const std::size_t kernels = schedule.kernels(stretch, of_rank).size();
  for (std::size_t k = 0; k < kernels; ++k) {
    if (queue != nullptr) {
      queue->wait(rank.host);
    }
    launch_kernel(rank.work.launch_of(stretch, k).data(),
                  rank.work.time_of(schedule, of_rank, stretch, k),
                  lanes_,
                  rank.host.data(),
                  stream.data());
    if (queue != nullptr) {
      queue->push(stream);
    }
  }
}

bool LockstepPlayer::transfer(const LaneSchedule& schedule, std::size_t move) {
  const LockstepSchedule& step = schedule.schedule();
  for (const std::int32_t index : step.collectives[at(step.moves[move].index)]) {
    Called& collective = called_[at(index)];
    if (collective.is_timed) {
      continue;  // The group of a rank before this one.
    }
    collective.is_timed = true;
    const std::int32_t number = step.program.program.collectives[at(index)].communicator;
    const Communicator& communicator = rules_.communicators[at(number)];
    LaneTimes& free = free_[at(number)];
    const auto delay = static_cast<double>(communicator.start_delay.count());
    collective.start.resize(lanes_);
    collective.end.resize(lanes_);
    for (std::size_t l = 0; l < lanes_; ++l) {
      if (communicator.workers > 1 && collective.last_arrival[l] < free[l]) {
        return false;
      }
      collective.start[l] = std::max(collective.last_arrival[l], free[l]) + delay;
      free[l] = collective.end[l] = collective.start[l] + transfers_[at(index)][l];
    }
    if (interference_) {
      interference_->time(move + 1, collective.start, transfers_[at(index)], collective.end);
      free = collective.end;
    }
  }
  return true;
}

bool LockstepPlayer::exact() const {
  const auto is_exact = [](double time) { return time < kExactTime; };
  return std::ranges::all_of(state_,
                             [&](const LaneRank& rank) {
                               return std::ranges::all_of(rank.host, is_exact) &&
                                      std::ranges::all_of(rank.streams[kComputeStream], is_exact);
                             }) &&
         std::ranges::all_of(
             free_, [&](const LaneTimes& free) { return std::ranges::all_of(free, is_exact); });
}

void LockstepPlayer::end_step(const LaneSchedule& schedule) {
  LaneTimes start = state_.front().marks[kStepStart];
  LaneTimes end = state_.front().streams[kComputeStream];
  for (const LaneRank& rank : state_) {
    later_of(start, rank.marks[kStepStart]);
    later_of(end, rank.streams[kComputeStream]);
  }
  for (std::size_t l = 0; l < lanes_; ++l) {
    const double ms = kMsPerNs * (end[l] - start[l]);
    total_ms_[l] += ms;
    if (l < draws_) {
      sums_.step_ms.push_back(ms);
      longest_ms_[l] = std::max(longest_ms_[l], ms);
      add_step(schedule.schedule().program, l);
    }
  }
}

/// The parts of a step in the first run of a draw, as of timeline_of() and StepTimeTally::add().
void LockstepPlayer::add_step(const StepProgram& program, std::size_t draw) {
  std::vector<double> rank_ms;
  double backward_end = 0;
  double exposed = state_.front().phases[static_cast<std::size_t>(Phase::Wait)][draw];
  for (const LaneRank& rank : state_) {
    exposed = std::min(exposed, rank.phases[static_cast<std::size_t>(Phase::Wait)][draw]);
    backward_end = std::max(backward_end, rank.marks[kBackwardEnd][draw]);
  }
  for (std::size_t r = 0; r < ranks_; ++r) {
    const LaneRank& rank = state_[r];
    const auto ms = [&](Phase phase) {
      return kMsPerNs * rank.phases[static_cast<std::size_t>(phase)][draw];
    };
    const double waiting = program.waits_within
                               ? rank.phases[static_cast<std::size_t>(Phase::Wait)][draw] - exposed
                               : rank.waiting[draw];
    const double step =
        kMsPerNs * (rank.streams[kComputeStream][draw] - rank.marks[kStepStart][draw]);
    RankTimes& sum = sums_.ranks[r];
    sum.data_ms += ms(Phase::Data);
    sum.forward_ms += ms(Phase::Forward) + ms(Phase::Other);
    sum.backward_ms += ms(Phase::Backward) + ms(Phase::BackwardOther);
    sum.exposed_ms += ms(Phase::Wait);
    sum.waiting_ms += kMsPerNs * waiting;
    sum.optimizer_ms += ms(Phase::CopyOut) + ms(Phase::Optimizer) + ms(Phase::OptimizerOther);
    sum.step_ms += step;
    rank_ms.push_back(step);
  }
  sums_.std_over_ranks += population_std(rank_ms);
  double transfers_ms = 0;
  double early_ms = 0;
  for (std::size_t c = 0; c < program.program.collectives.size(); ++c) {
    const Called& collective = called_[c];
    const double share = static_cast<double>(collective.ranks) / static_cast<double>(ranks_);
    const double start = collective.start[draw];
    const double end = collective.end[draw];
    transfers_ms += share * kMsPerNs * (end - start);
    early_ms += share * kMsPerNs * std::max(0.0, std::min(end, backward_end) - start);
  }
  sums_.communication_ms += transfers_ms;
  sums_.hidden_ms +=
      program.waits_within ? std::max(0.0, transfers_ms - kMsPerNs * exposed) : early_ms;
}

}  // namespace stepsim
