#include "calibrate/import/kineto/kineto_rows.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace stepsim {
namespace {

/// The time from a launch to the start of its work on an idle GPU, as the replay assumes it.
constexpr std::int64_t kLaunchLatency = 7'000;
/// Work that starts so much later than it could have was waiting for something.
constexpr std::int64_t kHeldUp = 15'000;
/// What waited for a collective starts within this after its end (1 .. 5 us seen).
constexpr std::int64_t kAfterCollective = 6'000;
/// What waited for work on another stream starts within this after its end (up to 1 us seen),
constexpr std::int64_t kAfterOther = 2'000;
/// and so much later than it could have that its start is no accident.
constexpr std::int64_t kHeldByOther = 4'000;
/// Old traces have whole microseconds.
constexpr std::int64_t kClockTick = 1'000;
/// A synchronising call that took no longer did not wait.
constexpr std::int64_t kShortSync = 20'000;
/// One that waited ends within this after the stream's work (5 .. 7 us seen).
constexpr std::int64_t kAfterWork = 30'000;

/// A GPU operation or collective as found by its launch.
struct Item {
  std::int64_t correlation = 0;
  std::int64_t launch_ns = 0;
  KinetoSpan span;
  std::int64_t stream = 0;
  bool collective = false;
  std::size_t place = 0;  ///< In KinetoTrace::ops or ::collectives.
};

using Items = std::vector<Item>;
using ItemsOfCall = std::pair<Items::const_iterator, Items::const_iterator>;

/// By correlation, then start.
Items items_of(const KinetoTrace& trace) {
  Items items;
  items.reserve(trace.ops.size() + trace.collectives.size());
  for (std::size_t i = 0; i < trace.ops.size(); ++i) {
    const KinetoOp& op = trace.ops[i];
    items.push_back({op.launch.correlation, op.launch.span.start_ns, op.span, op.stream, false, i});
  }
  for (std::size_t i = 0; i < trace.collectives.size(); ++i) {
    const KinetoCollective& one = trace.collectives[i];
    if (one.stream >= 0) {
      items.push_back(
          {one.launch.correlation, one.launch.span.start_ns, one.span, one.stream, true, i});
    }
  }
  std::ranges::stable_sort(items, [](const Item& a, const Item& b) {
    return std::pair(a.correlation, a.span.start_ns) < std::pair(b.correlation, b.span.start_ns);
  });
  return items;
}

/// Empty, too, for a second call of the same correlation: that of the driver inside the runtime's.
ItemsOfCall find_items(const Items& items, const KinetoCall& call) {
  if (call.at.correlation < 0) {
    return {items.end(), items.end()};
  }
  const auto less = [](const Item& item, std::int64_t id) { return item.correlation < id; };
  const auto first = std::lower_bound(items.begin(), items.end(), call.at.correlation, less);
  const auto last = std::find_if(first, items.end(), [&](const Item& item) {
    return item.correlation != call.at.correlation || item.launch_ns != call.at.span.start_ns;
  });
  return {first, last};
}

/// Goes through the calls of a rank by start.
class RowMaker {
 public:
  RowMaker(const KinetoTrace& trace,
           int step,
           const std::map<std::size_t, int>& numbers,
           std::int64_t zero_ns)
      : trace_(trace),
        step_(trace.steps[static_cast<std::size_t>(step)].span),
        numbers_(numbers),
        zero_ns_(zero_ns),
        items_(items_of(trace)),
        end_(step_.start_ns) {}

  KinetoRankRows make() {
    for (const auto& [stream, end_ns] : trace_.launched_before_ns) {
      streams_[stream].end_ns = end_ns;
    }
    auto call = trace_.calls.begin();
    for (; call != trace_.calls.end() && call->at.span.start_ns < step_.start_ns; ++call) {
      const auto [first, last] = find_items(items_, *call);
      for (auto item = first; item != last; ++item) {
        note_launch(*call, *item);
      }
    }
    add_left_work();
    for (; call != trace_.calls.end() && call->at.span.start_ns < step_.end_ns(); ++call) {
      add(*call);
    }
    KinetoRow end;
    end.type = KinetoRowType::End;
    end.gap_ns = std::max(step_.end_ns() - end_, -before_ns_);
    result_.rows.push_back(end);
    return std::move(result_);
  }

