#include "sim/report/chrome_trace.h"

#include <algorithm>

#include <fmt/core.h>

#include "costmodel/json_file.h"

namespace stepsim {

namespace {

constexpr int kComputeThread = 1;
constexpr int kCommunicatorThread = 2;

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

}  // namespace

std::string chrome_trace(const Prediction& prediction, const Plan& plan) {
  TraceWriter writer;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    writer.metadata(rank, 0, "process_name", fmt::format("rank {}", rank));
    writer.metadata(rank, kComputeThread, "thread_name", "compute");
    writer.metadata(rank, kCommunicatorThread, "thread_name", "communicator");
  }
  for (std::size_t step = 0; step < prediction.timelines.size(); ++step) {
    const StepTimeline& timeline = prediction.timelines[step];
    for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
      const RankTimeline& times = timeline.ranks[rank];
      const int pid = static_cast<int>(rank);
      const int number = static_cast<int>(step);
      const BatchShape shape = plan.micro_batches[step * timeline.ranks.size() + rank].shape();
      writer.counter(pid, "useful tokens", times.start, shape.useful_tokens);
      writer.counter(pid, "padded tokens", times.start, shape.padded_tokens());
      add_compute(writer, pid, number, times);
      add_communication(writer, pid, number, times, timeline);
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
