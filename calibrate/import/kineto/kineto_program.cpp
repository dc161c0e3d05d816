#include "calibrate/import/kineto/kineto_program.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "calibrate/import/kineto/kineto_rows.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/network/collective_cost.h"
#include "costmodel/network/collective_pricer.h"
#include "costmodel/records/profile_cost_model.h"

namespace stepsim {
namespace {

/// Streams that a replay can tell apart.
constexpr std::size_t kMaxStreams = 8;
/// Clocks of one run, aligned, are not further apart.
constexpr std::int64_t kClockError = 100'000;
/// A GPU that stands still for this share of a step, for no known reason, gets a note.
constexpr double kStoodStill = 0.02;

std::optional<int> index_of(const KinetoTrace& trace, std::int64_t number) {
  const auto found = std::ranges::find_if(
      trace.steps, [&](const KinetoStep& step) { return step.number == number; });
  return found == trace.steps.end() ? std::nullopt
                                    : std::optional(static_cast<int>(found - trace.steps.begin()));
}

/// Numbers of the steps that all traces hold, ascending.
std::vector<std::int64_t> common_steps(std::span<const KinetoTrace> traces) {
  std::vector<std::int64_t> numbers;
  for (const KinetoStep& step : traces.front().steps) {
    if (std::ranges::all_of(traces, [&](const KinetoTrace& trace) {
          return index_of(trace, step.number).has_value();
        })) {
      numbers.push_back(step.number);
    }
  }
  std::ranges::sort(numbers);
  return numbers;
}

[[noreturn]] void fail(std::span<const KinetoTrace> traces, const std::string& message) {
  throw InputError(SourcePlace{traces.front().file}, message);
}

/// The streams of a rank: those of collectives first, then by the number of rows.
struct StreamParts {
  std::vector<std::int64_t> streams;
  std::size_t of_collectives = 0;
};

StreamParts parts_of(const KinetoProgramRank& rank) {
  std::map<std::int64_t, std::pair<bool, int>> uses;
  for (const KinetoRow& row : rank.rows) {
    if (row.stream >= 0) {
      auto& [collectives, count] = uses[row.stream];
      collectives = collectives || row.type == KinetoRowType::Collective;
      ++count;
    }
  }
  StreamParts parts;
  for (const auto& [stream, use] : uses) {
    parts.streams.push_back(stream);
    parts.of_collectives += use.first ? 1 : 0;
  }
  std::ranges::stable_sort(parts.streams, [&](auto a, auto b) { return uses[a] > uses[b]; });
  return parts;
}

/// Ranks may number their streams differently: the n-th of one is the n-th of another then.
std::map<std::int64_t, std::int64_t> renamed(const StreamParts& own, const StreamParts& names) {
  const auto place = [&names](std::int64_t stream) {
    const auto found = std::ranges::find(names.streams, stream);
    return static_cast<std::size_t>(found - names.streams.begin());
  };
  const bool same = std::ranges::all_of(
      own.streams, [&](std::int64_t stream) { return place(stream) < names.streams.size(); });
  std::map<std::int64_t, std::int64_t> result;
  for (std::size_t i = 0; i < own.streams.size(); ++i) {
    const std::size_t part = same ? place(own.streams[i]) : i;
    const std::size_t busiest = std::min(names.of_collectives, kMaxStreams - 1);
    result[own.streams[i]] = names.streams[part < kMaxStreams ? part : busiest];
  }
  return result;
}

/// Makes the program part by part.
class ProgramMaker {
 public:
  ProgramMaker(std::span<const KinetoTrace> traces, const KinetoMatches& matches)
      : traces_(traces), matches_(matches) {}

  KinetoProgram make(std::optional<std::int64_t> wanted) {
    check_gpu();
    choose_step(wanted);
    find_clock();
    take_collectives();
    for (std::size_t t = 0; t < traces_.size(); ++t) {
      add_rank(t);
    }
    name_streams();
    return std::move(program_);
  }

 private:
  void check_gpu() const {
    for (const KinetoTrace& trace : traces_) {
      if (trace.ops.empty()) {
        throw InputError(SourcePlace{trace.file},
                         "holds no GPU operations with their launches: no program can be made of "
                         "it; record with ProfilerActivity.CUDA");
      }
    }
  }

  [[noreturn]] void fail_without_step() const {
    for (const KinetoTrace& trace : traces_) {
      if (trace.steps.empty()) {
        throw InputError(
            SourcePlace{trace.file},
            "no ProfilerStep, and a program is one step: give torch.profiler.profile a "
            "schedule, and call profiler.step() once a step");
      }
    }
    fail(traces_,
         "no step that all traces hold: record the same steps on all ranks, by one schedule");
  }

