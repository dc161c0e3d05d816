#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/samples/overlap_sample.h"
#include "calibrate/samples/sample_log.h"
#include "costmodel/io/json_file.h"
#include "costmodel/model/transformer.h"
#include "costmodel/network/collective_cost.h"

namespace stepsim {

/// What stepcal measures on.
enum class DeviceKind { Cpu, Cuda };
/// "cpu" or "cuda".
[[nodiscard]] constexpr const char* name_of(DeviceKind kind) {
  return kind == DeviceKind::Cpu ? "cpu" : "cuda";
}

/// When one rank took part in a collective, or in several back to back. Seconds on a clock that all
/// ranks of the host share (CLOCK_MONOTONIC). Where ranks share no clock, the arrival is 0 and the
/// end is the time that passed on this rank's own clock.
struct CollectiveTimes {
  double arrival = 0;  ///< The time just before the first call.
  double end = 0;      ///< The time when the last result is in place on this rank.
  /// False: these are no times of the collectives. The other ranks' are worth nothing then, either.
  bool sound = true;
};

/// What the host needs to keep a device busy.
struct HostCosts {
  double launch_seconds = 0;        ///< Host time to launch one op of a step.
  double kernel_floor_seconds = 0;  ///< Device time of an empty kernel.
  int queue_depth = 0;  ///< Launches that wait in the driver before the host has to; 0 = unknown.
  std::vector<std::pair<std::int64_t, double>> host_to_device;  ///< Bytes, seconds of a copy.
};

/// A batch that cannot run here, and why.
struct RefusedBatch {
  std::size_t index = 0;  ///< Among those that were asked for.
  std::string why;
};

/// A library's plan that prepare() has built for a shape, for the record.
struct PreparedPlan {
  std::string shape;
  std::int64_t forward_engine = 0;  ///< The library's number of the kernels that it chose.
  std::int64_t backward_engine = 0;
  std::int64_t workspace_bytes = 0;
  double seconds = 0;  ///< That building took, on one core.
};

/// What came between measurements since the start.
struct Disturbances {
  int dropped = 0;            ///< Ops and collectives whose times hold launches: they are left out.
  int throttled = 0;          ///< Ops that ran while heat held the clock down.
  double cooled_seconds = 0;  ///< Waited for the device to cool down.
  bool operator==(const Disturbances&) const = default;
};

/// The lengths of a batch's samples, which are padded to the longest.
using BatchLengths = std::vector<std::int64_t>;

/// Where measurements come from: one rank of a group of processes that measure together, so that
/// every time includes what the neighbours take (memory bandwidth, shared cores).
class Backend {
 public:
  virtual ~Backend() = default;

  /// The distinct ops of a step that time_op() times; none where PyTorch alone times them.
  [[nodiscard]] virtual const StepOpKinds& ops() const = 0;

  /// Does what the ops of these batches need once, such as compiling and growing buffers, before
  /// they are timed. Returns the batches that cannot run here, the same on all ranks: no rank may
  /// run them.
  [[nodiscard]] virtual std::vector<RefusedBatch> prepare(
      std::span<const BatchLengths> /*batches*/) {
    return {};
  }

  /// Seconds of one call of one of ops() on random data at a batch that has been prepared; nothing
  /// when they could not be had (Disturbances).
  [[nodiscard]] virtual std::optional<double> time_op(const Op& op,
                                                      const BatchLengths& lengths) = 0;

  /// The collectives that time_collective() can time.
  [[nodiscard]] virtual std::vector<CollectiveKind> collectives() const = 0;

  /// Runs `calls` collectives of `bytes` (the whole buffer) each, back to back. The time of one
  /// call is the last end of all ranks less their last arrival, over `calls`.
  [[nodiscard]] virtual CollectiveTimes time_collective(CollectiveKind kind,
                                                        Bytes bytes,
                                                        int calls) = 0;

  /// What prepare() has built so far.
  [[nodiscard]] virtual std::vector<PreparedPlan> prepared_plans() const { return {}; }

  [[nodiscard]] virtual Disturbances disturbances() const { return {}; }

  /// Measures compute and collectives of `bytes` side by side, by channels and kind of compute, on
  /// all ranks at once. All ranks return the same samples: none where the two cannot overlap.
  [[nodiscard]] virtual std::vector<OverlapSample> overlaps(Bytes /*bytes*/) { return {}; }

  /// Waits until every rank is here.
  virtual void barrier() = 0;

  /// What the host's part costs; absent where the host computes itself.
  [[nodiscard]] virtual std::optional<HostCosts> host_costs() { return std::nullopt; }

  /// Names the device, library versions and threads. "backend" is cpu or cuda, "device" the device,
  /// and "collectives" the library that reduces (gloo, nccl).
  [[nodiscard]] virtual Json description() const = 0;
};

/// The lengths of the sentinel step, which calibration repeats to see the machine
/// drift: 8 samples of 128 tokens, or of the model's longest length when that is less.
[[nodiscard]] inline BatchLengths sentinel_lengths(const TransformerConfig& model) {
  const std::int64_t longest = model.max_length > 0 ? model.max_length : 128;
  return BatchLengths(8, std::min<std::int64_t>(128, longest));
}

}  // namespace stepsim
