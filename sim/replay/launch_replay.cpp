#include "sim/replay/launch_replay.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "sim/engine/engine.h"

namespace stepsim {

namespace {

Duration scaled(Duration duration, double factor) {
  return factor == 1 ? duration
                     : Duration(std::llround(static_cast<double>(duration.count()) * factor));
}

/// Lowers one rank's rows to instructions. Consecutive CPU times become one instruction.
class RankLowering {
 public:
  RankLowering(const LaunchTrace& recording,
               const ReplayRules& rules,
               double cpu_scale,
               std::int32_t first_collective,
               std::vector<Instruction>& out)
      : recording_(recording),
        rules_(rules),
        cpu_scale_(cpu_scale),
        first_collective_(first_collective),
        out_(out) {}

  /// `event`: noted at the end of the row's work, for the row `awaited` to wait for; -1: none.
  void add(const LaunchRow& row, std::int32_t event, std::int32_t awaited) {
    busy_ += scaled(row.gap, cpu_scale_);
    if (row.type != CallType::Cpu) {
      out_.push_back({.kind = Opcode::Host, .host = std::exchange(busy_, Duration::zero())});
    }
    switch (row.type) {
      case CallType::Cpu:
        busy_ += scaled(row.host, cpu_scale_);
        break;
      case CallType::Gpu:
        add_work(row, event, awaited);
        busy_ += scaled(row.host, cpu_scale_);
        break;
      case CallType::BlockingCopy:
        add_work(row, event, awaited);
        add_sync(row, rules_.copy_call, rules_.copy_latency);
        break;
      case CallType::Sync:
        add_sync(row, rules_.sync_call, rules_.sync_latency);
        break;
      case CallType::Collective:
        add_collective(row);
        busy_ += scaled(row.host, cpu_scale_);
        break;
      case CallType::End:
        break;
    }
  }

  /// Adds the CPU time of the last rows.
  void finish() { out_.push_back({.kind = Opcode::Host, .host = busy_}); }

 private:
  void add_work(const LaunchRow& row, std::int32_t event, std::int32_t awaited) {
    if (awaited >= 0) {
      out_.push_back({.kind = Opcode::EventWait, .stream = row.stream, .index = awaited});
    }
    if (row.waits_collective >= 0) {
      add_wait(row.stream, row.waits_collective, rules_.wait_latency);
    }
    out_.push_back({.kind = Opcode::Work,
                    .stream = row.stream,
                    .latency = rules_.launch_latency,
                    .work = row.held + row.work});
    if (event >= 0) {
      out_.push_back({.kind = Opcode::Record, .stream = row.stream, .index = event});
    }
  }

  void add_sync(const LaunchRow& row, Duration call, Duration latency) {
    out_.push_back({.kind = Opcode::HostSync,
                    .stream = row.stream,
                    .host = scaled(call, cpu_scale_),
                    .latency = latency});
  }

  void add_wait(std::uint8_t stream, std::int32_t collective, Duration latency) {
    out_.push_back({.kind = Opcode::StreamWait,
                    .stream = stream,
                    .index = first_collective_ + collective,
                    .latency = latency});
  }

  /// Makes the communication stream wait for the producer stream, and after the launch for the
  /// collective itself, so that the next collective starts after it.
  void add_collective(const LaunchRow& row) {
    if (const auto producer = recording_.collectives[at(row.collective)].producer) {
      out_.push_back({.kind = Opcode::Record, .stream = *producer, .index = row.collective});
      out_.push_back({.kind = Opcode::EventWait, .stream = row.stream, .index = row.collective});
    }
    out_.push_back({.kind = Opcode::Collective,
                    .stream = row.stream,
                    .index = first_collective_ + row.collective,
                    .latency = rules_.nccl_latency});
    add_wait(row.stream, row.collective, rules_.collective_gap);
  }

