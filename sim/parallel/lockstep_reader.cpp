#include "sim/parallel/lockstep_reader.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"

namespace stepsim {
namespace {

bool meets(const Instruction& in) {
  return in.kind == Opcode::Collective || in.kind == Opcode::StreamWait ||
         in.kind == Opcode::HostWait;
}

/// Whether two ranks do the same, but for the group that a collective is among and for the number
/// of a kernel.
bool alike(const Instruction& a, const Instruction& b) {
  return a.kind == b.kind && a.stream == b.stream && a.phase == b.phase &&
         (a.label < 0) == (b.label < 0) && a.bound == b.bound && a.blocks == b.blocks &&
         a.host == b.host && a.latency == b.latency && a.work == b.work &&
         (meets(a) || a.index == b.index);
}

/// The element of that number, which is there then.
template <typename Element>
typename std::vector<Element>::reference grown(std::vector<Element>& list,
                                               std::int32_t number,
                                               Element missing) {
  if (at(number) >= list.size()) {
    list.resize(at(number) + 1, missing);
  }
  return list[at(number)];
}

}  // namespace

void LockstepReader::add(std::span<const Instruction> rank) {
  in_lockstep_ = in_lockstep_ && (ranks_ == 0 ? add_first(rank) : add_other(rank));
  ++ranks_;
}

bool LockstepReader::add_first(std::span<const Instruction> rank) {
  first_.assign(rank.begin(), rank.end());
  for (const Instruction& in : rank) {
    places_.emplace_back();
    calls_.push_back(-1);
    if (!take(in)) {
      return false;
    }
  }
  return true;
}

bool LockstepReader::add_other(std::span<const Instruction> rank) {
  if (rank.size() != first_.size()) {
    return false;
  }
  for (std::size_t i = 0; i < rank.size(); ++i) {
    const Instruction& in = rank[i];
    if (!alike(in, first_[i])) {
      return false;
    }
    if (meets(in)) {
      std::vector<std::int32_t>& called = schedule_.collectives[at(calls_[i])];
      if (in.kind == Opcode::Collective) {
        called.push_back(in.index);
      } else if (called.size() <= ranks_ || called[ranks_] != in.index) {
        return false;
      }
    } else if (places_[i].stretch >= 0 && in.label != first_[i].label) {
      Launched& stretch = launched_[at(places_[i].stretch)];
      stretch.of_rank.resize(ranks_ + 1, stretch.work);
      stretch.of_rank[ranks_][places_[i].number] = in.label;
    }
  }
  return true;
}

bool LockstepReader::take(const Instruction& in) {
  LockstepMove move;
  move.kind = in.kind;
  move.stream = in.stream;
  move.phase = in.phase;
  move.index = in.index;
  move.bound = in.bound;
  move.blocks = in.blocks;
  move.host = in.host;
  move.latency = in.latency;
  move.work = in.work;
  switch (in.kind) {
    case Opcode::HostUntil:
      move.index = schedule_.micro_batches;
      break;
    case Opcode::HostSync:
      if (in.stream != kComputeStream) {
        return false;  // What it holds up would be told apart from other waits.
      }
      break;
    case Opcode::Host:
    case Opcode::Mark:
      break;
    case Opcode::Work:
      return take_work(in, move);
    case Opcode::Collective:
      if (in.stream == kNoStream) {
        return false;
      }
      move.index = static_cast<std::int32_t>(schedule_.collectives.size());
      schedule_.collectives.push_back({in.index});
      grown(call_of_, in.index, -1) = move.index;
      calls_.back() = move.index;
      break;
    case Opcode::StreamWait:
    case Opcode::HostWait:
      move.index = grown(call_of_, in.index, -1);
      if (move.index < 0) {
        return false;
      }
      calls_.back() = move.index;
      break;
    case Opcode::Record:
      grown(recorded_, in.index, false) = true;
      break;
    case Opcode::EventWait:
    case Opcode::HostEvent:
      if (!grown(recorded_, in.index, false)) {
        return false;
      }
      break;
  }
  schedule_.moves.push_back(move);
  return true;
}

bool LockstepReader::take_work(const Instruction& in, LockstepMove& move) {
  if (in.phase == Phase::Data) {
    // The host has built the batch by the instruction before, which takes no time here.
    move.index = schedule_.micro_batches++;
    schedule_.moves.push_back(move);
    return true;
  }
  if (in.label < 0) {
    move.index = -1;
    schedule_.moves.push_back(move);
    return true;
  }
  if (in.work != Duration::zero() || in.host != Duration::zero() ||
      in.latency != Duration::zero()) {
    return false;  // A time that would be lost.
  }
  const bool goes_on = !schedule_.moves.empty() && schedule_.moves.back().kind == Opcode::Work &&
                       schedule_.moves.back().phase == in.phase &&
                       schedule_.moves.back().stream == in.stream &&
                       schedule_.moves.back().index >= 0;
  if (!goes_on) {
    move.index = static_cast<std::int32_t>(schedule_.stretches.size());
    LockstepStretch& stretch = schedule_.stretches.emplace_back();
    stretch.micro_batch = std::max(0, schedule_.micro_batches - 1);
    stretch.phase = in.phase;
    schedule_.moves.push_back(move);
    launched_.emplace_back();
  }
  places_.back() = {schedule_.moves.back().index, launched_.back().work.size()};
  launched_.back().work.push_back(in.label);
  return true;
}

/// The layers of a model are alike.
void LockstepReader::find_alike() {
  const auto before = [](const LockstepStretch* a, const LockstepStretch* b) {
    return std::tie(a->micro_batch, a->work, a->of_rank) <
           std::tie(b->micro_batch, b->work, b->of_rank);
  };
  std::map<const LockstepStretch*, std::int32_t, decltype(before)> first(before);
  for (std::size_t s = 0; s < schedule_.stretches.size(); ++s) {
    LockstepStretch& stretch = schedule_.stretches[s];
    stretch.first_alike = first.emplace(&stretch, static_cast<std::int32_t>(s)).first->second;
  }
}

std::optional<LockstepSchedule> LockstepReader::schedule(StepProgram program) && {
  if (!in_lockstep_) {
    return std::nullopt;
  }
  program.program.ranks.assign(ranks_, {});
  schedule_.program = std::move(program);
  for (std::size_t s = 0; s < launched_.size(); ++s) {
    Launched& launched = launched_[s];
    if (!launched.of_rank.empty()) {
      launched.of_rank.resize(ranks_, launched.work);
    }
    schedule_.stretches[s].work = repeated_work(launched.work);
    schedule_.stretches[s].of_rank = mapped(launched.of_rank, repeated_work);
  }
  find_alike();
  return std::move(schedule_);
}

}  // namespace stepsim
