// Compiles, without a GPU, the fused attention of every batch that plans hold and that a
// calibration for them measures: what cuDNN refuses is known before a GPU is there.
//
// usage: attention_plans PLAN…   over the fake driver, see the README of calibrate/cuda
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "calibrate/cuda/attention/sdpa_passes.h"
#include "calibrate/cuda/ops/op_runner.h"
#include "calibrate/measure/clock.h"
#include "calibrate/samples/grid.h"
#include "costmodel/base/input_error.h"
#include "costmodel/records/plan_file.h"
#include "tests/calibrate/cuda/described_card.h"

using namespace stepsim;
using namespace stepsim::cuda;

namespace {

void add(std::set<SdpaShape>& shapes,
         const TransformerConfig& model,
         const std::vector<std::int64_t>& lengths,
         std::int64_t padded_length) {
  if (!lengths.empty()) {
    BatchShape batch = batch_shape(lengths);
    batch.max_length = std::max(batch.max_length, padded_length);
    shapes.insert(compiled_shape(sdpa_shape(model, batch)));
  }
}

/// Compiles them on all cores; returns how many could not be.
int compile(const std::vector<SdpaShape>& shapes) {
  const CudnnDescriptor device = device_of(kH200);
  std::atomic<std::size_t> next = 0;
  std::atomic<int> refused = 0;
  const double start = clock_seconds();
  const auto work = [&] {
    for (std::size_t i = next++; i < shapes.size(); i = next++) {
      try {
        static_cast<void>(sdpa_passes(shapes[i], device));
      } catch (const EnvironmentFault& fault) {
        ++refused;
        std::printf("refused: %s\n", fault.what());
      }
    }
  };
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 1; i < cores; ++i) {
      threads.emplace_back(work);
    }
    work();
  }
  const double seconds = clock_seconds() - start;
  std::printf(
      "%zu shapes of attention compiled for %s in %.0f s on %u cores, %.2f s of a core each, %d "
      "refused\n",
      shapes.size(),
      kH200.name,
      seconds,
      cores,
      seconds * cores / static_cast<double>(shapes.size()),
      refused.load());
  return refused;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<Plan> plans;
    for (int i = 1; i < argc; ++i) {
      plans.push_back(read_plan(argv[i]));
    }
    const GridBox box = box_of_plans(plans);
    std::set<SdpaShape> shapes;
    for (const Plan& plan : plans) {
      for (const MicroBatch& batch : plan.micro_batches) {
        add(shapes, plan.model, batch.attended(), batch.padded_length);
      }
    }
    const std::size_t of_plans = shapes.size();
    const TransformerConfig& model = plans.front().model;
    for (const GridPoint& point : make_grid(box, {}, model.max_length)) {
      for (const GridPoint& paired : in_tile_pairs({point}, box)) {
        add(shapes, model, point_lengths(paired, box.padded), 0);
      }
    }
    std::printf("cuDNN %s: %zu shapes of the plans, %zu more of the finest grid\n",
                cudnn_version().c_str(),
                of_plans,
                shapes.size() - of_plans);
    return compile({shapes.begin(), shapes.end()}) == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::printf("error: %s\n", error.what());
    return 2;
  }
}