  void choose_step(std::optional<std::int64_t> wanted) {
    const std::vector<std::int64_t> steps = common_steps(traces_);
    if (steps.empty()) {
      fail_without_step();
    }
    if (wanted && std::ranges::find(steps, *wanted) == steps.end()) {
      fail(traces_,
           fmt::format("no step {} in all traces; there are {}", *wanted, fmt::join(steps, ", ")));
    }
    std::map<std::int64_t, std::int64_t> missing;
    for (const KinetoTrace& trace : traces_) {
      const auto counts = launches_without_kernel(trace);
      for (std::size_t i = 0; i < counts.size(); ++i) {
        missing[trace.steps[i].number] += counts[i];
      }
    }
    const auto whole =
        std::find_if(steps.rbegin(), steps.rend(), [&](auto step) { return missing[step] == 0; });
    program_.step = wanted ? *wanted : whole != steps.rend() ? *whole : steps.back();
    if (missing[program_.step] > 0) {
      program_.notes.push_back(fmt::format(
          "{} kernels that step {} launched are not in the traces: the step is cut, and no mean "
          "of the replay counts its ranks",
          missing[program_.step],
          program_.step));
    }
  }

  [[nodiscard]] const KinetoSpan& span_of(std::size_t trace) const {
    return traces_[trace].steps[static_cast<std::size_t>(index(trace))].span;
  }
  [[nodiscard]] int index(std::size_t trace) const {
    return *index_of(traces_[trace], program_.step);
  }

  /// Whether the trace lacks kernels that the step launched.
  [[nodiscard]] bool is_cut(std::size_t trace) const {
    return launches_without_kernel(traces_[trace])[static_cast<std::size_t>(index(trace))] > 0;
  }

  void find_clock() {
    zero_ns_ = span_of(0).start_ns - matches_.shift_ns[0];
    for (std::size_t t = 1; t < traces_.size(); ++t) {
      zero_ns_ = std::min(zero_ns_, span_of(t).start_ns - matches_.shift_ns[t]);
    }
  }
  /// On the clock of this trace.
  [[nodiscard]] std::int64_t zero_of(std::size_t trace) const {
    return zero_ns_ + matches_.shift_ns[trace];
  }

  /// The matches of the step that all traces hold, in the first one's order of launches.
  void take_collectives() {
    std::vector<const KinetoMatch*> taken;
    for (const KinetoMatch& match : matches_.matches) {
      if (match.step == program_.step && match.ranks.size() == traces_.size() && on_gpu(match)) {
        taken.push_back(&match);
      }
    }
    std::ranges::sort(taken, [](const KinetoMatch* a, const KinetoMatch* b) {
      return a->places.front() < b->places.front();
    });
    numbers_.resize(traces_.size());
    for (std::size_t number = 0; number < taken.size(); ++number) {
      for (std::size_t t = 0; t < traces_.size(); ++t) {
        if (number > 0 && taken[number]->places[t] < taken[number - 1]->places[t]) {
          fail(traces_,
               fmt::format("ranks {} and {} launch the collectives of step {} in different orders: "
                           "no program can hold that",
                           matches_.ranks[0],
                           matches_.ranks[t],
                           program_.step));
        }
        numbers_[t][taken[number]->places[t]] = static_cast<int>(number);
      }
      add_collective(*taken[number]);
    }
    note_lonely_ones();
  }

  [[nodiscard]] bool on_gpu(const KinetoMatch& match) const {
    for (std::size_t t = 0; t < traces_.size(); ++t) {
      if (traces_[t].collectives[match.places[t]].stream < 0) {
        return false;
      }
    }
    return true;
  }

  void add_collective(const KinetoMatch& match) {
    if (match.ranks.size() > 1 && match.transfer_ns < -kClockError) {
      fail(traces_,
           fmt::format("{} number {} of step {} ends on one rank {:.3f} ms before it starts on "
                       "another: these traces are not of one run, or not of the same step of it",
                       match.kind,
                       match.index,
                       program_.step,
                       static_cast<double>(-match.transfer_ns) * 1e-6));
    }
    KinetoProgramCollective one;
    one.kind = match.kind;
    one.bytes = match.bytes;
    one.transfer_ns = std::max<std::int64_t>(match.transfer_ns, 0);
    one.upper_bound = !match.complete;
    one.group_size = match.group_size;
    for (std::size_t t = 0; t < traces_.size(); ++t) {
      KinetoSpan span = traces_[t].collectives[match.places[t]].span;
      span.start_ns -= zero_of(t);
      one.recorded.push_back(span);
    }
    program_.collectives.push_back(std::move(one));
  }

  void note_lonely_ones() {
    std::int64_t alone = 0;
    for (std::size_t t = 0; t < traces_.size(); ++t) {
      const auto& collectives = traces_[t].collectives;
      for (std::size_t i = 0; i < collectives.size(); ++i) {
        const bool here = collectives[i].step == index(t) && collectives[i].stream >= 0;
        alone += here && numbers_[t].count(i) == 0 ? 1 : 0;
      }
    }
    if (alone > 0) {
      program_.notes.push_back(
          fmt::format("{} collectives are not in the traces of all ranks: GPU work of their "
                      "recorded length, with the wait, stands for them",
                      alone));
    }
  }

