#include "sim/parallel/ddp/compiled_graphs.h"

#include <utility>

#include "costmodel/base/index.h"

namespace stepsim {

std::vector<std::size_t> compiled_graphs(const TrainedModel& model, const DdpOptions& options) {
  std::vector<std::size_t> ends;
  std::int64_t bytes = 0;
  const bool splits = options.optimize_ddp == OptimizeDdp::DdpOptimizer;
  for (std::size_t op = 0; op < model.completes.size(); ++op) {
    const std::int64_t limit = ends.empty() ? kDefaultFirstBucketBytes : options.bucket_cap.value();
    if (splits && bytes >= limit) {
      ends.push_back(op);
      bytes = 0;
    }
    for (const int parameter : model.completes[op]) {
      bytes += model.parameters[at(parameter)].bytes;
    }
  }
  if (bytes > 0 || ends.empty()) {
    ends.push_back(model.completes.size());
  } else {
    ends.back() = model.completes.size();
  }
  return ends;
}

TrainedModel with_compiled_graphs(TrainedModel model, const DdpOptions& options) {
  if (options.optimize_ddp == OptimizeDdp::Eager) {
    return model;
  }
  std::size_t op = 0;
  for (const std::size_t end : compiled_graphs(model, options)) {
    std::vector<int> ready;
    for (; op < end; ++op) {
      const std::vector<int> completed = std::exchange(model.completes[op], {});
      ready.insert(ready.end(), completed.begin(), completed.end());
    }
    model.completes[end - 1] = std::move(ready);
  }
  return model;
}

}  // namespace stepsim
