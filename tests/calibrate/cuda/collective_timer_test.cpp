#include "calibrate/cuda/timing/collective_timer.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "calibrate/ranks/rank_processes.h"
#include "costmodel/base/input_error.h"

namespace stepsim::cuda {

TEST_CASE("every collective of NCCL is timed, at sizes that do not divide by the ranks too") {
  for (const int ranks : {1, 3}) {
    CAPTURE(ranks);
    int right = 0;
    run_ranks(
        ranks,
        [](const RankContext& context) {
          const std::string id = context.broadcast(context.rank() == 0 ? nccl_unique_id() : "");
          NcclGroup group(context.rank(), context.ranks(), id);
          const Stream stream;
          CollectiveTimer timer(group, stream);
          bool good = true;
          for (const CollectiveKind kind : cuda_collectives()) {
            for (const std::int64_t bytes : {1, 1000, 300000}) {
              const double once = timer.seconds(kind, Dtype::Bf16, bytes, 1).value_or(0);
              const double often = timer.seconds(kind, Dtype::F32, bytes, 5).value_or(0);
              good = good && once > 0 && once < 10 && often > 0 && often < 10;
            }
          }
          timer.barrier();
          context.send(good ? "right" : "wrong");
        },
        [&](int, const std::string& line) { right += line == "right" ? 1 : 0; });
    CHECK(right == ranks);
  }
}

TEST_CASE("a collective that NCCL is not asked for is a fault that names it") {
  NcclGroup group(0, 1, nccl_unique_id());
  const Stream stream;
  CHECK_THROWS_WITH_AS(put_collective(group, stream, CollectiveKind::AllToAll, {}, 0),
                       "the CUDA backend has no collective all_to_all",
                       EnvironmentFault);
}

}  // namespace stepsim::cuda
