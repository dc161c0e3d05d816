#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/samples/overlap_sample.h"
#include "calibrate/training/trainer_step.h"
#include "costmodel/base/input_error.h"
#include "costmodel/io/json_file.h"
#include "costmodel/model/batch_shape.h"
#include "costmodel/model/transformer.h"
#include "costmodel/network/collective_cost.h"

namespace stepsim {

/// Seeds the weights, equal on all ranks; rank r draws its data from the seed kWeightSeed + 1 + r.
inline constexpr std::uint64_t kWeightSeed = 20240501;

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
  double launch_seconds = 0;        ///< Host time to launch one op of the step.
  double kernel_floor_seconds = 0;  ///< Device time of an empty kernel.
  int queue_depth = 0;  ///< Launches that wait in the driver before the host has to; 0 = unknown.
  std::vector<std::pair<std::int64_t, double>> host_to_device;  ///< Bytes, seconds of a copy.
};

/// One real training step of a rank, in seconds. `start` and `end` are on a clock that all ranks of
/// the host share (CLOCK_MONOTONIC).
struct TrainedStep : TrainerStep {
  double start = 0;
  double end = 0;
  double thread_cpu = 0;  ///< CPU time of the computing thread; 0 = not measured.
  struct Bucket {
    std::int64_t bytes = 0;
    double launch = 0;  ///< Seconds since the start of the step, as is `end`.
    double end = 0;
  };
  std::vector<Bucket> buckets;
};

/// What one rank trains on in a step: samples of these lengths, padded to the longest or to
/// `padded_length` where that is more.
struct StepBatch {
  std::vector<std::int64_t> lengths;
  std::int64_t padded_length = 0;
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
  int dropped = 0;    ///< Steps and collectives whose times hold launches: they are left out.
  int throttled = 0;  ///< Steps that ran while heat held the clock down.
  double cooled_seconds = 0;  ///< Waited for the device to cool down.
  bool operator==(const Disturbances&) const = default;
};

/// What a kernel in the place of a collective has to do: it occupies the device, first waiting for
/// peers and then transferring, both in seconds.
struct StandIn {
  double wait = 0;
  double transfer = 0;
};

/// How a collective occupies a device. Source: NVIDIA/nccl#689, one block a channel of 512 threads;
/// an all-reduce moves 2 to 3 times its size through each device's memory.
struct StandInShape {
  int channels = 16;
  double traffic = 2.5;  ///< Bytes moved through memory for each byte of the bucket.
};

/// Where measurements come from, and what a live run trains on: one rank of a group of processes
/// that measure together, so that every time includes what the neighbours take (memory bandwidth,
/// shared cores).
class Backend {
 public:
  virtual ~Backend() = default;

  /// The ops of one training step in execution order: collate, zero gradients, forward, backward
  /// with the gradient copies where DDP does them, copies out, optimizer.
  [[nodiscard]] virtual const std::vector<Op>& ops() const = 0;

  /// Runs one step on random data of these lengths and times each op where it runs in the step, so
  /// that it finds its inputs where a real step leaves them. Seconds, in the order of ops(); empty
  /// when they could not be had (Disturbances).
  [[nodiscard]] virtual std::vector<double> time_step(std::span<const std::int64_t> lengths) = 0;

  /// The collectives that time_collective() can time.
  [[nodiscard]] virtual std::vector<CollectiveKind> collectives() const = 0;

  /// Runs `calls` collectives of `bytes` (the whole buffer) each, back to back. The time of one
  /// call is the last end of all ranks less their last arrival, over `calls`.
  [[nodiscard]] virtual CollectiveTimes time_collective(CollectiveKind kind,
                                                        Bytes bytes,
                                                        int calls) = 0;

  /// Does what steps of these batches need once, such as compiling and growing buffers, before they
  /// are timed. Returns the batches that cannot run here, the same on all ranks: no rank may run
  /// them.
  [[nodiscard]] virtual std::vector<RefusedBatch> prepare(std::span<const StepBatch> /*batches*/) {
    return {};
  }

  /// Runs a step once before steps of this batch are timed, unless prepare() has done all that is
  /// to be done.
  virtual void warm_up(std::span<const std::int64_t> lengths) {
    static_cast<void>(time_step(lengths));
  }

  /// What prepare() has built so far.
  [[nodiscard]] virtual std::vector<PreparedPlan> prepared_plans() const { return {}; }

  [[nodiscard]] virtual Disturbances disturbances() const { return {}; }

  /// Runs one DDP step on random data of these lengths, padded to the longest or to `padded_length`
  /// where that is more. The gradients of each bucket are all-reduced while the backward goes on.
  /// Raises InputError when there are no samples, or a length that the model does not accept.
  [[nodiscard]] virtual TrainedStep train_step(std::span<const std::int64_t> lengths,
                                               double loss_scale,
                                               std::int64_t padded_length) = 0;

  /// Runs train_step() on one device that plays one of several ranks, with a stand-in in the place
  /// of each bucket's collective, in launch order, or without any. Raises InputError when the
  /// backend has no stand-in.
  [[nodiscard]] virtual TrainedStep emulate_step(std::span<const std::int64_t> /*lengths*/,
                                                 double /*loss_scale*/,
                                                 std::int64_t /*padded_length*/,
                                                 std::span<const StandIn> /*collectives*/) {
    throw InputError("ranks can be emulated on a CUDA device only; use --device cuda");
  }

  /// Sets the buckets of the following steps: parameter indices in launch order. Raises InputError
  /// unless every parameter occurs exactly once.
  virtual void set_buckets(const std::vector<std::vector<int>>& buckets) = 0;

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

/// The lengths of the sentinel step, which calibration and live runs repeat to see the machine
/// drift: 8 samples of 128 tokens, or of the model's longest length when that is less.
[[nodiscard]] inline std::vector<std::int64_t> sentinel_lengths(const TransformerConfig& model) {
  const std::int64_t longest = model.max_length > 0 ? model.max_length : 128;
  return std::vector<std::int64_t>(8, std::min<std::int64_t>(128, longest));
}

}  // namespace stepsim
