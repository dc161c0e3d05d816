#include "sim/report/chrome_trace.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <utility>

#include <fmt/core.h>

#include "costmodel/json_file.h"

namespace stepsim {

namespace {

constexpr int kComputeThread = 1;
constexpr int kCommunicatorThread = 2;
constexpr int kSideThread = 3;  // The streams beside the compute stream.
constexpr int kMoreCommunicators = kSideThread + static_cast<int>(kStreams);

double us(SimTime time) {
  return static_cast<double>(time.time_since_epoch().count()) / 1e3;
}
double us(Duration duration) {
  return static_cast<double>(duration.count()) / 1e3;
}

/// The events, one a line, so that the file can be read and compared.
class TraceWriter {
 public:
  void metadata(int rank, int thread, const std::string& what, const std::string& name) {
    line(fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}})",
                     what,
                     rank,
                     thread,
                     Json(name).dump()));
  }

  void slice(int rank,
             int thread,
             const std::string& name,
             SimTime start,
             Duration duration,
             const std::string& arguments) {
    if (duration.count() <= 0) {
      return;
    }
    line(fmt::format(
        R"({{"name":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{{}}}}})",
        name,
        rank,
        thread,
        us(start),
        us(duration),
        arguments));
  }

  void counter(int rank, const std::string& name, SimTime at, std::int64_t value) {
    line(fmt::format(R"({{"name":"{}","ph":"C","pid":{},"ts":{:.3f},"args":{{"tokens":{}}}}})",
                     name,
                     rank,
                     us(at),
                     value));
  }

  [[nodiscard]] std::string text() const { return text_ + "\n"; }

 private:
  void line(const std::string& event) {
    text_ += text_.empty() ? "" : ",\n";
    text_ += event;
  }
  std::string text_;
};

void add_compute(TraceWriter& writer, int rank, int step, const RankTimeline& times) {
  const std::string arguments = fmt::format("\"step\":{}", step);
  writer.slice(rank, kComputeThread, "data", times.start, times.data_end - times.start, arguments);
  writer.slice(rank,
               kComputeThread,
               "forward",
               times.data_end,
               times.forward_end - times.data_end,
               arguments);
  SimTime from = times.forward_end;
  for (std::size_t b = 0; b < times.launch.size(); ++b) {
    writer.slice(rank,
                 kComputeThread,
                 "backward",
                 from,
                 times.launch[b] - from,
                 fmt::format("{},\"completes_bucket\":{}", arguments, b));
    from = std::max(from, times.launch[b]);
  }
  writer.slice(rank, kComputeThread, "backward", from, times.backward_end - from, arguments);
  // Waits and copies alternate by bucket; they are shown as one wait and one copy each.
  writer.slice(
      rank, kComputeThread, "exposed communication", times.backward_end, times.exposed, arguments);
  writer.slice(rank,
               kComputeThread,
               "copy gradients out",
               times.backward_end + times.exposed,
               times.copy_out,
               arguments);
  writer.slice(
      rank, kComputeThread, "optimizer", times.end - times.optimizer, times.optimizer, arguments);
}

void add_communication(TraceWriter& writer,
                       int rank,
                       int step,
                       const RankTimeline& times,
                       const StepTimeline& timeline) {
  SimTime free_at = times.start;
  for (std::size_t b = 0; b < times.launch.size(); ++b) {
    const std::string arguments = fmt::format("\"step\":{},\"bucket\":{}", step, b);
    const SimTime queued = std::max(times.launch[b], free_at);
    writer.slice(rank,
                 kCommunicatorThread,
                 "wait for ranks",
                 queued,
                 timeline.reduce_start[b] - queued,
                 arguments);
    writer.slice(rank,
                 kCommunicatorThread,
                 "all-reduce",
                 timeline.reduce_start[b],
                 timeline.reduce_end[b] - timeline.reduce_start[b],
                 arguments);
    free_at = timeline.reduce_end[b];
  }
}

/// What a piece of work is called that has no name of its own.
std::string name_of(Part part) {
  switch (part) {
    case Part::Data:
      return "copy the batch in";
    case Part::Forward:
      return "forward";
    case Part::Backward:
      return "backward";
    case Part::CopyOut:
      return "copy gradients out";
    case Part::Optimizer:
      return "optimizer";
    case Part::Wait:
      return "wait";
    case Part::Other:
      break;
  }
  return "other work";
}

int thread_of_stream(int stream) {
  return stream == kComputeStream ? kComputeThread : kSideThread + stream - 1;
}

/// A rank that holds several collectives at once shows them on threads of their own.
int thread_of_lane(std::size_t lane) {
  return lane == 0 ? kCommunicatorThread : kMoreCommunicators + static_cast<int>(lane) - 1;
}

/// Steps that were played by the engine: every piece of work, on the stream that ran it.
class PlayedWriter {
 public:
  PlayedWriter(TraceWriter& writer, const std::vector<std::string>& labels)
      : writer_(writer), labels_(labels) {}

