#include "sim/report/trace/chrome_trace.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/io/json_file.h"

namespace stepsim {

namespace {

constexpr std::size_t kFlushAt = std::size_t{1} << 20;

constexpr int kStepThread = 1;
constexpr int kComputeThread = 2;  // The streams beside the compute stream follow.
constexpr int kCommunicatorThread = kComputeThread + static_cast<int>(kStreams);

double exact_us(SimTime time) {
  return static_cast<double>(time.time_since_epoch().count()) / 1e3;
}

int thread_of(const TraceRow& row) {
  return (row.kind == TraceRow::Kind::Collective ? kCommunicatorThread : kComputeThread) + row.lane;
}

std::string name_of_thread(int thread) {
  if (thread == kStepThread) {
    return "steps";
  }
  const bool communicator = thread >= kCommunicatorThread;
  const int lane = thread - (communicator ? kCommunicatorThread : kComputeThread);
  if (communicator) {
    return lane == 0 ? "communicator" : fmt::format("communicator {}", lane + 1);
  }
  return lane == kComputeStream ? "compute"
         : lane == kSideStream  ? "side stream"
                                : fmt::format("stream {}", lane);
}

/// Steps on top, then compute, communicators, other streams.
int place_of_thread(int thread) {
  constexpr int kLast = 100;
  return thread > kComputeThread && thread < kCommunicatorThread ? kLast + thread : thread;
}

/// "all-reduce, bucket 3", "all-gather".
std::string collective_name(const CollectiveUse& use) {
  std::string name(name_of(use.kind));
  std::ranges::replace(name, '_', '-');
  return use.bucket < 0 ? name : fmt::format("{}, bucket {}", name, use.bucket);
}

/// What sets a rank apart: its node, its speed.
std::string label_of(const Scenario& scenario, int rank) {
  std::string label;
  if (scenario.placement.nodes() > 1) {
    label = fmt::format("node {}", scenario.placement.node_of(rank));
  }
  for (const SlowRank& slow : scenario.slow_ranks) {
    if (slow.rank == rank) {
      label += fmt::format("{}slow x{:g}", label.empty() ? "" : ", ", slow.factor);
    }
  }
  return label;
}

}  // namespace

ChromeTrace::ChromeTrace(const TraceSource& source, GzipWriter& file)
    : source_(source), file_(file) {
  const Scenario& scenario = source.run.scenario();
  const Json other = {{"scenario", scenario.name},
                      {"policy", source.policy},
                      {"profile", source.run.profile().name},
                      {"ranks", scenario.ranks}};
  text_ = fmt::format("{{\"displayTimeUnit\":\"ms\",\"otherData\":{},\"traceEvents\":[",
                      other.dump(-1, ' ', false, Json::error_handler_t::replace));
  for (const int rank : source.ranks) {
    metadata(rank, 0, "process_name", fmt::format(R"("name":"rank {}")", rank));
    metadata(rank, 0, "process_sort_index", fmt::format(R"("sort_index":{})", rank));
    if (const std::string label = label_of(scenario, rank); !label.empty()) {
      metadata(rank, 0, "process_labels", fmt::format(R"("labels":"{}")", label));
    }
  }
}

void ChromeTrace::add(const TraceStep& step) {
  for (const int rank : source_.ranks) {
    add_rank(step, rank);
  }
}

void ChromeTrace::finish() {
  text_ += "\n]}\n";
  file_.write(text_);
  text_.clear();
  file_.finish();
}

void ChromeTrace::add_rank(const TraceStep& step, int rank) {
  const RankTimeline& times = step.timeline.ranks[static_cast<std::size_t>(rank)];
  const TraceBatch& batch = step.batches[static_cast<std::size_t>(rank)];
  const std::string number = fmt::format("\"step\":{}", step.step);
  slice(rank,
        kStepThread,
        json_text(fmt::format("ProfilerStep#{}", step.step)),
        times.start,
        times.end,
        number);
  counter(rank, "useful tokens", "a step", times.start, static_cast<double>(batch.useful_tokens));
  counter(rank, "padded tokens", "a step", times.start, static_cast<double>(batch.padded_tokens));
  counter(rank, "peak memory", "MiB", times.start, batch.peak_memory_mib);
  for (const TraceRow& row : step.rows.of_rank(rank)) {
    if (row.kind == TraceRow::Kind::Collective) {
      add_collective(step, rank, row);
    } else {
      slice(rank,
            thread_of(row),
            json_text(work_name(row, source_.labels)),
            row.begin,
            row.end,
            number);
    }
  }
}

/// The wait for other ranks, then the transfer.
void ChromeTrace::add_collective(const TraceStep& step, int rank, const TraceRow& row) {
  const StepTimeline& timeline = step.timeline;
  const auto c = static_cast<std::size_t>(row.index);
  const CollectiveUse& use = timeline.collectives[c];
  const int bucket = use.bucket;
  const std::string arguments =
      fmt::format("\"step\":{},\"collective\":{},\"bytes\":{:.0f}{}",
                  step.step,
                  c,
                  use.bytes,
                  bucket < 0 ? "" : fmt::format(",\"bucket\":{}", bucket));
  slice(rank, thread_of(row), "\"wait for ranks\"", row.begin, timeline.reduce_start[c], arguments);
  slice(rank,
        thread_of(row),
        json_text(collective_name(use)),
        timeline.reduce_start[c],
        row.end,
        arguments);
  if (bucket >= 0) {
    add_arrow(step, rank, row);
  }
}

/// From the work that made a bucket ready, the last that ended before it was, to the first slice of
/// the collective. A viewer looks for the slices at the arrow's ends, so these lie inside of them.
void ChromeTrace::add_arrow(const TraceStep& step, int rank, const TraceRow& row) {
  const auto c = static_cast<std::size_t>(row.index);
  const SimTime ready = step.timeline.ranks[static_cast<std::size_t>(rank)].ready_at[c];
  const TraceRow* from = nullptr;
  for (const TraceRow& work : step.rows.of_rank(rank)) {
    if (work.begin >= ready) {
      break;
    }
    if (work.kind == TraceRow::Kind::Work && work.end <= ready &&
        (from == nullptr || work.end >= from->end)) {
      from = &work;
    }
  }
  if (from == nullptr || row.end <= row.begin) {
    return;
  }
  const std::string same =
      fmt::format(R"("name":"bucket ready","cat":"bucket","id":{},"pid":{})", ++arrows_, rank);
  event(fmt::format(R"({{"ph":"s",{},"tid":{},"ts":{:.3f}}})",
                    same,
                    thread_of(*from),
                    exact_us(from->end - Duration(1))));
  event(fmt::format(R"({{"ph":"f","bp":"e",{},"tid":{},"ts":{:.3f}}})",
                    same,
                    thread_of(row),
                    exact_us(row.begin)));
}

/// `name` as JSON.
void ChromeTrace::slice(int rank,
                        int thread,
                        std::string_view name,
                        SimTime begin,
                        SimTime end,
                        std::string_view arguments) {
  if (end <= begin) {
    return;
  }
  name_thread(rank, thread);
  event(fmt::format(R"({{"ph":"X","cat":"{}","name":{},"pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},)"
                    R"("args":{{{}}}}})",
                    thread == kStepThread           ? "step"
                    : thread >= kCommunicatorThread ? "communication"
                                                    : "compute",
                    name,
                    rank,
                    thread,
                    exact_us(begin),
                    exact_us(SimTime(end - begin)),
                    arguments));
}

/// Perfetto shows `name` and `unit` as the name of the track.
void ChromeTrace::counter(
    int rank, std::string_view name, std::string_view unit, SimTime at, double value) {
  event(fmt::format(
      R"({{"ph":"C","cat":"batch","name":"{}","pid":{},"ts":{:.3f},"args":{{"{}":{:.10g}}}}})",
      name,
      rank,
      exact_us(at),
      unit,
      value));
}

void ChromeTrace::metadata(int rank, int thread, std::string_view what, std::string_view argument) {
  event(fmt::format(
      R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{{}}}}})", what, rank, thread, argument));
}

void ChromeTrace::name_thread(int rank, int thread) {
  if (named_.emplace(rank, thread).second) {
    metadata(rank, thread, "thread_name", fmt::format(R"("name":"{}")", name_of_thread(thread)));
    metadata(rank,
             thread,
             "thread_sort_index",
             fmt::format(R"("sort_index":{})", place_of_thread(thread)));
  }
}

void ChromeTrace::event(std::string_view text) {
  text_ += events_++ == 0 ? "\n" : ",\n";
  text_ += text;
  if (text_.size() >= kFlushAt) {
    file_.write(text_);
    text_.clear();
  }
}

}  // namespace stepsim
