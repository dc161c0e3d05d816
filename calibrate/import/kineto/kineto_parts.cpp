#include "calibrate/import/kineto/kineto_parts.h"

#include <algorithm>
#include <utility>

#include "costmodel/base/mapped.h"

namespace stepsim {
namespace {

using Spans = std::vector<KinetoSpan>;

/// Disjoint, ascending.
Spans united(Spans spans) {
  std::ranges::sort(spans, {}, &KinetoSpan::start_ns);
  Spans result;
  for (const KinetoSpan& span : spans) {
    if (!result.empty() && span.start_ns <= result.back().end_ns()) {
      KinetoSpan& last = result.back();
      last.duration_ns = std::max(last.end_ns(), span.end_ns()) - last.start_ns;
    } else {
      result.push_back(span);
    }
  }
  return result;
}

std::int64_t length(const Spans& disjoint) {
  return sum_of(disjoint, &KinetoSpan::duration_ns);
}

void append(const Spans& from, Spans* to) {
  to->insert(to->end(), from.begin(), from.end());
}

/// The parts of one step on the host.
class HostParts {
 public:
  HostParts(const KinetoTrace& trace, const KinetoStep& step) {
    auto phase = std::lower_bound(
        trace.phases.begin(),
        trace.phases.end(),
        step.span.start_ns,
        [](const KinetoPhase& one, std::int64_t time) { return one.span.start_ns < time; });
    for (; phase != trace.phases.end() && phase->span.start_ns < step.span.end_ns(); ++phase) {
      if (phase->annotated) {
        annotated_.push_back(&*phase);
        has_forward_ = has_forward_ || phase->part == KinetoPart::Forward;
        has_backward_ = has_backward_ || phase->part == KinetoPart::Backward;
      } else {
        backward_start_ = backward_start_.value_or(phase->span.start_ns);
        backward_end_ = std::max(backward_end_, phase->span.end_ns());
      }
    }
  }

  /// Index into KinetoStepTime::parts.
  [[nodiscard]] std::size_t part_of(const KinetoLaunch& launch) const {
    for (const KinetoPart part :
         {KinetoPart::Optimizer, KinetoPart::Backward, KinetoPart::Forward}) {
      const bool by_nodes = part == KinetoPart::Backward && !has_backward_ && backward_start_ &&
                            holds(*backward_start_, backward_end_, launch);
      if (by_nodes || is_annotated(part, launch)) {
        return static_cast<std::size_t>(part);
      }
    }
    const bool before = backward_start_ && launch.span.start_ns < *backward_start_;
    return !has_forward_ && before ? static_cast<std::size_t>(KinetoPart::Forward)
                                   : kKinetoParts - 1;
  }

 private:
  /// The backward pass runs on a thread of its own while the main one waits in its annotation.
  [[nodiscard]] bool is_annotated(KinetoPart part, const KinetoLaunch& launch) const {
    return std::ranges::any_of(annotated_, [&](const KinetoPhase* phase) {
      const bool thread = part == KinetoPart::Backward || phase->thread == launch.thread;
      return phase->part == part && thread &&
             holds(phase->span.start_ns, phase->span.end_ns(), launch);
    });
  }

  static bool holds(std::int64_t start, std::int64_t end, const KinetoLaunch& launch) {
    return launch.span.start_ns >= start && launch.span.start_ns < end;
  }

  std::vector<const KinetoPhase*> annotated_;
  bool has_forward_ = false;
  bool has_backward_ = false;
  std::optional<std::int64_t> backward_start_;  ///< The start of the first node of autograd.
  std::int64_t backward_end_ = 0;
};

KinetoPartTime part_time(const Spans& spans) {
  const Spans busy = united(spans);
  const std::int64_t elapsed = busy.empty() ? 0 : busy.back().end_ns() - busy.front().start_ns;
  return {static_cast<std::int64_t>(spans.size()), length(busy), elapsed};
}

KinetoStepTime step_time(const std::array<Spans, kKinetoParts>& parts, const Spans& collectives) {
  KinetoStepTime time;
  Spans compute;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    time.parts[i] = part_time(parts[i]);
    append(parts[i], &compute);
  }
  Spans all = compute;
  append(collectives, &all);
  all = united(std::move(all));
  time.compute_ns = length(united(std::move(compute)));
  time.collective_ns = length(united(collectives));
  time.both_ns = time.compute_ns + time.collective_ns - length(all);
  time.window_ns = all.empty() ? 0 : all.back().end_ns() - all.front().start_ns;
  return time;
}

std::int64_t first_start(const Spans& spans) {
  return std::ranges::min_element(spans, {}, &KinetoSpan::start_ns)->start_ns;
}

}  // namespace

std::int64_t busy_time(std::vector<KinetoSpan> spans) {
  return length(united(std::move(spans)));
}

std::vector<KinetoStepTime> kineto_step_times(const KinetoTrace& trace) {
  const std::vector<HostParts> hosts =
      mapped(trace.steps, [&](const KinetoStep& step) { return HostParts(trace, step); });
  std::vector<std::array<Spans, kKinetoParts>> parts(trace.steps.size());
  std::vector<Spans> collectives(trace.steps.size());
  for (const KinetoOp& op : trace.ops) {
    if (op.step >= 0) {
      const auto step = static_cast<std::size_t>(op.step);
      parts[step][hosts[step].part_of(op.launch)].push_back(op.span);
    }
  }
  for (const KinetoCollective& one : trace.collectives) {
    if (one.step >= 0 && one.stream >= 0) {
      collectives[static_cast<std::size_t>(one.step)].push_back(one.span);
    }
  }
  std::vector<KinetoStepTime> times;
  for (std::size_t s = 0; s < trace.steps.size(); ++s) {
    times.push_back(step_time(parts[s], collectives[s]));
  }
  for (const KinetoCollective& one : trace.collectives) {
    const auto step = static_cast<std::size_t>(std::max(one.step, 0));
    if (!one.bucket || !one.ready_ns) {
      continue;
    }
    const Spans& backward = parts[step][static_cast<std::size_t>(KinetoPart::Backward)];
    if (!backward.empty()) {
      times[step].buckets.push_back({one.bytes, *one.ready_ns - first_start(backward)});
    }
  }
  return times;
}

}  // namespace stepsim
