#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "costmodel/base/index.h"
#include "sim/engine/engine.h"
#include "sim/engine/event_queue.h"
#include "sim/engine/progress.h"

namespace stepsim::engine_detail {

/// Events of the engine.
enum class Kind : std::int32_t {
  WorkStart,      ///< Stream `index` of `rank` starts its head (interference only).
  WorkEnd,        ///< Stream `index` of `rank` ends its chain of work (interference only).
  Arrival,        ///< Rank `rank`'s part of collective `index` is ready to be taken.
  TransferStart,  ///< Collective `index` moves data.
  TransferEnd     ///< Collective `index` is done on all ranks.
};

}  // namespace stepsim::engine_detail

namespace stepsim {

/// One program while the engine plays it. Hosts and streams of a rank go on as far as they can
/// without an event; events are what other ranks and changing rates make necessary.
class ProgramExecution {
 public:
  ProgramExecution(Engine& engine, const Program& program, bool record_spans);

  ExecutionTrace play();

 private:
  /// An instruction that was enqueued on a stream.
  /// When the host waited for a stream other than the compute stream.
  struct Held {
    SimTime from;
    SimTime until;
  };

  struct Item {
    const Instruction* instruction;
    SimTime not_before;  ///< When its call has taken effect.
    Held held;           ///< When the host was last held before it made the call.
    SimTime end{};       ///< Work of a chain ends then, as things are.
  };

  struct Stream {
    std::vector<Item> items;
    std::size_t head = 0;
    SimTime free;                      ///< The end of all that has left the stream.
    engine_detail::Progress progress;  ///< Of the head, once it is the first of a chain.
    std::size_t chain_end = 0;         ///< The item after the chain that begins at the head.
    bool start_pending = false;        ///< A WorkStart is on its way.
    std::int32_t awaited = -1;         ///< The collective whose end wakes the stream.

    [[nodiscard]] bool empty() const { return head == items.size(); }
  };

  struct Rank {
    SimTime host;
    std::size_t next = 0;  ///< Next instruction.
    std::array<Stream, kStreams> streams;
    std::vector<SimTime> events;    ///< [event]; SimTime::max() before it is reached.
    std::int32_t resident = 0;      ///< How many collectives hold a place on the device.
    std::int32_t channels = 0;      ///< How many multiprocessors they hold.
    std::int32_t computing = 0;     ///< How many streams have work under way that they slow.
    bool told = false;              ///< Whether the transfers count this rank as computing.
    std::int32_t awaited = -1;      ///< The collective whose end wakes the host.
    Held held;                      ///< When the host was last held.
    std::uint8_t full = kNoStream;  ///< The stream that has no room for the host's next launch.
    std::uint8_t looked_for = kNoStream;  ///< What launches_before_other() last found: from where
    std::size_t looked_to = 0;            ///< the host was up to here, all is for this stream,
    std::int64_t launched_by_then = 0;    ///< which has so many launches by then.
  };

  struct Transfer {
    std::int32_t held = 0;  ///< How many ranks have a worker that holds it.
    bool active = false;
    bool done = false;
    std::int32_t computing = 0;  ///< How many ranks compute beside it, which slows it.
    engine_detail::Progress progress;
    std::vector<std::int32_t> waiters;  ///< Ranks with a stream or host that waits for the end.
  };

  struct CommunicatorState {
    std::vector<std::int32_t> members;
    std::vector<bool> is_member;
    std::vector<std::vector<std::int32_t>>
        queue;                         ///< [rank] collectives in the order of the calls.
    std::vector<std::size_t> taken;    ///< [rank] parts of the queue taken by workers.
    std::vector<std::int32_t> busy;    ///< [rank] workers that hold a part.
    std::vector<std::int32_t> order;   ///< The order in which a rank first took them.
    std::vector<std::int32_t> active;  ///< The transfers under way.
  };

  static SimTime first_time(const std::vector<RankClock>& clocks);

  void prepare(CommunicatorState& state, const Communicator& rules) const;

  [[noreturn]] static void refuse(const std::string& what);

  /// Lets a rank go on as far as it can at this time.
  void settle(std::int32_t rank);

