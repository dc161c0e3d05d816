#include "sim/engine/engine.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "sim/engine/event_queue.h"

namespace stepsim {

namespace {

enum class Kind : std::int32_t {
  WorkStart,      ///< Stream `index` of `rank` starts its head (interference only).
  WorkEnd,        ///< Stream `index` of `rank` ends its head (interference only).
  Arrival,        ///< Rank `rank`'s part of collective `index` is ready to be taken.
  TransferStart,  ///< Collective `index` moves data.
  TransferEnd     ///< Collective `index` is done on all ranks.
};

std::size_t at(std::int32_t index) {
  return static_cast<std::size_t>(index);
}

Duration scaled(Duration duration, double factor) {
  return factor == 1 ? duration
                     : Duration(std::llround(static_cast<double>(duration.count()) * factor));
}

/// Something under way at a rate that changes: what is left, at full speed, since when.
struct Progress {
  Duration left{0};
  SimTime since;
  double slowdown = 1;
  std::int32_t generation = 0;
  bool running = false;

  void start(SimTime now, Duration work) {
    left = work;
    since = now;
    running = true;
  }

  /// Books what was done until `now` and goes on at the new rate; returns the new end.
  SimTime change(SimTime now, double new_slowdown) {
    left = std::max(Duration::zero(), left - scaled(now - since, 1 / slowdown));
    since = now;
    slowdown = new_slowdown;
    ++generation;
    return now + scaled(left, slowdown);
  }
};

}  // namespace

/// One program under way.
class Playing {
 public:
  Playing(Engine& engine, const Program& program)
      : engine_(engine),
        rules_(engine.rules_),
        program_(program),
        interference_(rules_.interference.active()),
        events_(first_time(engine.clocks_)),
        ranks_(program.ranks.size()),
        transfers_(program.collectives.size()),
        communicators_(rules_.communicators.size()) {
    check();
    played_.ranks.resize(ranks_.size());
    played_.collectives.resize(program.collectives.size());
    for (std::size_t c = 0; c < communicators_.size(); ++c) {
      prepare(communicators_[c], rules_.communicators[c]);
    }
    for (auto& collective : played_.collectives) {
      collective.arrival.assign(ranks_.size(), SimTime::max());
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].host = engine.clocks_[r].host;
      ranks_[r].streams.front().free = engine.clocks_[r].device;
      for (std::size_t s = 1; s < kStreams; ++s) {
        ranks_[r].streams[s].free = SimTime::min();
      }
      ranks_[r].events.assign(at(program.events), SimTime::max());
      played_.ranks[r].marks.resize(at(program.marks));
    }
  }

