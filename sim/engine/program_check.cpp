#include "sim/engine/program_check.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "costmodel/base/index.h"
#include "sim/engine/time_limit.h"

namespace stepsim {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument("program: " + what);
}

void check(const Instruction& instruction, std::size_t rank, const Program& program) {
  // A chain of ops may be launched while it runs. Its latency is less than zero then, but it never
  // ends before the call.
  const Duration latency = instruction.latency +
                           (instruction.kind == Opcode::Work ? instruction.work : Duration::zero());
  const std::int64_t all = instruction.host.count() | latency.count() | instruction.work.count();
  if (all < 0) {
    refuse("rank " + std::to_string(rank) + ": a negative duration");
  }
  (void)bounded(Duration(all));  // The bits of all three: the limit is a power of two.
  const bool no_stream = instruction.stream == kNoStream && instruction.kind == Opcode::Collective;
  if (instruction.stream >= kStreams && !no_stream) {
    refuse("rank " + std::to_string(rank) + ": no stream " + std::to_string(instruction.stream));
  }
  std::int32_t bound = 0;
  switch (instruction.kind) {
    case Opcode::Host:
    case Opcode::HostUntil:
    case Opcode::Work:
    case Opcode::HostSync:
      return;
    case Opcode::Collective:
    case Opcode::StreamWait:
    case Opcode::HostWait:
      bound = static_cast<std::int32_t>(program.collectives.size());
      break;
    case Opcode::Record:
    case Opcode::EventWait:
    case Opcode::HostEvent:
      bound = program.events;
      break;
    case Opcode::Mark:
      bound = program.marks;
      break;
  }
  if (instruction.index < 0 || instruction.index >= bound) {
    refuse("rank " + std::to_string(rank) + ": no collective, event or mark " +
           std::to_string(instruction.index));
  }
}

/// Follows the ranks through a program without its times.
class OrderFinder {
 public:
  OrderFinder(const Program& program, const EngineRules& rules)
      : program_(program),
        rules_(rules),
        next_(program.ranks.size(), 0),
        events_(program.ranks.size(), std::vector<bool>(at(program.events), false)),
        calls_(program.ranks.size(), std::vector<std::size_t>(rules.communicators.size(), 0)),
        called_(program.collectives.size(), 0),
        order_(rules.communicators.size()),
        done_(rules.communicators.size(), 0),
        is_done_(program.collectives.size(), false) {}

  std::optional<CollectiveOrder> find() {
    if (rules_.interference.active() && !slows_what_follows()) {
      return std::nullopt;
    }
    for (bool moved = true; moved;) {
      for (std::size_t r = 0; r < next_.size(); ++r) {
        if (!run(r)) {
          return std::nullopt;
        }
      }
      moved = complete();
    }
    for (std::size_t r = 0; r < next_.size(); ++r) {
      if (next_[r] < program_.ranks[r].size()) {
        return std::nullopt;
      }
    }
    return std::move(order_);
  }

 private:
  [[nodiscard]] bool slows_what_follows() const {
    const Communicator& communicator = rules_.communicators.front();
    const bool one = std::ranges::all_of(
        program_.collectives, [](const Collective& each) { return each.communicator == 0; });
    if (!one || communicator.workers != 1 || !communicator.ranks.empty()) {
      return false;
    }
    return std::ranges::all_of(program_.ranks, [](const std::vector<Instruction>& rank) {
      return std::ranges::all_of(rank, [](const Instruction& in) {
        return (in.kind != Opcode::Work && in.kind != Opcode::Collective) ||
               in.stream == kComputeStream;
      });
    });
  }

  /// False: the rank waits for an event before it is recorded, or launches other collectives than
  /// the rest.
  bool run(std::size_t r) {
    for (std::size_t& next = next_[r]; next < program_.ranks[r].size(); ++next) {
      const Instruction& in = program_.ranks[r][next];
      if ((in.kind == Opcode::StreamWait || in.kind == Opcode::HostWait) &&
          !is_done_[at(in.index)]) {
        return true;
      }
      if (in.kind == Opcode::Record) {
        events_[r][at(in.index)] = true;
      } else if (in.kind == Opcode::EventWait || in.kind == Opcode::HostEvent) {
        if (!events_[r][at(in.index)]) {
          return false;
        }
      } else if (in.kind == Opcode::Collective && !call(r, in.index)) {
        return false;
      }
    }
    return true;
  }

  bool call(std::size_t r, std::int32_t collective) {
    const std::size_t communicator = at(program_.collectives[at(collective)].communicator);
    std::vector<std::int32_t>& order = order_[communicator];
    const std::size_t place = calls_[r][communicator]++;
    if (place == order.size()) {
      order.push_back(collective);
    }
    ++called_[at(collective)];
    return order[place] == collective;
  }

  bool complete() {
    bool moved = false;
    for (std::size_t c = 0; c < order_.size(); ++c) {
      const std::vector<std::int32_t>& members = rules_.communicators[c].ranks;
      const std::size_t count = members.empty() ? next_.size() : members.size();
      for (; done_[c] < order_[c].size() && called_[at(order_[c][done_[c]])] == count; ++done_[c]) {
        is_done_[at(order_[c][done_[c]])] = true;
        moved = true;
      }
    }
    return moved;
  }

  const Program& program_;
  const EngineRules& rules_;
  std::vector<std::size_t> next_;                ///< [rank]
  std::vector<std::vector<bool>> events_;        ///< [rank][event] Recorded.
  std::vector<std::vector<std::size_t>> calls_;  ///< [rank][communicator]
  std::vector<std::size_t> called_;              ///< [collective] By how many ranks.
  CollectiveOrder order_;
  std::vector<std::size_t> done_;  ///< [communicator]
  std::vector<bool> is_done_;      ///< [collective]
};

}  // namespace

void check_program(const Program& program, const EngineRules& rules, std::size_t ranks) {
  if (program.ranks.size() != ranks) {
    refuse(std::to_string(program.ranks.size()) + " ranks for an engine of " +
           std::to_string(ranks));
  }
  std::vector<std::vector<bool>> is_member;  // [communicator][rank] Empty: all are.
  for (const Communicator& communicator : rules.communicators) {
    std::vector<bool>& members = is_member.emplace_back(communicator.ranks.empty() ? 0 : ranks);
    for (const std::int32_t rank : communicator.ranks) {
      if (rank < 0 || at(rank) >= ranks) {
        refuse("a communicator has rank " + std::to_string(rank) + " of " + std::to_string(ranks));
      }
      members[at(rank)] = true;
    }
  }
  for (const Collective& collective : program.collectives) {
    if (collective.communicator < 0 || at(collective.communicator) >= rules.communicators.size()) {
      refuse("no communicator " + std::to_string(collective.communicator));
    }
    if (collective.transfer < Duration::zero()) {
      refuse("a negative transfer");
    }
    (void)bounded(collective.transfer);
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    for (const Instruction& in : program.ranks[r]) {
      check(in, r, program);
      if (in.kind != Opcode::Collective) {
        continue;
      }
      const auto& members = is_member[at(program.collectives[at(in.index)].communicator)];
      if (!members.empty() && !members[r]) {
        refuse("rank " + std::to_string(r) + " is not in the communicator of collective " +
               std::to_string(in.index));
      }
    }
  }
}

std::optional<CollectiveOrder> collective_order(const Program& program, const EngineRules& rules) {
  return OrderFinder(program, rules).find();
}

}  // namespace stepsim
