#include "calibrate/import/kineto/kineto_match.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"

namespace stepsim {
namespace {

/// Group and number of the step.
using CommunicatorKey = std::pair<std::string, std::int64_t>;
/// [trace]: its collectives of one key, in order.
using CollectiveRows = std::vector<std::vector<const KinetoCollective*>>;
/// [trace]: the same collective.
using Peers = std::vector<const KinetoCollective*>;

std::vector<int> ranks_of(std::span<const KinetoTrace> traces, std::vector<std::string>* warnings) {
  std::vector<int> ranks;
  for (const KinetoTrace& trace : traces) {
    const int place = static_cast<int>(ranks.size());
    const int rank = static_cast<int>(trace.header.rank.value_or(place));
    if (std::ranges::find(ranks, rank) != ranks.end()) {
      throw InputError(
          SourcePlace{trace.file}, "a second trace of rank {}; give one trace a rank", rank);
    }
    if (trace.header.world_size != traces.front().header.world_size) {
      throw InputError(SourcePlace{trace.file},
                       "world size {}, not {} as in {}: not of the same run",
                       trace.header.world_size.value_or(1),
                       traces.front().header.world_size.value_or(1),
                       printable(traces.front().file));
    }
    if (!trace.header.rank && traces.size() > 1) {
      warnings->push_back(
          fmt::format("{}: states no rank; taken as {} by its place", printable(trace.file), rank));
    }
    ranks.push_back(rank);
  }
  return ranks;
}

bool is_point_to_point(const KinetoCollective& one) {
  return one.kind == "send" || one.kind == "recv" || one.kind.empty();
}

/// Matches one key after another.
class Matcher {
 public:
  Matcher(std::span<const KinetoTrace> traces, KinetoMatches* result)
      : traces_(traces), result_(*result) {
    by_step_ =
        std::ranges::all_of(traces, [](const KinetoTrace& trace) { return !trace.steps.empty(); });
  }

  void run() {
    collect();
    for (const auto& [key, rows] : rows_) {
      match(key, rows);
    }
    align();
    for (const auto& [match, peers] : found_) {
      result_.matches.push_back(measured(match, peers));
    }
  }

 private:
  void collect() {
    for (std::size_t t = 0; t < traces_.size(); ++t) {
      std::int64_t point_to_point = 0;
      std::int64_t outside = 0;
      for (const KinetoCollective& one : traces_[t].collectives) {
        if (is_point_to_point(one)) {
          ++point_to_point;
        } else if (by_step_ && one.step < 0) {
          ++outside;
        } else {
          CollectiveRows& rows = rows_[{one.group, step_of(t, one)}];
          rows.resize(traces_.size());
          rows[t].push_back(&one);
        }
      }
      leave_out(t, point_to_point, "between two ranks or of unknown kind");
      leave_out(t, outside, "launched outside of all steps");
    }
  }

  void leave_out(std::size_t trace, std::int64_t count, const char* reason) {
    if (count > 0) {
      result_.unmatched.push_back(
          fmt::format("rank {}: {} collectives {}", result_.ranks[trace], count, reason));
    }
  }

  [[nodiscard]] std::int64_t step_of(std::size_t trace, const KinetoCollective& one) const {
    return by_step_ ? traces_[trace].steps[static_cast<std::size_t>(one.step)].number : -1;
  }

  static std::string place_of(const CommunicatorKey& key) {
    std::string text = key.second < 0 ? "" : fmt::format("step {}: ", key.second);
    return key.first.empty() ? text : text + "group " + printable(key.first) + ": ";
  }

  /// Whether each collective says its number, none twice on a rank, and ranks have some in common:
  /// without, the communicator's name is each rank's own.
  static bool are_numbered(const CollectiveRows& rows) {
    std::map<std::pair<std::string, std::int64_t>, int> ranks;
    std::size_t traces = 0;
    for (const auto& row : rows) {
      std::set<std::pair<std::string, std::int64_t>> seen;
      for (const KinetoCollective* one : row) {
        if (!one->number || !seen.emplace(one->communicator, *one->number).second) {
          return false;
        }
        ++ranks[{one->communicator, *one->number}];
      }
      traces += row.empty() ? 0 : 1;
    }
    return traces < 2 ||
           std::ranges::any_of(ranks, [](const auto& entry) { return entry.second > 1; });
  }

