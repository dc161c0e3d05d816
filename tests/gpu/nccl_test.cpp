#include <doctest/doctest.h>

#include "calibrate/cuda/collectives/nccl_group.h"
#include "calibrate/cuda/timing/collective_timer.h"
#include "tests/gpu/checks.h"

// What one device can show of NCCL: that its calls are accepted, and change nothing with one rank.

namespace stepsim::cuda::test {

TEST_CASE("library: a collective of one rank leaves its data as they are, in every dtype") {
  constexpr std::int64_t kCount = 1001;
  NcclGroup group(0, 1, nccl_unique_id());
  NcclGroup few(group, 2);
  for (const Dtype dtype : {Dtype::F32, Dtype::Bf16, Dtype::F16}) {
    CAPTURE(name_of(dtype));
    const DeviceArray data(dtype, numbers(kCount, 3));
    for (NcclGroup* each : {&group, &few}) {
      for (const CollectiveKind kind : cuda_collectives()) {
        put_collective(*each, stream(), kind, data.array(), kCount);
      }
    }
    CHECK(data.read() == data.values());
  }
}

TEST_CASE("library: collectives of one rank are timed") {
  NcclGroup group(0, 1, nccl_unique_id());
  CollectiveTimer timer(group, stream());
  for (const CollectiveKind kind : cuda_collectives()) {
    CAPTURE(name_of(kind));
    const std::optional<double> seconds = timer.seconds(kind, Dtype::F32, 1 << 20, 5);
    REQUIRE(seconds);
    CHECK(*seconds >= 0);  // In place, NCCL may have nothing to launch for one rank.
    CHECK(*seconds < 0.1);
  }
  timer.barrier();
}

}  // namespace stepsim::cuda::test
