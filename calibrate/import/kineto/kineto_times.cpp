#include "calibrate/import/kineto/kineto_times.h"

#include <algorithm>

#include "calibrate/import/kineto/kineto_parts.h"
#include "costmodel/base/index.h"

namespace stepsim {
namespace {

/// The GPU's time for what the host launched in a stretch of a step.
class GpuWork {
 public:
  GpuWork(const KinetoTrace& trace, int step) {
    for (const KinetoOp& op : trace.ops) {
      if (op.step == step) {
        ops_.push_back(&op);
      }
    }
  }
  [[nodiscard]] std::int64_t busy(std::int64_t from, std::int64_t until) const {
    return busy_time(launched(from, until));
  }
  /// From the first start to the last end.
  [[nodiscard]] std::int64_t elapsed(std::int64_t from, std::int64_t until) const {
    const auto spans = launched(from, until);
    if (spans.empty()) {
      return 0;
    }
    const auto last = std::ranges::max_element(spans, {}, &KinetoSpan::end_ns);
    return last->end_ns() - std::ranges::min_element(spans, {}, &KinetoSpan::start_ns)->start_ns;
  }

 private:
  [[nodiscard]] std::vector<KinetoSpan> launched(std::int64_t from, std::int64_t until) const {
    std::vector<KinetoSpan> spans;
    for (const KinetoOp* op : ops_) {
      if (op->launch.span.start_ns >= from && op->launch.span.start_ns < until) {
        spans.push_back(op->span);
      }
    }
    return spans;
  }

  std::vector<const KinetoOp*> ops_;
};

/// When the main thread had stopped waiting for all-reduces at the latest: a thread of gloo may end
/// its row after the main one went on.
std::int64_t wait_until(const KinetoTrace& trace, const KinetoSpan& step, const KinetoPass& last) {
  for (const KinetoPhase& phase : trace.phases) {
    if (phase.part == KinetoPart::Optimizer && phase.span.start_ns >= last.backward_end_ns &&
        phase.span.start_ns < step.end_ns()) {
      return phase.span.start_ns;
    }
  }
  return step.end_ns();
}

}  // namespace

double kineto_ms(std::int64_t nanoseconds) {
  constexpr double kMilliseconds = 1e-6;
  return static_cast<double>(nanoseconds) * kMilliseconds;
}

void take_gpu_times(const KinetoTrace& trace,
                    const KinetoTracedStep& traced,
                    StepRecord& row,
                    KinetoIdle& idle) {
  const KinetoSpan& step = trace.steps[at(traced.step)].span;
  const GpuWork work(trace, traced.step);
  std::int64_t from = step.start_ns;
  for (const KinetoPass& pass : traced.passes.micro_batches) {
    row.forward_ms += kineto_ms(work.busy(from, pass.backward_ns));
    row.backward_ms += kineto_ms(work.busy(pass.backward_ns, pass.backward_end_ns));
    idle.busy_ns += work.busy(pass.forward_ns, pass.backward_end_ns);
    idle.elapsed_ns += work.elapsed(pass.forward_ns, pass.backward_end_ns);
    from = pass.backward_end_ns;
  }
  row.optimizer_ms = kineto_ms(work.busy(from, step.end_ns()));
  const KinetoPass& last = traced.passes.micro_batches.back();
  const double before = row.forward_ms + row.backward_ms -
                        kineto_ms(work.busy(last.backward_ns, last.backward_end_ns));
  for (const KinetoCollective* one : traced.buckets) {
    const double launch =
        before + kineto_ms(work.busy(last.backward_ns, one->launch.span.start_ns));
    row.buckets.push_back({one->bytes.value_or(0), launch, launch});
  }
}

void take_host_times(const KinetoTrace& trace, const KinetoTracedStep& traced, StepRecord& row) {
  const KinetoSpan& step = trace.steps[at(traced.step)].span;
  const auto& passes = traced.passes.micro_batches;
  row.data_ms = kineto_ms(passes.front().forward_ns - step.start_ns);
  std::int64_t from = passes.front().forward_ns;
  for (const KinetoPass& pass : passes) {
    row.forward_ms += kineto_ms(pass.backward_ns - from);
    row.backward_ms += kineto_ms(pass.backward_end_ns - pass.backward_ns);
    from = pass.backward_end_ns;
  }
  for (const KinetoCollective* one : traced.buckets) {
    from = std::max(from, one->span.end_ns());
    row.buckets.push_back({one->bytes.value_or(0),
                           kineto_ms(one->span.start_ns - step.start_ns),
                           kineto_ms(one->span.end_ns() - step.start_ns)});
  }
  from = std::min(from,
                  std::max(wait_until(trace, step, passes.back()), passes.back().backward_end_ns));
  row.wait_ms = kineto_ms(from - passes.back().backward_end_ns);
  row.optimizer_ms = kineto_ms(step.end_ns() - from);
}

}  // namespace stepsim