  /// Matches by the numbers that the ranks count their collectives by. What one of them lacks, or
  /// has as another kind or size, does not touch the others.
  void match_numbers(const CommunicatorKey& key, const CollectiveRows& rows) {
    std::map<std::pair<std::string, std::int64_t>, Peers> numbered;
    for (std::size_t t = 0; t < rows.size(); ++t) {
      for (const KinetoCollective* one : rows[t]) {
        Peers& peers = numbered[{one->communicator, *one->number}];
        peers.resize(rows.size(), nullptr);
        peers[t] = one;
      }
    }
    const std::size_t most = numbered.size();
    int index = 0;
    for (auto& [number, peers] : numbered) {
      if (agree(key, peers, static_cast<std::size_t>(number.second), false)) {
        KinetoMatch match;
        match.group = key.first;
        match.step = key.second;
        match.index = index;
        found_.emplace_back(std::move(match), std::move(peers));
      }
      ++index;
    }
    name_short_ones(key, rows, most);
  }

  void match(const CommunicatorKey& key, const CollectiveRows& rows) {
    if (are_numbered(rows)) {
      match_numbers(key, rows);
      return;
    }
    const std::size_t most = max_of(
        rows, [](const auto& row) { return row.size(); }, std::size_t{0});
    name_short_ones(key, rows, most);
    for (std::size_t i = 0; i < most; ++i) {
      Peers peers(rows.size(), nullptr);
      for (std::size_t t = 0; t < rows.size(); ++t) {
        peers[t] = i < rows[t].size() ? rows[t][i] : nullptr;
      }
      if (!agree(key, peers, i)) {
        return;
      }
      KinetoMatch match;
      match.group = key.first;
      match.step = key.second;
      match.index = static_cast<int>(i);
      found_.emplace_back(std::move(match), std::move(peers));
    }
  }

  /// Ranks that have fewer collectives than others, members of the group only.
  void name_short_ones(const CommunicatorKey& key, const CollectiveRows& rows, std::size_t most) {
    const auto any = std::ranges::find_if(rows, [](const auto& r) { return !r.empty(); });
    const std::vector<int>& members = any->front()->group_ranks;
    for (std::size_t t = 0; t < rows.size(); ++t) {
      const bool member =
          members.empty() || std::ranges::find(members, result_.ranks[t]) != members.end();
      if (member && rows[t].size() < most) {
        result_.unmatched.push_back(fmt::format("{}rank {} has {} collectives, others up to {}",
                                                place_of(key),
                                                result_.ranks[t],
                                                rows[t].size(),
                                                most));
      }
    }
  }

  /// False, with the reason, when kind or bytes differ; all-to-alls may be uneven.
  bool agree(const CommunicatorKey& key, const Peers& peers, std::size_t index, bool ends = true) {
    const KinetoCollective* first = nullptr;
    std::size_t first_trace = 0;
    for (std::size_t t = 0; t < peers.size(); ++t) {
      const KinetoCollective* one = peers[t];
      if (one == nullptr) {
        continue;
      }
      if (first == nullptr) {
        first = one;
        first_trace = t;
      }
      const bool same_bytes = one->kind == "all_to_all" || one->bytes == first->bytes;
      if (one->kind != first->kind || !same_bytes) {
        const auto text = [](const KinetoCollective& c) {
          return fmt::format("{} of {} bytes", printable(c.kind), c.bytes.value_or(-1));
        };
        result_.unmatched.push_back(
            fmt::format("{}the ranks part at collective {}: rank {} has {}, rank {} has {}; left "
                        "out{}",
                        place_of(key),
                        index,
                        result_.ranks[first_trace],
                        text(*first),
                        result_.ranks[t],
                        text(*one),
                        ends ? " from there on" : ""));
        return false;
      }
    }
    return true;
  }

  /// Finds the shifts of clocks: the median difference of ends, where it stands out of the spread.
  void align() {
    result_.shift_ns.assign(traces_.size(), 0);
    for (std::size_t t = 1; t < traces_.size(); ++t) {
      std::vector<std::int64_t> differences;
      for (const auto& [match, peers] : found_) {
        if (peers[0] != nullptr && peers[t] != nullptr) {
          differences.push_back(peers[t]->span.end_ns() - peers[0]->span.end_ns());
        }
      }
      if (differences.empty()) {
        continue;
      }
      const std::int64_t shift = median(differences);
      for (std::int64_t& difference : differences) {
        difference = std::abs(difference - shift);
      }
      constexpr std::int64_t kOneClock = 20'000;  // Ranks of one host ended within 7 us.
      constexpr std::int64_t kStandsOut = 5;
      if (std::abs(shift) > std::max(kOneClock, kStandsOut * median(differences))) {
        result_.shift_ns[t] = shift;
        result_.warnings.push_back(
            fmt::format("rank {}: its clock is {:.3f} ms ahead of rank {}'s by the ends of "
                        "collectives; aligned",
                        result_.ranks[t],
                        static_cast<double>(shift) * 1e-6,
                        result_.ranks[0]));
      }
    }
  }

  static std::int64_t median(std::vector<std::int64_t> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  }

