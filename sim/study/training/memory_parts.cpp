#include "sim/study/training/memory_parts.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>

#include "costmodel/base/index.h"
#include "costmodel/base/units.h"
#include "costmodel/model/memory.h"
#include "sim/predict/predict.h"
#include "sim/predict/run/run.h"

namespace stepsim {

namespace {

constexpr double kMib = 0x1p20;

std::vector<MemoryPart> parts_of(const MemoryUse& use) {
  std::vector<MemoryPart> parts;
  const std::pair<const char*, Bytes> all[] = {{"parameters", use.parameters},
                                               {"gradients", use.gradients},
                                               {"optimizer", use.optimizer},
                                               {"buckets", use.buckets},
                                               {"gathered", use.gathered},
                                               {"copies of weights", use.weight_copies},
                                               {"activations", use.activations},
                                               {"logits", use.logits},
                                               {"fixed", use.fixed}};
  for (const auto& [name, bytes] : all) {
    parts.push_back({name, static_cast<double>(bytes.value()) / kMib});
  }
  return parts;
}

/// Without those of nothing, the largest first.
MemoryParts sorted(MemoryParts memory) {
  std::erase_if(memory.parts, [](const MemoryPart& part) { return part.mib == 0; });
  std::ranges::stable_sort(memory.parts, std::greater(), &MemoryPart::mib);
  return memory;
}

}  // namespace

MemoryParts memory_parts(const MemoryCurve& curve) {
  MemoryParts result{curve.step, curve.rank, {}};
  const MemoryPoint& peak = curve.points[at(curve.peak)];
  for (std::size_t part = 0; part < curve.parts.size(); ++part) {
    result.parts.push_back({curve.parts[part], peak.mib[part]});
  }
  return sorted(std::move(result));
}

MemoryParts memory_parts(const Job& job, const Prediction& prediction) {
  if (prediction.memory_curve) {
    return memory_parts(*prediction.memory_curve);
  }
  const Run run(job);
  const LargestBatch largest = largest_batch(run);
  const PeakMemory memory(run.scenario().model, memory_options(run.scenario()));
  return sorted({largest.step, largest.rank, parts_of(memory.at(run.batch(largest.number).shape))});
}

}  // namespace stepsim