 private:
  /// A collective of this step.
  struct Launched {
    int number = 0;
    std::int64_t launch_ns = 0;
    std::int64_t stream = 0;
    std::int64_t end_ns = 0;
    std::int64_t producer = -1;
  };
  /// Work of a row, when it was over.
  struct Done {
    std::int64_t launch_ns = 0;
    std::int64_t end_ns = 0;
    std::int64_t row = 0;
  };
  /// What is known of a stream at the call that is looked at.
  struct Stream {
    std::int64_t end_ns =
        std::numeric_limits<std::int64_t>::min();  ///< The end of its work so far.
    std::deque<Launched> not_awaited;              ///< Collectives made from it, the oldest first.
    int awaited = -1;                              ///< The one that its work waits for from now on.
    std::vector<Done> done;                        ///< Its work in this step but collectives.
    std::int64_t after = -1;                       ///< The row that its next work waits for.
  };

  void add_left_work() {
    for (const auto& [id, stream] : streams_) {
      if (stream.end_ns > step_.start_ns) {
        KinetoRow row;
        row.type = KinetoRowType::Gpu;
        row.stream = id;
        row.gpu_ns = std::max<std::int64_t>(stream.end_ns - step_.start_ns - kLaunchLatency, 0);
        result_.rows.push_back(row);
        ++result_.left_streams;
      }
    }
  }

  void add(const KinetoCall& call) {
    auto [item, last] = find_items(items_, call);
    KinetoRow row;
    row.host_ns = call.at.span.duration_ns;
    row.recorded_ns = call.at.span.start_ns - zero_ns_;
    if (item == last) {
      take_host_call(call, &row);
    } else {
      take_work(call, *item, &row);
    }
    if (row.type == KinetoRowType::Cpu && call.at.span.start_ns < blocked_until_) {
      ++result_.dropped;
      return;
    }
    place(call, &row);
    push(row, item, last);
    // A launched graph has many operations.
    while (item != last && ++item != last) {
      KinetoRow more;
      take_work(call, *item, &more);
      push(more, item, last);
      before_ns_ = 0;
    }
  }

  void push(const KinetoRow& row, Items::const_iterator item, Items::const_iterator last) {
    const bool is_work = row.type == KinetoRowType::Gpu || row.type == KinetoRowType::BlockingCopy;
    if (is_work && item != last && !item->collective) {
      streams_[item->stream].done.push_back(
          {item->launch_ns, item->span.end_ns(), std::ssize(result_.rows)});
    }
    result_.rows.push_back(row);
  }

  /// Sets the gap before a row, and with it the host's clock.
  void place(const KinetoCall& call, KinetoRow* row) {
    const std::int64_t start = call.at.span.start_ns;
    if (start < blocked_until_) {
      ++result_.put_after;
    } else {
      row->gap_ns = std::max(start - end_, -before_ns_);
    }
    end_ += row->gap_ns + row->host_ns;
    before_ns_ = row->host_ns;
    if (row->type == KinetoRowType::Sync || row->type == KinetoRowType::BlockingCopy) {
      blocked_until_ = std::max(blocked_until_, call.at.span.end_ns());
      before_ns_ = 0;
    }
  }

  void take_host_call(const KinetoCall& call, KinetoRow* row) {
    if (call.kind == KinetoCallKind::StreamWait && call.on_stream >= 0) {
      take_stated_wait(call);
    } else if (call.kind == KinetoCallKind::StreamWait) {
      ++pending_waits_;
    } else if (const auto stream = awaited_stream(call)) {
      row->type = KinetoRowType::Sync;
      row->stream = *stream;
    }
  }

  /// Lets a stream wait for the last collective before the event on another stream.
  void take_stated_wait(const KinetoCall& call) {
    const std::int64_t until = call.event_ns < 0 ? call.at.span.start_ns : call.event_ns;
    const auto found = std::find_if(launched_.rbegin(), launched_.rend(), [&](const Launched& one) {
      return one.stream == call.on_stream && one.launch_ns < until;
    });
    if (found != launched_.rend()) {
      await(*found, &streams_[call.stream]);
      return;
    }
    // The event follows the work that was launched before it on the other stream.
    const std::vector<Done>& done = streams_[call.on_stream].done;
    const auto before = std::find_if(
        done.rbegin(), done.rend(), [&](const Done& one) { return one.launch_ns < until; });
    if (before != done.rend() && call.stream != call.on_stream) {
      streams_[call.stream].after = before->row;
    }
  }

