#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "calibrate/cuda/collectives/nccl_group.h"
#include "calibrate/cuda/device/device.h"
#include "calibrate/cuda/timing/stream_hold.h"
#include "costmodel/network/collective_cost.h"

namespace stepsim::cuda {

/// Puts one collective of NCCL into the stream; `elements` is a multiple of the ranks.
void put_collective(
    NcclGroup& group, const Stream& stream, CollectiveKind kind, Array data, std::int64_t elements);

/// What put_collective() knows: all-reduce, reduce-scatter, all-gather.
[[nodiscard]] std::vector<CollectiveKind> cuda_collectives();

/// Times collectives by the device's clock. The stream is held until the host has put everything
/// into it, and an all-reduce of one element lines the ranks up, so that neither launches nor late
/// ranks are in the time.
class CollectiveTimer {
 public:
  /// Both outlive the timer; `stream` is where collectives go.
  CollectiveTimer(NcclGroup& group, const Stream& stream);

  /// Seconds of `calls` collectives back to back, on this rank; the group's time is that of its
  /// slowest rank. `bytes` of the whole buffer, rounded up to whole elements on every rank. Nothing
  /// when the hold ended before all was in.
  [[nodiscard]] std::optional<double> seconds(CollectiveKind kind,
                                              Dtype dtype,
                                              std::int64_t bytes,
                                              int calls);

  /// Returns when all ranks are here.
  void barrier();

 private:
  void put_barrier();
  /// Runs a collective once before it is timed: NCCL loads kernels and connects ranks when they are
  /// first needed.
  void meet(CollectiveKind kind, Array data, std::int64_t elements);

  NcclGroup& group_;
  const Stream& stream_;
  DeviceBuffer message_;  ///< Zeros, which stay zeros however often they are summed.
  DeviceBuffer token_;    ///< One float that a barrier sums.
  StreamHold hold_;
  std::set<std::tuple<CollectiveKind, Dtype, std::int64_t>> met_;
  Event begin_;
  Event end_;
};

}  // namespace stepsim::cuda