  [[nodiscard]] KinetoMatch measured(KinetoMatch match, const Peers& peers) const {
    std::vector<std::int64_t> starts;
    std::vector<std::int64_t> ends;
    std::vector<std::int64_t> lengths;
    const KinetoCollective* last = nullptr;
    for (std::size_t t = 0; t < peers.size(); ++t) {
      if (const KinetoCollective* one = peers[t]) {
        starts.push_back(one->span.start_ns - result_.shift_ns[t]);
        ends.push_back(one->span.end_ns() - result_.shift_ns[t]);
        lengths.push_back(one->span.duration_ns);
        match.ranks.push_back(result_.ranks[t]);
        match.places.push_back(static_cast<std::size_t>(one - traces_[t].collectives.data()));
        match.bytes = std::max(match.bytes, one->bytes);
        match.bucket = match.bucket || one->bucket;
        last = one;
      }
    }
    match.kind = last->kind;
    match.dtype = last->dtype;
    match.group_size = group_size(*last);
    match.complete = is_complete(*last, match);
    const auto [first_start, last_start] = std::minmax_element(starts.begin(), starts.end());
    const auto [first_end, last_end] = std::minmax_element(ends.begin(), ends.end());
    const auto [shortest, longest] = std::minmax_element(lengths.begin(), lengths.end());
    match.transfer_ns = *first_end - *last_start;
    match.skew_ns = *last_start - *first_start;
    match.end_spread_ns = *last_end - *first_end;
    match.shortest_ns = *shortest;
    match.longest_ns = *longest;
    return match;
  }

  [[nodiscard]] static bool is_complete(const KinetoCollective& one, const KinetoMatch& match) {
    if (one.group_ranks.empty()) {
      return match.group_size > 0 && static_cast<int>(match.ranks.size()) == match.group_size;
    }
    return std::ranges::all_of(one.group_ranks, [&match](int rank) {
      return std::ranges::find(match.ranks, rank) != match.ranks.end();
    });
  }

  [[nodiscard]] int group_size(const KinetoCollective& one) const {
    if (!one.group_ranks.empty()) {
      return static_cast<int>(one.group_ranks.size());
    }
    return one.group_size.value_or(static_cast<int>(traces_.front().header.world_size.value_or(0)));
  }

  std::span<const KinetoTrace> traces_;
  KinetoMatches& result_;
  bool by_step_ = false;
  std::map<CommunicatorKey, CollectiveRows> rows_;
  std::vector<std::pair<KinetoMatch, Peers>> found_;
};

void warn_of_missing_ranks(std::span<const KinetoTrace> traces, KinetoMatches* result) {
  const auto missing = std::ranges::count_if(
      result->matches, [](const KinetoMatch& match) { return !match.complete; });
  if (missing > 0) {
    const auto world = traces.front().header.world_size;
    result->warnings.push_back(
        fmt::format("only ranks {} of {}: the transfer times of {} collectives are upper bounds, "
                    "because the last to arrive may be missing",
                    fmt::join(result->ranks, ", "),
                    world ? std::to_string(*world) : "an unknown number",
                    missing));
  }
}

/// A collective cannot end on one rank before it starts on another.
void warn_of_negative_transfers(KinetoMatches* result) {
  std::int64_t worst = 0;
  int count = 0;
  for (const KinetoMatch& match : result->matches) {
    const bool negative = match.ranks.size() > 1 && match.transfer_ns < 0;
    count += negative ? 1 : 0;
    worst = std::min(worst, negative ? match.transfer_ns : 0);
  }
  if (count > 0) {
    result->warnings.push_back(fmt::format(
        "{} collectives end on one rank before they start on another, by up to {:.3f} ms: these "
        "traces are not of one run, or their clocks differ; their transfer times are not used",
        count,
        static_cast<double>(-worst) * 1e-6));
  }
}

void warn_of_no_collectives(std::span<const KinetoTrace> traces, KinetoMatches* result) {
  const auto world = traces.front().header.world_size;
  const bool none = std::ranges::all_of(
      traces, [](const KinetoTrace& trace) { return trace.collectives.empty(); });
  if (none && world && *world > 1) {
    result->warnings.push_back(fmt::format(
        "a run of {} ranks, and no collective in its traces: communication by other libraries than "
        "NCCL (DeepEP, NVSHMEM) counts as compute here",
        *world));
  }
}

}  // namespace

KinetoMatches match_collectives(std::span<const KinetoTrace> traces) {
  KinetoMatches result;
  if (traces.empty()) {
    return result;
  }
  result.ranks = ranks_of(traces, &result.warnings);
  Matcher(traces, &result).run();
  warn_of_missing_ranks(traces, &result);
  warn_of_negative_transfers(&result);
  warn_of_no_collectives(traces, &result);
  return result;
}

}  // namespace stepsim