  Played play() {
    for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(ranks_.size()); ++rank) {
      settle(rank);
    }
    while (!events_.empty()) {
      handle(events_.pop());
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      finish(static_cast<std::int32_t>(r));
    }
    engine_.events_handled_ += events_.events_handled();
    return std::move(played_);
  }

 private:
  /// Enqueued on a stream: the instruction, and when its call has taken effect.
  struct Item {
    const Instruction* instruction;
    SimTime not_before;
  };

  struct Stream {
    std::vector<Item> items;
    std::size_t head = 0;
    SimTime free;  ///< End of all that has left the stream.
    Progress progress;
    bool start_pending = false;  ///< A WorkStart is on its way.
    std::int32_t awaited = -1;   ///< Collective that the stream has asked to be woken by.

    [[nodiscard]] bool empty() const { return head == items.size(); }
  };

  struct Rank {
    SimTime host;
    std::size_t next = 0;  ///< Next instruction.
    std::array<Stream, kStreams> streams;
    std::vector<SimTime> events;  ///< [event]; SimTime::max() before it is reached.
    std::int32_t resident = 0;    ///< Collectives that hold a place on the device.
    std::int32_t channels = 0;    ///< Multiprocessors they hold.
    std::int32_t computing = 0;   ///< Streams with affected work under way.
    bool told = false;            ///< What the transfers know: whether it computes.
    std::int32_t awaited = -1;    ///< Collective that the host has asked to be woken by.
  };

  struct Transfer {
    std::int32_t held = 0;  ///< Ranks whose worker holds it.
    bool active = false;
    bool done = false;
    std::int32_t computing = 0;  ///< Ranks that compute beside it.
    Progress progress;
    std::vector<std::int32_t> waiters;  ///< Ranks with a stream or host that waits for the end.
  };

  struct CommunicatorState {
    std::vector<std::int32_t> members;
    std::vector<bool> is_member;
    std::vector<std::vector<std::int32_t>> queue;  ///< [rank] collectives in arrival order.
    std::vector<std::size_t> taken;                ///< [rank] parts of the queue taken by workers.
    std::vector<std::int32_t> busy;                ///< [rank] workers that hold a part.
    std::vector<std::int32_t> order;               ///< Collectives as the first rank took them.
    std::vector<std::int32_t> active;              ///< Transfers under way.
  };

  static SimTime first_time(const std::vector<RankClock>& clocks) {
    SimTime first = clocks.front().device;
    for (const RankClock& clock : clocks) {
      first = std::min({first, clock.device, clock.host});
    }
    return first;
  }

  void prepare(CommunicatorState& state, const Communicator& rules) const {
    state.is_member.assign(ranks_.size(), rules.ranks.empty());
    state.members = rules.ranks;
    for (const std::int32_t rank : rules.ranks) {
      state.is_member[at(rank)] = true;
    }
    if (rules.ranks.empty()) {
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        state.members.push_back(static_cast<std::int32_t>(r));
      }
    }
    state.queue.resize(ranks_.size());
    state.taken.assign(ranks_.size(), 0);
    state.busy.assign(ranks_.size(), 0);
  }

  [[noreturn]] static void refuse(const std::string& what) {
    throw std::invalid_argument("program: " + what);
  }

  void check() const {
    if (program_.ranks.size() != engine_.clocks_.size()) {
      refuse(std::to_string(program_.ranks.size()) + " ranks for an engine of " +
             std::to_string(engine_.clocks_.size()));
    }
    for (const Communicator& communicator : rules_.communicators) {
      for (const std::int32_t rank : communicator.ranks) {
        if (rank < 0 || at(rank) >= ranks_.size()) {
          refuse("a communicator has rank " + std::to_string(rank) + " of " +
                 std::to_string(ranks_.size()));
        }
      }
    }
    for (const Collective& collective : program_.collectives) {
      if (collective.communicator < 0 || at(collective.communicator) >= communicators_.size()) {
        refuse("no communicator " + std::to_string(collective.communicator));
      }
      if (collective.transfer < Duration::zero()) {
        refuse("a negative transfer");
      }
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (const Instruction& instruction : program_.ranks[r]) {
        check(instruction, r);
      }
    }
  }

  void check(const Instruction& instruction, std::size_t rank) const {
    // A chain of ops may be launched while it runs: its latency is less than zero then, but it
    // never ends before the call.
    const Duration latency =
        instruction.latency + (instruction.kind == Do::Work ? instruction.work : Duration::zero());
    const std::int64_t all = instruction.host.count() | latency.count() | instruction.work.count();
    if (all < 0) {
      refuse("rank " + std::to_string(rank) + ": a negative duration");
    }
    const bool no_stream = instruction.stream == kNoStream && instruction.kind == Do::Collective;
    if (instruction.stream >= kStreams && !no_stream) {
      refuse("rank " + std::to_string(rank) + ": no stream " + std::to_string(instruction.stream));
    }
    std::int32_t bound = 0;
    switch (instruction.kind) {
      case Do::Host:
      case Do::HostUntil:
      case Do::Work:
      case Do::HostSync:
        return;
      case Do::Collective:
      case Do::StreamWait:
      case Do::HostWait:
        bound = static_cast<std::int32_t>(program_.collectives.size());
        break;
      case Do::Record:
      case Do::EventWait:
        bound = program_.events;
        break;
      case Do::Mark:
        bound = program_.marks;
        break;
    }
    if (instruction.index < 0 || instruction.index >= bound) {
      refuse("rank " + std::to_string(rank) + ": no collective, event or mark " +
             std::to_string(instruction.index));
    }
    if (instruction.kind == Do::Collective) {
      const auto& member =
          communicators_[at(program_.collectives[at(instruction.index)].communicator)].is_member;
      if (!member.empty() && !member[rank]) {
        refuse("rank " + std::to_string(rank) + " is not in the communicator of collective " +
               std::to_string(instruction.index));
      }
    }
  }

  // -- One rank: host and streams ----------------------------------------------------------------

  /// Lets a rank go on as far as it can at this time.
  void settle(std::int32_t rank) {
    bool moved = true;
    while (moved) {
      moved = run_host(rank);
      for (std::uint8_t stream = 0; stream < kStreams; ++stream) {
        if (!ranks_[at(rank)].streams[stream].empty()) {
          moved = advance(rank, stream) || moved;
        }
      }
    }
    tell(rank);
  }

  /// True when the host executed something.
  bool run_host(std::int32_t rank) {
    Rank& state = ranks_[at(rank)];
    const std::vector<Instruction>& instructions = program_.ranks[at(rank)];
    const std::size_t before = state.next;
    while (state.next < instructions.size()) {
      const Instruction& in = instructions[state.next];
      switch (in.kind) {
        case Do::Host:
          state.host += in.host;
          break;
        case Do::HostUntil:
          state.host = std::max(state.host + in.host, in.until);
          played_.ranks[at(rank)].fetches.push_back(state.host);
          break;
        case Do::HostWait:
          if (!is_done(rank, in.index, state.awaited)) {
            return state.next != before;
          }
          state.host =
              std::max(state.host + in.host, played_.collectives[at(in.index)].end + in.latency);
          break;
        case Do::HostSync: {
          const Stream& stream = state.streams[in.stream];
          if (!stream.empty()) {
            return state.next != before;
          }
          state.host = std::max(state.host + in.host, stream.free + in.latency);
          break;
        }
        case Do::Work:
          if (!has_room(rank, in.stream)) {
            return state.next != before;
          }
          enqueue(rank, in);
          ++engine_.queues_[at(rank)][in.stream].launched;
          break;
        case Do::Collective:
          if (in.stream == kNoStream) {
            arrive_at(rank, in.index, state.host + in.latency);
            state.host += in.host;
          } else {
            enqueue(rank, in);
          }
          break;
        case Do::StreamWait:
        case Do::Record:
        case Do::EventWait:
        case Do::Mark:
          enqueue(rank, in);
          break;
      }
      ++state.next;
    }
    return state.next != before;
  }

  /// Whether a collective has ended; if not, the rank is woken when it does.
  bool is_done(std::int32_t rank, std::int32_t collective, std::int32_t& awaited) {
    Transfer& transfer = transfers_[at(collective)];
    if (!transfer.done && awaited != collective) {
      awaited = collective;
      transfer.waiters.push_back(rank);
    }
    return transfer.done;
  }

  void enqueue(std::int32_t rank, const Instruction& in) {
    Rank& state = ranks_[at(rank)];
    Stream& stream = state.streams[in.stream];
    stream.items.push_back({&in, state.host + in.latency});
    state.host += in.host;
  }

  /// Whether the host may launch on this stream now: it waits for the end of the launch that came
  /// queue_depth before.
  bool has_room(std::int32_t rank, std::uint8_t stream) {
    const std::int64_t depth = rules_.queue_depth;
    Engine::LaunchQueue& queue = engine_.queues_[at(rank)][stream];
    if (depth == 0 || queue.launched < depth) {
      return true;
    }
    if (queue.ended <= queue.launched - depth) {
      return false;
    }
    const SimTime end = queue.ends[static_cast<std::size_t>(queue.launched % depth)];
    ranks_[at(rank)].host = std::max(ranks_[at(rank)].host, end);
    return true;
  }

  /// Takes items off a stream until one has to wait. True when something left the stream.
  bool advance(std::int32_t rank, std::uint8_t index) {
    Stream& stream = ranks_[at(rank)].streams[index];
    const std::size_t before = stream.head;
    while (!stream.empty() && take_head(rank, index, stream)) {
      ++stream.head;
    }
    const bool moved = stream.head != before;
    if (stream.empty()) {
      stream.items.clear();
      stream.head = 0;
    }
    return moved;
  }

  /// True when the head of the stream has left it.
  bool take_head(std::int32_t rank, std::uint8_t index, Stream& stream) {
    const Item& item = stream.items[stream.head];
    const Instruction& in = *item.instruction;
    switch (in.kind) {
      case Do::Work:
        if (interference_ && in.bound != Bound::Unaffected && in.work > Duration::zero()) {
          start_work(rank, index, stream, item);
          return false;
        }
        end_work(rank,
                 index,
                 in,
                 std::max(stream.free, item.not_before),
                 std::max(stream.free, item.not_before) + in.work);
        return true;
      case Do::Collective:
        arrive_at(rank, in.index, std::max(stream.free, item.not_before));
        return true;
      case Do::StreamWait: {
        if (!is_done(rank, in.index, stream.awaited)) {
          return false;
        }
        const SimTime free =
            std::max(stream.free, played_.collectives[at(in.index)].end + in.latency);
        pass(rank, index, Part::Wait, free);
        return true;
      }
      case Do::Record:
        ranks_[at(rank)].events[at(in.index)] = stream.free;
        return true;
      case Do::EventWait: {
        const SimTime event = ranks_[at(rank)].events[at(in.index)];
        if (event == SimTime::max()) {
          return false;
        }
        pass(rank, index, in.part, std::max(stream.free, event));
        return true;
      }
      default:
        played_.ranks[at(rank)].marks[at(in.index)] = stream.free;
        return true;
    }
  }

  /// Moves the end of a stream forward, counted as `part` on the compute stream.
  void pass(std::int32_t rank, std::uint8_t index, Part part, SimTime free) {
    Stream& stream = ranks_[at(rank)].streams[index];
    if (index == kComputeStream) {
      played_.ranks[at(rank)].parts[static_cast<std::size_t>(part)] += free - stream.free;
    }
    stream.free = free;
  }

  void end_work(
      std::int32_t rank, std::uint8_t index, const Instruction& in, SimTime begin, SimTime end) {
    pass(rank, index, in.part, end);
    if (rules_.queue_depth > 0) {
      Engine::LaunchQueue& queue = engine_.queues_[at(rank)][index];
      queue.ends.resize(static_cast<std::size_t>(rules_.queue_depth));
      queue.ends[static_cast<std::size_t>(queue.ended++ % rules_.queue_depth)] = end;
    }
    if (rules_.record_spans && end > begin) {
      played_.spans.push_back({rank, in.label, index, in.part, begin, end});
    }
  }

  // -- Work under interference -------------------------------------------------------------------

  void start_work(std::int32_t rank, std::uint8_t index, Stream& stream, const Item& item) {
    if (stream.progress.running || stream.start_pending) {
      return;
    }
    const SimTime start = std::max(stream.free, item.not_before);
    if (start > events_.now()) {
      stream.start_pending = true;
      events_.push(start, static_cast<std::int32_t>(Kind::WorkStart), rank, index);
    } else {
      work_started(rank, index);
    }
  }

  void work_started(std::int32_t rank, std::uint8_t index) {
    Rank& state = ranks_[at(rank)];
    Stream& stream = state.streams[index];
    stream.start_pending = false;
    stream.progress.start(events_.now(), stream.items[stream.head].instruction->work);
    ++state.computing;
    reschedule_work(rank, index, slowdown_of_work(rank, stream));
  }

  [[nodiscard]] double slowdown_of_work(std::int32_t rank, const Stream& stream) const {
    const Rank& state = ranks_[at(rank)];
    if (state.resident == 0) {
      return 1;
    }
    const Instruction& in = *stream.items[stream.head].instruction;
    return compute_slowdown(rules_.interference, in.bound, in.blocks, state.channels);
  }

  void reschedule_work(std::int32_t rank, std::uint8_t index, double slowdown) {
    Progress& progress = ranks_[at(rank)].streams[index].progress;
    const SimTime end = progress.change(events_.now(), slowdown);
    events_.push(end, static_cast<std::int32_t>(Kind::WorkEnd), rank, index, progress.generation);
  }

  void work_ended(std::int32_t rank, std::uint8_t index, std::int32_t generation) {
    Rank& state = ranks_[at(rank)];
    Stream& stream = state.streams[index];
    if (!stream.progress.running || stream.progress.generation != generation) {
      return;
    }
    stream.progress.running = false;
    --state.computing;
    const Item item = stream.items[stream.head];
    ++stream.head;
    end_work(rank, index, *item.instruction, std::max(stream.free, item.not_before), events_.now());
    settle(rank);
  }

  /// Tells the transfers under way whether this rank computes. Work that follows work at once is
  /// one stretch of computing.
  void tell(std::int32_t rank) {
    Rank& state = ranks_[at(rank)];
    const bool computes = state.computing > 0;
    if (state.told == computes || rules_.interference.transfer <= 0) {
      return;
    }
    state.told = computes;
    for (CommunicatorState& communicator : communicators_) {
      if (!communicator.is_member[at(rank)]) {
        continue;
      }
      for (const std::int32_t collective : communicator.active) {
        Transfer& transfer = transfers_[at(collective)];
        transfer.computing += computes ? 1 : -1;
        if (transfer.computing == (computes ? 1 : 0)) {
          rerate_transfer(collective);
        }
      }
    }
  }

  void resident_changed(std::int32_t rank, std::int32_t by, std::int32_t channels) {
    if (!interference_) {
      return;
    }
    Rank& state = ranks_[at(rank)];
    state.resident += by;
    state.channels += by * channels;
    for (std::uint8_t index = 0; index < kStreams; ++index) {
      const Stream& stream = state.streams[index];
      if (stream.progress.running) {
        const double slowdown = slowdown_of_work(rank, stream);
        if (slowdown != stream.progress.slowdown) {
          reschedule_work(rank, index, slowdown);
        }
      }
    }
  }

  // -- Collectives -------------------------------------------------------------------------------

  void arrive_at(std::int32_t rank, std::int32_t collective, SimTime time) {
    if (time > events_.now()) {
      events_.push(time, static_cast<std::int32_t>(Kind::Arrival), rank, collective);
    } else {
      arrive(rank, collective);
    }
  }

  void arrive(std::int32_t rank, std::int32_t collective) {
    SimTime& arrival = played_.collectives[at(collective)].arrival[at(rank)];
    if (arrival != SimTime::max()) {
      refuse("rank " + std::to_string(rank) + " launches collective " + std::to_string(collective) +
             " twice");
    }
    arrival = events_.now();
    const std::int32_t communicator = program_.collectives[at(collective)].communicator;
    communicators_[at(communicator)].queue[at(rank)].push_back(collective);
    take_parts(communicator, rank);
  }

  /// Free workers of this rank take the next parts.
  void take_parts(std::int32_t communicator, std::int32_t rank) {
    CommunicatorState& state = communicators_[at(communicator)];
    const Communicator& rules = rules_.communicators[at(communicator)];
    while (state.busy[at(rank)] < rules.workers &&
           state.taken[at(rank)] < state.queue[at(rank)].size()) {
      const std::size_t position = state.taken[at(rank)]++;
      const std::int32_t collective = state.queue[at(rank)][position];
      ++state.busy[at(rank)];
      note_order(state, position, collective, rank);
      if (rules_.interference.while_waiting) {
        resident_changed(rank, 1, program_.collectives[at(collective)].channels);
      }
      Transfer& transfer = transfers_[at(collective)];
      if (++transfer.held == static_cast<std::int32_t>(state.members.size())) {
        if (rules.start_delay > Duration::zero()) {
          events_.push(events_.now() + rules.start_delay,
                       static_cast<std::int32_t>(Kind::TransferStart),
                       0,
                       collective);
        } else {
          start_transfer(collective);
        }
      }
    }
  }

  void note_order(CommunicatorState& state,
                  std::size_t position,
                  std::int32_t collective,
                  std::int32_t rank) const {
    if (position == state.order.size()) {
      state.order.push_back(collective);
    } else if (state.order[position] != collective) {
      refuse("rank " + std::to_string(rank) + " launches collective " +
             name_of_collective(collective) + " where another rank launches " +
             name_of_collective(state.order[position]) + "; they would wait for ever");
    }
  }

  void start_transfer(std::int32_t collective) {
    const Collective& what = program_.collectives[at(collective)];
    CommunicatorState& state = communicators_[at(what.communicator)];
    played_.collectives[at(collective)].start = events_.now();
    if (!rules_.interference.while_waiting) {
      for (const std::int32_t rank : state.members) {
        resident_changed(rank, 1, what.channels);
      }
    }
    Transfer& transfer = transfers_[at(collective)];
    transfer.active = true;
    for (const std::int32_t rank : state.members) {
      transfer.computing += ranks_[at(rank)].told ? 1 : 0;
    }
    transfer.progress.start(events_.now(), what.transfer);
    state.active.push_back(collective);
    links_changed(what.communicator, collective);
  }

  /// The number of transfers under way has changed: those that share links change their rate.
  void links_changed(std::int32_t communicator, std::int32_t started) {
    if (rules_.communicators[at(communicator)].shares_links) {
      for (const std::int32_t collective : communicators_[at(communicator)].active) {
        rerate_transfer(collective);
      }
    } else if (started >= 0) {
      rerate_transfer(started);
    }
  }

  void rerate_transfer(std::int32_t collective) {
    const std::int32_t communicator = program_.collectives[at(collective)].communicator;
    Transfer& transfer = transfers_[at(collective)];
    double slowdown = transfer.computing > 0 ? 1 + rules_.interference.transfer : 1;
    if (rules_.communicators[at(communicator)].shares_links) {
      slowdown *= static_cast<double>(communicators_[at(communicator)].active.size());
    }
    const SimTime end = transfer.progress.change(events_.now(), slowdown);
    events_.push(end,
                 static_cast<std::int32_t>(Kind::TransferEnd),
                 0,
                 collective,
                 transfer.progress.generation);
  }

  void transfer_ended(std::int32_t collective, std::int32_t generation) {
    Transfer& transfer = transfers_[at(collective)];
    if (!transfer.active || transfer.progress.generation != generation) {
      return;
    }
    transfer.active = false;
    transfer.done = true;
    played_.collectives[at(collective)].end = events_.now();
    const Collective& what = program_.collectives[at(collective)];
    CommunicatorState& state = communicators_[at(what.communicator)];
    state.active.erase(std::find(state.active.begin(), state.active.end(), collective));
    for (const std::int32_t rank : state.members) {
      --state.busy[at(rank)];
      resident_changed(rank, -1, what.channels);
    }
    links_changed(what.communicator, -1);
    for (const std::int32_t rank : state.members) {
      take_parts(what.communicator, rank);
    }
    const std::vector<std::int32_t> waiters = std::move(transfer.waiters);
    for (const std::int32_t rank : waiters) {
      settle(rank);
    }
  }

  // -- Events ------------------------------------------------------------------------------------

  void handle(const Event& event) {
    switch (static_cast<Kind>(event.kind)) {
      case Kind::WorkStart:
        work_started(event.rank, static_cast<std::uint8_t>(event.index));
        tell(event.rank);
        break;
      case Kind::WorkEnd:
        work_ended(event.rank, static_cast<std::uint8_t>(event.index), event.generation);
        break;
      case Kind::Arrival:
        arrive(event.rank, event.index);
        break;
      case Kind::TransferStart:
        start_transfer(event.index);
        break;
      case Kind::TransferEnd:
        transfer_ended(event.index, event.generation);
        break;
    }
  }

  [[nodiscard]] std::string name_of_collective(std::int32_t collective) const {
    const std::int32_t label = program_.collectives[at(collective)].label;
    std::string text = std::to_string(collective);
    if (label >= 0 && at(label) < program_.labels.size()) {
      text += " (" + program_.labels[at(label)] + ")";
    }
    return text;
  }

  /// The rank must have come to its end; else it waits for something that never comes.
  void finish(std::int32_t rank) {
    const Rank& state = ranks_[at(rank)];
    const Instruction* stuck = nullptr;
    if (state.next < program_.ranks[at(rank)].size()) {
      stuck = &program_.ranks[at(rank)][state.next];
    }
    for (const Stream& stream : state.streams) {
      if (!stream.empty()) {
        stuck = stream.items[stream.head].instruction;
      }
    }
    if (stuck != nullptr) {
      const bool collective = stuck->kind == Do::StreamWait || stuck->kind == Do::HostWait;
      throw std::runtime_error(
          "program: rank " + std::to_string(rank) + " waits for ever" +
          (collective ? " for collective " + name_of_collective(stuck->index) : std::string()) +
          "; not every rank launches it");
    }
    PlayedRank& played = played_.ranks[at(rank)];
    played.host_end = state.host;
    played.device_end = state.streams[kComputeStream].free;
    engine_.clocks_[at(rank)] = {played.host_end, played.device_end};
  }

  Engine& engine_;
  const EngineRules& rules_;
  const Program& program_;
  bool interference_;
  EventQueue events_;
  std::vector<Rank> ranks_;
  std::vector<Transfer> transfers_;
  std::vector<CommunicatorState> communicators_;
  Played played_;
};

Engine::Engine(EngineRules rules, std::span<const RankClock> clocks)
    : rules_(std::move(rules)), clocks_(clocks.begin(), clocks.end()) {
  if (clocks_.empty()) {
    throw std::invalid_argument("engine: no ranks");
  }
  if (rules_.queue_depth < 0) {
    throw std::invalid_argument("engine: a negative queue depth");
  }
  queues_.resize(clocks_.size());
}

Played Engine::play(const Program& program) {
  return Playing(*this, program).play();
}

}  // namespace stepsim
