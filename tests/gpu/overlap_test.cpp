#include <doctest/doctest.h>

#include "calibrate/cuda/timing/overlap_probe.h"
#include "costmodel/model/model_presets.h"
#include "tests/gpu/checks.h"

namespace stepsim::cuda::test {

// Not on the emulated device, where nothing runs at the same time.
TEST_CASE("library: compute beside a stand-in is timed, for every kind and number of channels") {
  TransformerConfig model = model_preset("gpt2-small");
  model.attention = AttentionKind::Flash;
  model.dtype = Dtype::Bf16;
  NcclGroup group(0, 1, nccl_unique_id());
  const Stream compute;
  const Stream communication;
  const std::vector<OverlapSample> samples =
      probe_overlaps(model, group, compute, communication, Dtype::F32, {});
  CHECK(samples.size() == 4 * 3);
  for (const OverlapSample& sample : samples) {
    CAPTURE(sample.compute);
    CAPTURE(sample.channels);
    CHECK(sample.collective_alone > 0);
    CHECK(sample.collective_beside == 0);
    CHECK(sample.compute_beside > 0.95 * sample.compute_alone);
    CHECK(sample.compute_beside < 5 * sample.compute_alone);
  }
}

}  // namespace stepsim::cuda::test