  /// Runs the host up to the first instruction that has to wait; true when it executed any.
  bool run_host(std::int32_t rank);

  /// Whether a collective has ended; if not, the rank is woken when it does.
  bool is_done(std::int32_t rank, std::int32_t collective, std::int32_t& awaited);

  void enqueue(std::int32_t rank, const Instruction& in);

  /// Whether the host may launch on this stream now: it waits for the end of the launch that came
  /// queue_depth before.
  bool has_room(std::int32_t rank, std::uint8_t stream);

  /// Takes items off a stream until one has to wait. True when something left the stream.
  bool advance(std::int32_t rank, std::uint8_t index);

  /// Lets the head of the stream run, if it may; true when it has left the stream.
  bool take_head(std::int32_t rank, std::uint8_t index, Stream& stream);

  /// Moves the end of a stream forward, counted as `phase` on the compute stream.
  void pass(std::int32_t rank, std::uint8_t index, Phase phase, SimTime free);

  void end_work(std::int32_t rank, std::uint8_t index, const Item& item, SimTime end);

  void start_work(std::int32_t rank, std::uint8_t index, Stream& stream, const Item& item);

  void work_started(std::int32_t rank, std::uint8_t index);

  [[nodiscard]] bool is_slowed(const Instruction& in) const {
    return interference_ && in.kind == Opcode::Work && in.bound != Bound::Unaffected &&
           in.work > Duration::zero();
  }

  [[nodiscard]] double slowdown_of_work(const Rank& state, const Instruction& in) const;

  /// Foresees the ends of the work under way and of what follows it at once, as long as nothing
  /// changes, and has the last of them as an event.
  void foresee(std::int32_t rank, std::uint8_t index);

  /// The most work that a chain may hold from the head on.
  [[nodiscard]] std::size_t longest_chain(std::int32_t rank, std::uint8_t index);

  /// How many launches on the full stream the host makes before it does anything that is not for
  /// that stream.
  [[nodiscard]] std::int64_t launches_before_other(std::int32_t rank);

  /// Ends the chain of a full stream where the host could go on to something else.
  void keep_chain_short(std::int32_t rank);

  /// Takes work off a chain that has ended by now. Its last work is left to its event.
  void catch_up(std::int32_t rank, std::uint8_t index);

  void work_ended(std::int32_t rank, std::uint8_t index, std::int32_t generation);

  /// Tells the transfers under way whether this rank computes. Work that follows work at once is
  /// one stretch of computing.
  void tell(std::int32_t rank);

  void resident_changed(std::int32_t rank, std::int32_t by, std::int32_t channels);

  /// Puts a part into its communicator's queue; workers take parts in this order, once ready.
  void queue_part(std::int32_t rank, std::int32_t collective);
  void arrive_at(std::int32_t rank, std::int32_t collective, SimTime time);

  void arrive(std::int32_t rank, std::int32_t collective);

  /// Free workers of this rank take the next parts.
  void take_parts(std::int32_t communicator, std::int32_t rank);

  void note_order(CommunicatorState& state,
                  std::size_t position,
                  std::int32_t collective,
                  std::int32_t rank) const;

  void start_transfer(std::int32_t collective);

  /// The number of transfers under way has changed: those that share links change their rate.
  void links_changed(std::int32_t communicator, std::int32_t started);

  void rerate_transfer(std::int32_t collective);

  void transfer_ended(std::int32_t collective, std::int32_t generation);

  void handle(const Event& event);

  [[nodiscard]] std::string name_of_collective(std::int32_t collective) const;

  /// Takes the clocks of a rank that has come to its end. Throws std::runtime_error: it waits for
  /// something that never comes.
  void finish(std::int32_t rank);

  Engine& engine_;
  const EngineRules& rules_;
  const Program& program_;
  bool interference_;
  bool record_spans_;
  bool foresees_;       ///< Chains may have more than one work; spans are recorded in time order.
  bool foresees_gaps_;  ///< Also where the device pauses, which no transfer gets to know.
  EventQueue events_;
  std::vector<Rank> ranks_;
  std::vector<Transfer> transfers_;
  std::vector<CommunicatorState> communicators_;
  ExecutionTrace trace_;
};

}  // namespace stepsim
