#include "sim/predict/draws/lane_schedule.h"

#include <algorithm>

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
}

void LaneSchedule::set(std::size_t lane, const LockstepTimes& times) {
  for (std::size_t m = 0; m < times.moves.size(); ++m) {
    const LockstepMove& move = times.moves[m];
    set(3 * m, lane, move.host);
    set(3 * m + 1, lane, move.latency);
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