  void add_rank(std::size_t trace) {
    KinetoRankRows made =
        make_kineto_rows(traces_[trace], index(trace), numbers_[trace], zero_of(trace));
    for (std::size_t i = 0; trace == 0 && i < program_.collectives.size(); ++i) {
      program_.collectives[i].producer_stream = made.producers[static_cast<int>(i)];
    }
    const auto note = [&](std::int64_t count, const char* what) {
      if (count > 0) {
        program_.notes.push_back(fmt::format("rank {}: {} {}", matches_.ranks[trace], count, what));
      }
    };
    note(made.dropped,
         "calls beside a blocking call of another thread put no work on the GPU: left out");
    note(made.put_after,
         "calls beside a blocking call of another thread stand after it: a program has one thread");
    note(made.left_streams, "streams had work of the step before to do: it stands first");
    note(made.waits_between, "operations wait for work on another stream");
    if (static_cast<double>(made.unexplained_ns) >
        kStoodStill * static_cast<double>(span_of(trace).duration_ns)) {
      program_.notes.push_back(fmt::format(
          "rank {}: its GPU stood still for {:.3f} ms with work launched, for no reason that the "
          "trace shows; the program holds that work for as long, whatever else changes",
          matches_.ranks[trace],
          static_cast<double>(made.unexplained_ns) * 1e-6));
    }
    if (index(trace) == 0 && traces_[trace].without_launch > 0) {
      program_.notes.push_back(fmt::format(
          "rank {}: step {} is the first one recorded, and {} GPU operations were launched before: "
          "as far as they reach into the step they stand first, as one{}",
          matches_.ranks[trace],
          program_.step,
          traces_[trace].without_launch,
          traces_[trace].steps.size() > 1 ? "; take a later --step" : ""));
    }
    const bool waits = std::ranges::any_of(made.rows, [](const KinetoRow& row) {
      return row.type == KinetoRowType::Sync || row.type == KinetoRowType::BlockingCopy;
    });
    if (!waits) {
      program_.notes.push_back(
          fmt::format("rank {}: its host never waits for the GPU, so its replayed step is the sum "
                      "of the recorded host times and proves nothing",
                      matches_.ranks[trace]));
    }
    const KinetoSpan& span = span_of(trace);
    program_.ranks.push_back({matches_.ranks[trace],
                              span.start_ns - zero_of(trace),
                              span.duration_ns,
                              is_cut(trace),
                              std::move(made.rows)});
  }

  /// One name for the streams that play the same part on all ranks.
  void name_streams() {
    std::vector<StreamParts> parts =
        mapped(program_.ranks, [&](const KinetoProgramRank& rank) { return parts_of(rank); });
    const StreamParts& names =
        *std::ranges::max_element(parts, [](const StreamParts& a, const StreamParts& b) {
          return a.streams.size() < b.streams.size();
        });
    if (names.streams.size() > kMaxStreams) {
      program_.notes.push_back(
          fmt::format("{} streams: a replay has {}; the work of those used least stands on the one "
                      "used most",
                      names.streams.size(),
                      kMaxStreams));
    }
    for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
      const auto name = renamed(parts[r], names);
      for (KinetoRow& row : program_.ranks[r].rows) {
        row.stream = row.stream < 0 ? -1 : name.at(row.stream);
      }
      for (KinetoProgramCollective& one : program_.collectives) {
        const bool here = r == 0 && name.count(one.producer_stream) > 0;
        one.producer_stream = here ? name.at(one.producer_stream) : one.producer_stream;
      }
    }
  }

  std::span<const KinetoTrace> traces_;
  const KinetoMatches& matches_;
  KinetoProgram program_;
  std::int64_t zero_ns_ = 0;
  std::vector<std::map<std::size_t, int>> numbers_;  ///< [trace]: place to number.
};

}  // namespace

KinetoProgram make_kineto_program(std::span<const KinetoTrace> traces,
                                  const KinetoMatches& matches,
                                  std::optional<std::int64_t> step) {
  return ProgramMaker(traces, matches).make(step);
}

void price_transfers(const Profile& profile, int nodes, KinetoProgram* program) {
  const CollectivePricer pricer = collective_pricer(profile);
  const auto known = collective_kind_names();
  std::map<std::string, int> sources;
  for (KinetoProgramCollective& one : program->collectives) {
    const bool priced = std::ranges::find(known, one.kind) != known.end();
    if (priced && one.bytes && one.group_size > 0) {
      const CollectivePrice price =
          pricer.price(parse_collective_kind(one.kind), Bytes(*one.bytes), one.group_size, nodes);
      one.transfer_ns = std::llround(price.cost.seconds * 1e9);
      one.upper_bound = false;
      ++sources[fmt::format("{}, {}", one.kind, price.text)];
    }
  }
  for (const auto& [source, count] : sources) {
    program->notes.push_back(
        fmt::format("{} transfer times are of the profile: {}", count, source));
  }
}

}  // namespace stepsim
