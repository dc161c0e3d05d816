#include "sim/predict/draws/lane_schedule.h"

#include <algorithm>

#include "costmodel/base/mapped.h"

namespace stepsim {

LaneSchedule::LaneSchedule(const LockstepSchedule& schedule, std::size_t lanes)
    : schedule_(&schedule),
      lanes_(lanes),
      zeros_(lanes),
      columns_(3 * schedule.moves.size(), kZero),
      call_(schedule.program.program.collectives.size()),
      transfers_(schedule.collectives.size() * lanes) {
  for (std::uint8_t stream = 0; stream < kStreams; ++stream) {
    const auto is_on = [stream](const LockstepMove& move) { return move.stream == stream; };
    if (stream != kComputeStream && std::ranges::any_of(schedule.moves, is_on)) {
      side_streams_.push_back(stream);
    }
  }
  for (std::size_t n = 0; n < schedule.collectives.size(); ++n) {
    for (const std::int32_t one : schedule.collectives[n]) {
      call_[at(one)] = n;
    }
  }
  place_events();
}

void LaneSchedule::place_events() {
  constexpr std::size_t kNever = 0;
  const std::vector<LockstepMove>& moves = schedule_->moves;
  std::vector<std::size_t> last_wait(at(schedule_->program.program.events), kNever);
  const auto waits = [](const LockstepMove& move) {
    return move.kind == Opcode::EventWait || move.kind == Opcode::HostEvent;
  };
  for (std::size_t m = 0; m < moves.size(); ++m) {
    if (waits(moves[m])) {
      last_wait[at(moves[m].index)] = m;
    }
  }
  place_of_event_.assign(last_wait.size(), -1);
  std::vector<std::int32_t> vacant;
  for (std::size_t m = 0; m < moves.size(); ++m) {
    const LockstepMove& move = moves[m];
    if (move.kind == Opcode::Record && last_wait[at(move.index)] != kNever) {
      if (vacant.empty()) {
        vacant.push_back(static_cast<std::int32_t>(event_places_++));
      }
      place_of_event_[at(move.index)] = vacant.back();
      vacant.pop_back();
    } else if (waits(move) && last_wait[at(move.index)] == m) {
      vacant.push_back(place_of_event_[at(move.index)]);
    }
  }
}

void LaneSchedule::list_kernels(std::int32_t model_work) {
  model_kernels_.resize(at(schedule_->micro_batches));
  for (const LockstepStretch& stretch : schedule_->stretches) {
    std::vector<std::vector<std::int32_t>>& ranks =
        kernels_.emplace_back(mapped(stretch.of_rank, kernels_of));
    if (ranks.empty()) {
      ranks.push_back(kernels_of(stretch.work));
    }
    const auto of_model = [&](std::int32_t work) { return work < model_work; };
    model_kernels_[at(stretch.micro_batch)] +=
        static_cast<std::size_t>(std::ranges::count_if(ranks.front(), of_model));
  }
}

void LaneSchedule::set(std::size_t lane, const LockstepTimes& times) {
  for (std::size_t m = 0; m < times.moves.size(); ++m) {
    const LockstepMove& move = times.moves[m];
    set(3 * m, lane, move.host);
    set(3 * m + 1, lane, move.kind == Opcode::Work ? move.latency + move.work : move.latency);
    set(3 * m + 2, lane, move.work);
  }
  for (std::size_t n = 0; n < times.transfers.size(); ++n) {
    transfers_[n * lanes_ + lane] = static_cast<double>(times.transfers[n].count());
  }
}

void LaneSchedule::set(std::size_t time, std::size_t lane, Duration value) {
  if (value == Duration::zero()) {
    return;
  }
  std::int32_t& column = columns_[time];
  if (column == kZero) {
    column = static_cast<std::int32_t>(values_.size() / lanes_);
    values_.resize(values_.size() + lanes_);
  }
  values_[at(column) * lanes_ + lane] = static_cast<double>(value.count());
}

}  // namespace stepsim