  void add(int step, const StepTimeline& timeline) {
    const std::string arguments = fmt::format("\"step\":{}", step);
    for (const PlayedSpan& span : timeline.spans) {
      const auto label = static_cast<std::size_t>(span.label);
      const bool named = span.label >= 0 && label < labels_.size();
      const int thread = thread_of_stream(span.stream);
      if (span.stream != kComputeStream) {
        name(span.rank,
             thread,
             span.stream == kSideStream ? "side stream" : fmt::format("stream {}", span.stream));
      }
      writer_.slice(span.rank,
                    thread,
                    named ? labels_[label] : name_of(span.part),
                    span.begin,
                    span.end - span.begin,
                    arguments);
    }
    for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
      add_collectives(static_cast<int>(rank), arguments, timeline);
    }
  }

 private:
  void add_collectives(int rank, const std::string& arguments, const StepTimeline& timeline) {
    const RankTimeline& times = timeline.ranks[static_cast<std::size_t>(rank)];
    std::vector<std::size_t> order(times.launch.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return timeline.reduce_start[a] < timeline.reduce_start[b];
    });
    std::vector<SimTime>& free_at = lanes_[rank];
    for (const std::size_t c : order) {
      const SimTime start = timeline.reduce_start[c];
      if (times.launch[c] == SimTime::max()) {
        continue;  // The rank takes no part.
      }
      const auto lane = static_cast<std::size_t>(
          std::find_if(
              free_at.begin(), free_at.end(), [&](SimTime free) { return free <= start; }) -
          free_at.begin());
      if (lane == free_at.size()) {
        free_at.push_back(SimTime{});
        if (lane > 0) {
          name(rank, thread_of_lane(lane), fmt::format("communicator {}", lane + 1));
        }
      }
      const std::string more = fmt::format(
          "{},\"collective\":{},\"bytes\":{:.0f}", arguments, c, timeline.reduce_bytes[c]);
      const SimTime queued = std::max(times.launch[c], free_at[lane]);
      writer_.slice(rank, thread_of_lane(lane), "wait for ranks", queued, start - queued, more);
      writer_.slice(rank,
                    thread_of_lane(lane),
                    timeline.reduce_names[c],
                    start,
                    timeline.reduce_end[c] - start,
                    more);
      free_at[lane] = timeline.reduce_end[c];
    }
  }

  /// Names a thread where it is first used.
  void name(int rank, int thread, const std::string& text) {
    if (named_.emplace(rank, thread).second) {
      writer_.metadata(rank, thread, "thread_name", text);
    }
  }

  TraceWriter& writer_;
  const std::vector<std::string>& labels_;
  std::set<std::pair<int, int>> named_;        ///< (rank, thread)
  std::map<int, std::vector<SimTime>> lanes_;  ///< [rank][lane] when it is free again.
};

/// Tokens of all of a rank's micro-batches in one step.
void add_counters(TraceWriter& writer,
                  int rank,
                  SimTime at,
                  std::span<const MicroBatch> micro_batches) {
  std::int64_t useful = 0;
  std::int64_t padded = 0;
  for (const MicroBatch& batch : micro_batches) {
    const BatchShape shape = batch.shape();
    useful += shape.useful_tokens;
    padded += shape.padded_tokens();
  }
  writer.counter(rank, "useful tokens", at, useful);
  writer.counter(rank, "padded tokens", at, padded);
}

}  // namespace

std::string chrome_trace(const Prediction& prediction, const Plan& plan) {
  TraceWriter writer;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    writer.metadata(rank, 0, "process_name", fmt::format("rank {}", rank));
    writer.metadata(rank, kComputeThread, "thread_name", "compute");
    writer.metadata(rank, kCommunicatorThread, "thread_name", "communicator");
  }
  PlayedWriter played(writer, prediction.op_labels);
  const std::size_t rows = prediction.timelines.size() * static_cast<std::size_t>(plan.ranks);
  const std::size_t per_row = rows > 0 ? plan.micro_batches.size() / rows : 0;
  for (std::size_t step = 0; step < prediction.timelines.size(); ++step) {
    const StepTimeline& timeline = prediction.timelines[step];
    const int number = static_cast<int>(step);
    for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
      const RankTimeline& times = timeline.ranks[rank];
      const int pid = static_cast<int>(rank);
      const std::size_t row = step * timeline.ranks.size() + rank;
      add_counters(
          writer, pid, times.start, std::span(plan.micro_batches).subspan(row * per_row, per_row));
      if (timeline.spans.empty()) {
        add_compute(writer, pid, number, times);
        add_communication(writer, pid, number, times, timeline);
      }
    }
    if (!timeline.spans.empty()) {
      played.add(number, timeline);
    }
  }
  const Json other = {{"scenario", prediction.scenario},
                      {"policy", prediction.policy},
                      {"profile", prediction.profile}};
  return fmt::format("{{\"displayTimeUnit\":\"ms\",\"otherData\":{},\"traceEvents\":[\n{}]}}\n",
                     other.dump(),
                     writer.text());
}

}  // namespace stepsim
