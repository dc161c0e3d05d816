#include "sim/predict/memory_curve.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "costmodel/model/memory.h"
#include "sim/predict/predict.h"
#include "sim/predict/run/run.h"
#include "sim/predict/step_lowering.h"

namespace stepsim {
namespace {

double mib(Bytes bytes) {
  return static_cast<double>(bytes.value()) / 0x1p20;
}

/// When a rank's device begins each op.
class OpBegins {
 public:
  OpBegins(const StepTimeline& timeline, int rank) : start_(timeline.ranks[at(rank)].start) {
    for (const TraceSpan& span : timeline.spans) {
      if (span.rank == rank && span.stream == kComputeStream && span.label >= 0) {
        begins_[span.label].push_back(to_ms(span.begin - start_));
      }
    }
    for (auto& [label, begins] : begins_) {
      std::ranges::sort(begins);
    }
  }

  /// Of a label in its micro-batch; `otherwise` where it was not played.
  [[nodiscard]] double of(int label, int micro_batch, double otherwise) const {
    const auto known = begins_.find(label);
    return known != begins_.end() && at(micro_batch) < known->second.size()
               ? known->second[at(micro_batch)]
               : otherwise;
  }

 private:
  SimTime start_;
  std::map<int, std::vector<double>> begins_;  ///< [label] by micro-batch.
};

/// Parts of which nothing is held at any time.
void leave_out_unused(MemoryCurve& curve) {
  for (std::size_t part = curve.parts.size(); part-- > 0;) {
    const auto offset = static_cast<std::ptrdiff_t>(part);
    if (std::ranges::all_of(curve.points,
                            [&](const MemoryPoint& point) { return point.mib[part] == 0; })) {
      curve.parts.erase(curve.parts.begin() + offset);
      for (MemoryPoint& point : curve.points) {
        point.mib.erase(point.mib.begin() + offset);
      }
    }
  }
}

}  // namespace

double MemoryPoint::total_mib() const {
  return sum_of(mib);
}

bool has_memory_curve(const Scenario& scenario) {
  return !scenario.parallel->memory_curve(parallel_job(scenario), step_ops(scenario))
              .points.empty();
}

LargestBatch largest_batch(const Run& run) {
  const PeakMemory memory(run.scenario().model, memory_options(run.scenario()));
  const std::vector<Bytes> peaks = mapped(run.planned().different, [&](const RunBatch& batch) {
    return memory.at(batch.shape).total();
  });
  const std::size_t micro_batches = at(run.scenario().ddp.accumulation_steps);
  const std::size_t of_step = at(run.scenario().ranks) * micro_batches;
  LargestBatch largest;
  largest.number = at(run.scenario().warmup_steps) * of_step;
  for (std::size_t i = largest.number; i < run.batches(); ++i) {
    if (peaks[run.planned().batches[i]] > peaks[run.planned().batches[largest.number]]) {
      largest.number = i;
    }
  }
  largest.step = static_cast<int>(largest.number / of_step);
  largest.rank = static_cast<int>(largest.number % of_step / micro_batches);
  return largest;
}

std::optional<MemoryCurve> memory_curve(const Run& run,
                                        const LargestBatch& largest,
                                        const StepTimeline& timeline) {
  const Scenario& scenario = run.scenario();
  const StepOps ops = step_ops(scenario);
  const HeldCurve held = scenario.parallel->memory_curve(parallel_job(scenario), ops);
  if (held.points.empty()) {
    return std::nullopt;
  }
  MemoryCurve curve;
  curve.step = largest.step;
  curve.rank = largest.rank;
  curve.parts.assign(held.parts.begin(), held.parts.end());
  for (const char* part : {"optimizer", "copies of weights", "activations", "logits", "fixed"}) {
    curve.parts.emplace_back(part);
  }
  const OpBegins begins(timeline, largest.rank);
  MemoryOptions options = memory_options(scenario);
  double now = 0;
  for (const HeldPoint& point : held.points) {
    options.moments = {point.moment};
    const MemoryUse use = PeakMemory(scenario.model, options).at(run.batch(largest.number).shape);
    const int before = point.backward ? static_cast<int>(ops.forward.size()) : 0;
    if (point.ops > 0) {
      now = std::max(now, begins.of(before + point.ops - 1, point.micro_batch, now));
    }
    MemoryPoint& shown = curve.points.emplace_back();
    shown.ms = now;
    shown.event = point.event;
    shown.micro_batch = point.micro_batch;
    shown.backward = point.backward;
    shown.mib = mapped(point.held, mib);
    for (const Bytes bytes :
         {use.optimizer, use.weight_copies, use.activations, use.logits, use.fixed}) {
      shown.mib.push_back(mib(bytes));
    }
    if (shown.total_mib() > curve.points[at(curve.peak)].total_mib()) {
      curve.peak = static_cast<int>(curve.points.size()) - 1;
    }
  }
  leave_out_unused(curve);
  return curve;
}

}  // namespace stepsim
