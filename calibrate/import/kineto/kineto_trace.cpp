#include "calibrate/import/kineto/kineto_trace.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "calibrate/import/kineto/kineto_collector.h"
#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

template <typename Row>
void sort_by_launch(std::vector<Row>* rows) {
  std::ranges::stable_sort(*rows, [](const Row& a, const Row& b) {
    return a.launch.span.start_ns < b.launch.span.start_ns;
  });
}

/// ready_ns of every collective; both lists are in order of launches.
void find_ready_times(KinetoTrace* trace) {
  std::optional<std::int64_t> end;
  auto op = trace->ops.begin();
  for (KinetoCollective& collective : trace->collectives) {
    while (op != trace->ops.end() && op->launch.span.start_ns < collective.launch.span.start_ns) {
      end = std::max(end.value_or(op->span.end_ns()), op->span.end_ns());
      ++op;
    }
    collective.ready_ns = collective.stream >= 0 ? end : std::nullopt;
  }
}

void assign_steps(bool ddp, KinetoTrace* trace) {
  for (KinetoOp& op : trace->ops) {
    op.step = step_at(trace->steps, op.launch.span.start_ns);
  }
  for (KinetoCollective& collective : trace->collectives) {
    collective.step = step_at(trace->steps, collective.launch.span.start_ns);
    collective.bucket =
        ddp && collective.kind == "all_reduce" && collective.step >= 0 &&
        collective.launch.thread != trace->steps[static_cast<std::size_t>(collective.step)].thread;
  }
}

/// Why GPU operations are left out.
std::string left_out_text(const KinetoTrace& trace) {
  if (!trace.other_runtimes.empty()) {
    return fmt::format(
        "{} GPU operations have no launch that is read (those of {} are not): left out",
        trace.without_launch,
        printable(fmt::format("{}", fmt::join(trace.other_runtimes, ", "))));
  }
  if (trace.calls.empty()) {
    return fmt::format(
        "{} GPU operations, and no row of what launched them (cuda_runtime, cuda_driver, "
        "hip_runtime), as in a trace that was filtered: left out",
        trace.without_launch);
  }
  return fmt::format("{} GPU operations were launched before the recording began: left out",
                     trace.without_launch);
}

void warn(KinetoTrace* trace) {
  std::vector<std::string>& warnings = trace->warnings;
  if (trace->header.repaired > 0) {
    warnings.push_back(
        fmt::format("{} characters or values are not valid JSON (bytes that are not "
                    "UTF-8, N/A, …) and were replaced",
                    trace->header.repaired));
  }
  if (trace->without_launch > 0) {
    warnings.push_back(left_out_text(*trace));
  }
  if (trace->unusable > 0) {
    warnings.push_back(
        fmt::format("{} events have no usable time or length: left out", trace->unusable));
  }
  if (trace->rows == 0) {
    warnings.emplace_back(
        "the trace is empty: it was exported when nothing was recorded, as behind the last active "
        "step of a schedule; export it in on_trace_ready");
  } else if (trace->steps.empty()) {
    warnings.emplace_back(
        "no ProfilerStep, so nothing can be told per step: give torch.profiler.profile a schedule "
        "(without one it marks no steps), as schedule(wait=1, warmup=1, active=12), and call "
        "profiler.step() once a step");
  }
  const auto sizeless = std::ranges::count_if(
      trace->collectives, [](const KinetoCollective& one) { return !one.bytes; });
  if (sizeless > 0) {
    warnings.push_back(
        fmt::format("{} collectives have no size: record with record_shapes=True", sizeless));
  }
}

void sort_host_rows(KinetoTrace* trace) {
  std::ranges::sort(trace->steps, [](const KinetoStep& a, const KinetoStep& b) {
    return a.span.start_ns < b.span.start_ns;
  });
  std::ranges::stable_sort(trace->calls, [](const KinetoCall& a, const KinetoCall& b) {
    return std::pair(a.at.span.start_ns, -a.at.span.duration_ns) <
           std::pair(b.at.span.start_ns, -b.at.span.duration_ns);
  });
  std::ranges::stable_sort(trace->phases, [](const KinetoPhase& a, const KinetoPhase& b) {
    return a.span.start_ns < b.span.start_ns;
  });
  std::ranges::stable_sort(trace->tensors, {}, &KinetoTensor::start_ns);
}

}  // namespace

int step_at(const std::vector<KinetoStep>& steps, std::int64_t time) {
  const auto after = std::upper_bound(
      steps.begin(), steps.end(), time, [](std::int64_t at, const KinetoStep& step) {
        return at < step.span.start_ns;
      });
  if (after == steps.begin() || time >= std::prev(after)->span.end_ns()) {
    return -1;
  }
  return static_cast<int>(after - steps.begin()) - 1;
}

KinetoTrace read_kineto(const std::string& path, const ProgressCallback& on_progress) {
  KinetoTrace trace;
  trace.file = path;
  KinetoCollector collector(&trace);
  trace.header = read_kineto_events(
      path, [&](const KinetoEvent& event) { collector.add(event); }, on_progress);
  collector.finish();
  sort_host_rows(&trace);
  sort_by_launch(&trace.ops);
  sort_by_launch(&trace.collectives);
  assign_steps(collector.has_ddp(), &trace);
  find_ready_times(&trace);
  warn(&trace);
  return trace;
}

}  // namespace stepsim
