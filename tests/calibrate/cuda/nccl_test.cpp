#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "calibrate/cuda/collectives/nccl_group.h"
#include "calibrate/ranks/rank_processes.h"
#include "tests/calibrate/cuda/host_array.h"

// The collectives of the emulated device, between processes.

namespace stepsim::cuda {
namespace {

using GroupBody = bool (*)(NcclGroup& group, int rank);

/// Ranks on which `body` returns true.
int ranks_right(int ranks, GroupBody body) {
  int right = 0;
  run_ranks(
      ranks,
      [&](const RankContext& context) {
        const std::string id = context.broadcast(context.rank() == 0 ? nccl_unique_id() : "");
        NcclGroup group(context.rank(), context.ranks(), id);
        context.send(body(group, context.rank()) ? "right" : "wrong");
      },
      [&](int, const std::string& line) { right += line == "right" ? 1 : 0; });
  return right;
}

constexpr std::int64_t kCount = 3 * 40000;  // Several pieces, the last not full.

/// What rank `rank` holds at `index`: small integers, which every dtype holds exactly.
double planted(int rank, std::int64_t index) {
  return static_cast<double>((rank + 1) * (index % 7));
}

/// What the ranks' planted values add up to.
double planted_sum(int ranks, std::int64_t index) {
  return static_cast<double>(ranks * (ranks + 1) / 2 * (index % 7));
}

void plant(Array data, int rank) {
  for (std::int64_t i = 0; i < kCount; ++i) {
    store(data, i, planted(rank, i));
  }
}

bool all_reduce_is_right(NcclGroup& group, int rank) {
  const Stream stream;
  DeviceBuffer buffer(kCount * sizeof(float));
  bool right = true;
  for (const Dtype dtype : {Dtype::F32, Dtype::Bf16, Dtype::F16}) {
    const Array data{buffer.data(), dtype};
    plant(data, rank);
    group.all_reduce(stream, data, kCount);
    for (std::int64_t i = 0; i < kCount; ++i) {
      right = right && load(data, i) == planted_sum(group.ranks(), i);
    }
  }
  return right;
}

/// Each rank has the sum of its share, and nothing else of it was touched.
bool reduce_scatter_and_gather_are_right(NcclGroup& group, int rank) {
  const Stream stream;
  DeviceBuffer buffer(kCount * sizeof(float));
  const Array data{buffer.data(), Dtype::Bf16};
  const std::int64_t share = kCount / group.ranks();
  plant(data, rank);
  group.reduce_scatter(stream, data, kCount);
  bool right = true;
  for (std::int64_t i = 0; i < kCount; ++i) {
    const double expected = i / share == rank ? planted_sum(group.ranks(), i) : planted(rank, i);
    right = right && load(data, i) == expected;
  }
  group.all_gather(stream, data, kCount);
  for (std::int64_t i = 0; i < kCount; ++i) {
    right = right && load(data, i) == planted_sum(group.ranks(), i);
  }
  return right;
}

}  // namespace

TEST_CASE("emulated NCCL: an all-reduce sums over every rank, in each dtype") {
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    CHECK(ranks_right(ranks, all_reduce_is_right) == ranks);
  }
}

TEST_CASE("emulated NCCL: a reduce-scatter with an all-gather behind it is an all-reduce") {
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    CHECK(ranks_right(ranks, reduce_scatter_and_gather_are_right) == ranks);
  }
}

TEST_CASE("emulated NCCL: a group with another number of channels works beside the first") {
  const auto body = [](NcclGroup& group, int rank) {
    NcclGroup few(group, 2);
    return few.ranks() == group.ranks() && all_reduce_is_right(few, rank) &&
           all_reduce_is_right(group, rank);
  };
  CHECK(ranks_right(3, body) == 3);
}

}  // namespace stepsim::cuda