  /// All work of `stream` from now on waits for a collective; it was the oldest not awaited.
  void await(const Launched& one, Stream* stream) {
    stream->awaited = one.number;
    if (const auto producer = streams_.find(one.producer); producer != streams_.end()) {
      std::deque<Launched>& waiting = producer->second.not_awaited;
      while (!waiting.empty() && waiting.front().number <= one.number) {
        waiting.pop_front();
      }
    }
  }

  /// The stream whose work a call waits for; empty for a call that does not wait.
  [[nodiscard]] std::optional<std::int64_t> awaited_stream(const KinetoCall& call) const {
    const bool of_stream = call.kind == KinetoCallKind::StreamSync;
    if (!of_stream && call.kind != KinetoCallKind::EventSync &&
        call.kind != KinetoCallKind::DeviceSync) {
      return std::nullopt;
    }
    const std::int64_t stated = of_stream ? call.stream : call.on_stream;
    if (stated >= 0) {
      return streams_.count(stated) > 0 ? std::optional(stated) : std::nullopt;
    }
    const KinetoSpan& span = call.at.span;
    const auto explains = [&span](const Stream& stream) {
      return stream.end_ns <= span.end_ns() &&
             stream.end_ns >= std::max(span.start_ns, span.end_ns() - kAfterWork);
    };
    const auto own = last_stream(call.at.thread);
    if (of_stream && own && (span.duration_ns <= kShortSync || explains(streams_.at(*own)))) {
      return own;
    }
    std::optional<std::int64_t> latest;
    for (const auto& [id, stream] : streams_) {
      const bool fits = call.kind == KinetoCallKind::DeviceSync || explains(stream);
      if (fits && (!latest || stream.end_ns > streams_.at(*latest).end_ns)) {
        latest = id;
      }
    }
    return latest || !of_stream ? latest : own;
  }

  /// The stream of the compute that this thread launched last, or else any thread.
  [[nodiscard]] std::optional<std::int64_t> last_stream(int thread) const {
    const auto found = last_of_thread_.find(thread);
    return found == last_of_thread_.end() ? last_of_all_ : std::optional(found->second);
  }

  void take_work(const KinetoCall& call, const Item& item, KinetoRow* row) {
    row->stream = item.stream;
    row->gpu_ns = item.span.duration_ns;
    const auto number = item.collective ? numbers_.find(item.place) : numbers_.end();
    if (number != numbers_.end()) {
      row->type = KinetoRowType::Collective;
      row->collective = number->second;
      take_collective(call, item, number->second);
    } else {
      row->type = is_blocking_copy(call, item) ? KinetoRowType::BlockingCopy : KinetoRowType::Gpu;
      if (!item.collective) {
        row->held_ns = take_waits(call, item);
        row->awaited = streams_[item.stream].awaited;
        row->after = std::exchange(streams_[item.stream].after, -1);
        result_.waits_between += row->after >= 0 ? 1 : 0;
      }
    }
    note_launch(call, item);
  }

  void take_collective(const KinetoCall& call, const Item& item, int number) {
    const auto producer = last_stream(call.at.thread);
    result_.producers[number] = producer.value_or(-1);
    launched_.push_back(
        {number, item.launch_ns, item.stream, item.span.end_ns(), producer.value_or(-1)});
    if (producer) {
      streams_[*producer].not_awaited.push_back(launched_.back());
    }
  }

