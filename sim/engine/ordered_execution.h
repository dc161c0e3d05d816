#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/engine/program_check.h"

namespace stepsim {

/// One program while the engine plays it without events: each rank goes on, instruction by
/// instruction, until it waits for a collective that not all ranks have launched.
///
/// Under interference a rank stops behind each launch of a collective until that one's end is
/// known, so that it always knows what slows it. A transfer that compute slows goes on together
/// with the ranks: work is passed up to a time until which some rank is known to compute, and that
/// time moves on with the work that is under way then.
class OrderedExecution {
 public:
  /// `order`: of the program, as collective_order() finds it. All references must outlive this.
  OrderedExecution(Engine& engine, const Program& program, const CollectiveOrder& order);

  /// None: two transfers of a communicator with several workers would be under way at once. The
  /// engine is as it was then, since no such communicator goes with a bound queue.
  std::optional<ExecutionTrace> play();

 private:
  /// What slows a rank's work.
  struct Regime {
    bool is_resident = false;        ///< Whether the collective `number` is on the device.
    std::size_t number = 0;          ///< Of the collectives: that one, or else the next to come.
    SimTime until = SimTime::max();  ///< When this ends, as far as is known.
  };

  struct Rank {
    SimTime host;
    std::size_t next = 0;  ///< Next instruction.
    std::array<SimTime, kStreams> free;
    std::vector<SimTime> events;  ///< [event]
    SimTime held_from;            ///< When the host was last held by a stream beside the
    SimTime held_until;           ///< compute stream.
    std::size_t calls = 0;        ///< How many collectives it has launched.
    Regime regime;                ///< Under interference.
  };

  /// Where a rank stopped, by the slowed work that is next: SimTime::max() where it waits.
  struct Stop {
    SimTime start = SimTime::max();
    SimTime end = SimTime::max();
  };

  /// Goes on up to slowed work that ends behind `frontier`, or to a wait for what has no end yet.
  /// `stops`: also behind the launch of a collective.
  Stop run(std::size_t rank, SimTime frontier, bool stops);
  void launch_part(std::size_t rank, const Instruction& in, SimTime host, SimTime free);
  /// When slowed work ends, and what slows the rank then.
  SimTime end_of(std::size_t rank, const Instruction& in, SimTime start, Regime& regime);
  /// Goes on to what slows the rank from regime.until on.
  void change(std::size_t rank, Regime& regime) const;
  /// Finds out until when a regime lasts.
  void look_ahead(std::size_t rank, Regime& regime) const;
  [[nodiscard]] double slowdown(const Instruction& in, const Regime& regime);

  /// Ends the collectives that all ranks have launched. True when there was one.
  bool complete();
  /// `number`: of the collective. `free`: the end of the one before it, on its communicator. False:
  /// they would share links.
  [[nodiscard]] bool complete(const Communicator& rules, std::int32_t number, SimTime& free);
  /// When a transfer ends that compute slows.
  SimTime end_beside_compute(SimTime start, Duration transfer);

  Engine& engine_;
  const EngineRules& rules_;
  const Program& program_;
  const CollectiveOrder& order_;
  bool interference_;
  std::vector<Rank> ranks_;
  std::vector<std::size_t> launched_;  ///< [collective] By how many ranks.
  std::vector<bool> is_done_;          ///< [collective]
  std::vector<std::size_t> done_;      ///< [communicator] How many of its collectives.
  std::vector<SimTime> free_;          ///< [communicator] The end of the last one.
  std::size_t started_ = 0;            ///< How many collectives.
  /// What compute_slowdown() returned last, by a hash of what it was asked. Kernels repeat.
  struct KnownSlowdown {
    std::uint64_t key = 0;
    double slowdown = 1;
  };
  std::array<KnownSlowdown, 128> known_slowdowns_;
  bool shares_links_ = false;  ///< Two transfers would.
  ExecutionTrace trace_;
};

}  // namespace stepsim