  const LaunchTrace& recording_;
  const ReplayRules& rules_;
  double cpu_scale_;
  std::int32_t first_collective_;
  std::vector<Instruction>& out_;
  Duration busy_{0};
};

/// [row] The event at the end of its work where another row waits for it, from `first` on; else -1.
std::vector<std::int32_t> events_of(const std::vector<LaunchRow>& rows, std::int32_t first) {
  std::vector<std::int32_t> events(rows.size(), -1);
  for (const LaunchRow& row : rows) {
    if (row.waits_row >= 0 && events[at(row.waits_row)] < 0) {
      events[at(row.waits_row)] = first++;
    }
  }
  return events;
}

std::int32_t require_rank(const LaunchTrace& recording, std::int32_t rank) {
  const auto ranks = static_cast<std::int32_t>(recording.rows.size());
  if (rank < 0 || rank >= ranks) {
    throw InputError(SourcePlace{recording.path},
                     "there is no rank {}; the recording has ranks 0 to {}",
                     rank,
                     ranks - 1);
  }
  return rank;
}

/// Returns how long a collective's kernel was resident on a rank.
Duration residency(const LaunchTrace& recording, std::int32_t rank, std::int32_t collective) {
  const auto& rows = recording.rows[at(rank)];
  const auto row = std::ranges::find_if(rows, [&](const LaunchRow& r) {
    return r.type == CallType::Collective && r.collective == collective;
  });
  return row == rows.end() ? Duration::zero() : row->work;
}

Duration transfer_time(const LaunchTrace& recording,
                       const LaunchReplayOptions& options,
                       std::int32_t collective) {
  if (options.transfers_from == kShortest) {
    Duration shortest = Duration::max();
    for (std::size_t r = 0; r < recording.rows.size(); ++r) {
      shortest = std::min(shortest, residency(recording, static_cast<std::int32_t>(r), collective));
    }
    return shortest;
  }
  if (options.transfers_from) {
    return residency(recording, require_rank(recording, *options.transfers_from), collective);
  }
  const auto transfer = recording.collectives[at(collective)].transfer;
  if (!transfer) {
    throw InputError(SourcePlace{recording.path},
                     "collective {} has no fitted_D_us in collective_defs.csv; add "
                     "it, or use --transfers-from shortest",
                     collective);
  }
  return *transfer;
}

ReplayedCollective::Figures measured_figures(const std::vector<RecordedKernel>& kernels) {
  std::vector<Duration> starts;
  std::vector<Duration> ends;
  Duration sum{0};
  for (const RecordedKernel& kernel : kernels) {
    starts.push_back(kernel.start);
    ends.push_back(kernel.end);
    sum += kernel.end - kernels.front().end;
  }
  const auto [first, last] = std::minmax_element(starts.begin(), starts.end());
  const auto ranks = static_cast<std::int64_t>(kernels.size());
  return {
      *last - *first, *std::ranges::min_element(ends) - *last, kernels.front().end + sum / ranks};
}

ReplayedCollective collective_of(const LaunchTrace& recording,
                                 std::int32_t number,
                                 const CollectiveTrace& played) {
  const LaunchCollective& what = recording.collectives[at(number)];
  const auto [first, last] = std::minmax_element(played.arrival.begin(), played.arrival.end());
  ReplayedCollective result;
  result.number = number;
  result.op = what.op;
  result.bytes = what.bytes;
  result.replayed = {*last - *first, played.end - *last, played.end.time_since_epoch()};
  if (!recording.kernels.empty()) {
    const auto& kernels = recording.kernels[at(number)];
    result.measured = measured_figures(kernels);
    for (const RecordedKernel& kernel : kernels) {
      const Duration error = played.end.time_since_epoch() - kernel.end;
      if (std::abs(error.count()) > std::abs(result.worst_end_error.count())) {
        result.worst_end_error = error;
      }
    }
  }
  return result;
}

}  // namespace

Program lower(const LaunchTrace& recording,
              const ReplayRules& rules,
              const LaunchReplayOptions& options) {
  Program program;
  program.ranks.resize(recording.rows.size());
  const auto count = static_cast<std::int32_t>(recording.collectives.size());
  program.events = count;
  const auto communicators = options.barrier ? 1 : static_cast<std::int32_t>(recording.rows.size());
  std::vector<Duration> transfers(recording.collectives.size());
  for (const std::int32_t collective : recording.order) {
    transfers[at(collective)] =
        scaled(transfer_time(recording, options, collective), options.transfer_scale);
  }
  for (std::int32_t communicator = 0; communicator < communicators; ++communicator) {
    for (const Duration transfer : transfers) {
      program.collectives.push_back({.communicator = communicator, .transfer = transfer});
    }
  }
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    const std::size_t from =
        options.ranks_from ? at(require_rank(recording, *options.ranks_from)) : r;
    const std::int32_t first = options.barrier ? 0 : static_cast<std::int32_t>(r) * count;
    RankLowering lowering(recording, rules, options.cpu_scale, first, program.ranks[r]);
    const std::vector<std::int32_t> events = events_of(recording.rows[from], count);
    for (std::size_t i = 0; i < events.size(); ++i) {
      const LaunchRow& row = recording.rows[from][i];
      lowering.add(row, events[i], row.waits_row < 0 ? -1 : events[at(row.waits_row)]);
      program.events = std::max(program.events, events[i] + 1);
    }
    lowering.finish();
  }
  return program;
}

LaunchReplay replay(const LaunchTrace& recording,
                    const ReplayRules& rules,
                    const LaunchReplayOptions& options) {
  const Program program = lower(recording, rules, options);
  EngineRules engine_rules;
  if (!options.barrier) {
    engine_rules.communicators.clear();
    for (std::size_t r = 0; r < program.ranks.size(); ++r) {
      engine_rules.communicators.push_back({.ranks = {static_cast<std::int32_t>(r)}});
    }
  }
  const std::vector<RankClock> clocks = mapped(recording.start, [](const Duration start) {
    return RankClock{SimTime(start), SimTime(start)};
  });
  const ExecutionTrace played = Engine(std::move(engine_rules), clocks).play(program);
  LaunchReplay result;
  result.path = recording.path;
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    result.ranks.push_back(
        {played.ranks[r].host_end - clocks[r].host, recording.measured[r], recording.cut[r]});
  }
  if (options.barrier) {
    for (const std::int32_t number : recording.order) {
      result.collectives.push_back(
          collective_of(recording, number, played.collectives[at(number)]));
    }
  }
  return result;
}

}  // namespace stepsim
