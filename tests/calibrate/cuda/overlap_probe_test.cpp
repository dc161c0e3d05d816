#include "calibrate/cuda/timing/overlap_probe.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "calibrate/cuda/timing/overlap_work.h"
#include "calibrate/ranks/rank_processes.h"
#include "costmodel/model/model_presets.h"

namespace stepsim::cuda {
namespace {

TransformerConfig flash_model() {
  TransformerConfig model = model_preset("tiny-classifier");
  model.attention = AttentionKind::Flash;
  model.dtype = Dtype::Bf16;
  model.heads = 3;  // Of 16: fused kernels take multiples of 8.
  model.kv_heads = 3;
  return model;
}

}  // namespace

TEST_CASE("what runs beside is repeated to last half as long again") {
  CHECK(repetitions_to_cover(1e-3, 1e-4) == 15);
  CHECK(repetitions_to_cover(1e-3, 1) == 2);
  CHECK(repetitions_to_cover(1, 1e-6) == 200);
}

TEST_CASE("the compute of an overlap is the model's GEMM, its fused attention and a copy") {
  const Stream stream;
  TransformerConfig model = flash_model();
  const auto names = [&] {
    std::vector<std::string> found;
    for (const auto& work : overlap_works(model, stream, 64, 1000)) {
      work->put(stream);
      found.push_back(work->name());
    }
    return found;
  };
  CHECK(names() == std::vector<std::string>{"gemm", "attention", "memory"});
  model.attention = AttentionKind::Dense;
  CHECK(names() == std::vector<std::string>{"gemm", "memory"});
}

// Nothing runs at the same time on the emulated device: the probe notices that, on all ranks alike.
TEST_CASE("what did not run side by side is no sample, on one rank and on several") {
  for (const int ranks : {1, 2}) {
    CAPTURE(ranks);
    int empty = 0;
    run_ranks(
        ranks,
        [](const RankContext& context) {
          const std::string id = context.broadcast(context.rank() == 0 ? nccl_unique_id() : "");
          NcclGroup group(context.rank(), context.ranks(), id);
          const Stream compute;
          const Stream communication;
          OverlapSetting setting;
          setting.channels = {1, 2};
          setting.collective_bytes = 4096;
          setting.tokens = 64;
          setting.copy_elements = 1000;
          setting.repetitions = 1;
          const std::vector<OverlapSample> samples =
              probe_overlaps(flash_model(), group, compute, communication, Dtype::F32, setting);
          context.send(samples.empty() ? "empty" : "samples");
        },
        [&](int, const std::string& line) { empty += line == "empty" ? 1 : 0; });
    CHECK(empty == ranks);
  }
}

}  // namespace stepsim::cuda
