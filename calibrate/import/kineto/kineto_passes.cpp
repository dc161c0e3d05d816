#include "calibrate/import/kineto/kineto_passes.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

namespace stepsim {
namespace {

using Phases = std::vector<const KinetoPhase*>;

/// The phases of a step that begin in it, in order.
Phases phases_in(const KinetoTrace& trace,
                 const KinetoSpan& step,
                 KinetoPart part,
                 bool annotated) {
  Phases found;
  auto phase = std::ranges::lower_bound(
      trace.phases, step.start_ns, {}, [](const KinetoPhase& one) { return one.span.start_ns; });
  for (; phase != trace.phases.end() && phase->span.start_ns < step.end_ns(); ++phase) {
    // An annotation inside another one of its kind is a part of the same pass.
    const bool inside =
        annotated && !found.empty() && phase->span.start_ns < found.back()->span.end_ns();
    if (phase->part == part && phase->annotated == annotated && !inside) {
      found.push_back(&*phase);
    }
  }
  return found;
}

/// Traces without rows of autograd may still name the pass.
Phases backward_phases(const KinetoTrace& trace, const KinetoSpan& step) {
  const Phases nodes = phases_in(trace, step, KinetoPart::Backward, false);
  return nodes.empty() ? phases_in(trace, step, KinetoPart::Backward, true) : nodes;
}

}  // namespace

KinetoPasses kineto_passes(const KinetoTrace& trace, int step) {
  const KinetoSpan& span = trace.steps[static_cast<std::size_t>(step)].span;
  KinetoPasses result;
  std::vector<std::int64_t> starts;
  for (const KinetoPhase* forward : phases_in(trace, span, KinetoPart::Forward, true)) {
    starts.push_back(forward->span.start_ns);
  }
  result.annotated = !starts.empty();
  if (starts.empty()) {
    starts.push_back(span.start_ns);
  }
  const Phases nodes = backward_phases(trace, span);
  if (nodes.empty()) {
    result.problem = "it has no backward pass";
    return result;
  }
  if (nodes.front()->span.start_ns < starts.front()) {
    result.problem =
        "its backward pass begins before its forward pass: call profiler.step() at the end of the "
        "loop";
    return result;
  }
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::int64_t until =
        i + 1 < starts.size() ? starts[i + 1] : std::numeric_limits<std::int64_t>::max();
    KinetoPass pass = {starts[i], -1, -1};
    for (const KinetoPhase* node : nodes) {
      if (node->span.start_ns >= starts[i] && node->span.start_ns < until) {
        pass.backward_ns = pass.backward_ns < 0 ? node->span.start_ns : pass.backward_ns;
        pass.backward_end_ns = std::max(pass.backward_end_ns, node->span.end_ns());
      }
    }
    if (pass.backward_ns < 0) {
      result.micro_batches.clear();
      result.problem = fmt::format(
          "{} of its {} forward passes has no backward pass of its own", i + 1, starts.size());
      return result;
    }
    result.micro_batches.push_back(pass);
  }
  return result;
}

}  // namespace stepsim