  /// Finds what the work of a stream waits for from now on. Returns for how long this work was
  /// held up for no reason that is known.
  std::int64_t take_waits(const KinetoCall& call, const Item& item) {
    Stream& stream = streams_[item.stream];
    for (; pending_waits_ > 0; --pending_waits_) {
      // Work that began before a collective's end did not wait for it: another stream does.
      if (!stream.not_awaited.empty() &&
          stream.not_awaited.front().end_ns <= item.span.start_ns + kClockTick) {
        stream.awaited = stream.not_awaited.front().number;
        stream.not_awaited.pop_front();
      }
    }
    const std::int64_t could = std::max(call.at.span.start_ns + kLaunchLatency, stream.end_ns);
    const std::int64_t held = item.span.start_ns - could;
    if (held <= kHeldUp) {
      if (held > kHeldByOther && stream.after < 0) {
        stream.after = row_before(item);
      }
      return 0;
    }
    const auto cause =
        std::find_if(launched_.rbegin(), launched_.rend(), [&item](const Launched& one) {
          return item.span.start_ns >= one.end_ns &&
                 item.span.start_ns - one.end_ns <= kAfterCollective;
        });
    if (cause != launched_.rend()) {
      if (cause->number != stream.awaited) {
        await(*cause, &stream);
      }
      return 0;
    }
    if (stream.after < 0) {
      stream.after = row_before(item);
    }
    if (stream.after < 0 && !waits_for_collective(stream, item)) {
      result_.unexplained_ns += held;
      return held;
    }
    return 0;
  }

  /// The row whose work ended on another stream just before this work began; -1 = none.
  [[nodiscard]] std::int64_t row_before(const Item& item) const {
    std::int64_t row = -1;
    std::int64_t latest = item.span.start_ns - kAfterOther - 1;
    for (const auto& [id, stream] : streams_) {
      if (id == item.stream) {
        continue;
      }
      // Work of a stream ends in the order of its rows.
      const auto later =
          std::ranges::upper_bound(stream.done, item.span.start_ns + kClockTick, {}, &Done::end_ns);
      if (later != stream.done.begin() && std::prev(later)->end_ns > latest) {
        latest = std::prev(later)->end_ns;
        row = std::prev(later)->row;
      }
    }
    return row;
  }

  /// Whether a collective that the stream waits for anyway ended shortly before this work.
  [[nodiscard]] bool waits_for_collective(const Stream& stream, const Item& item) const {
    return std::ranges::any_of(launched_, [&](const Launched& one) {
      return one.number == stream.awaited && item.span.start_ns - one.end_ns <= kHeldUp;
    });
  }

  [[nodiscard]] bool is_blocking_copy(const KinetoCall& call, const Item& item) const {
    if (item.collective || trace_.ops[item.place].kind != KinetoClass::Memcpy) {
      return false;
    }
    const std::string& name = trace_.names[static_cast<std::size_t>(trace_.ops[item.place].name)];
    return call.kind == KinetoCallKind::BlockingCopy ||
           (name.find("DtoH") != std::string::npos && name.find("Pageable") != std::string::npos);
  }

  void note_launch(const KinetoCall& call, const Item& item) {
    Stream& stream = streams_[item.stream];
    stream.end_ns = std::max(stream.end_ns, item.span.end_ns());
    if (!item.collective) {
      last_of_thread_[call.at.thread] = item.stream;
      last_of_all_ = item.stream;
    }
  }

  const KinetoTrace& trace_;
  KinetoSpan step_;
  const std::map<std::size_t, int>& numbers_;
  std::int64_t zero_ns_;
  Items items_;
  KinetoRankRows result_;
  std::map<std::int64_t, Stream> streams_;
  std::map<int, std::int64_t> last_of_thread_;
  std::optional<std::int64_t> last_of_all_;
  std::vector<Launched> launched_;
  int pending_waits_ = 0;
  std::int64_t end_ = 0;        ///< The end of the calls so far.
  std::int64_t before_ns_ = 0;  ///< Host's time of the row before; 0 for a blocking one.
  std::int64_t blocked_until_ = std::numeric_limits<std::int64_t>::min();
};

}  // namespace

KinetoRankRows make_kineto_rows(const KinetoTrace& trace,
                                int step,
                                const std::map<std::size_t, int>& numbers,
                                std::int64_t zero_ns) {
  return RowMaker(trace, step, numbers, zero_ns).make();
}

std::vector<std::int64_t> launches_without_kernel(const KinetoTrace& trace) {
  const Items items = items_of(trace);
  std::vector<std::int64_t> missing(trace.steps.size(), 0);
  for (const KinetoCall& call : trace.calls) {
    const int step = step_at(trace.steps, call.at.span.start_ns);
    if (step >= 0 && call.kind == KinetoCallKind::KernelLaunch) {
      const auto [first, last] = find_items(items, call);
      missing[static_cast<std::size_t>(step)] += first == last ? 1 : 0;
    }
  }
  return missing;
}

}  // namespace stepsim
