#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "calibrate/samples/measure_plan.h"
#include "calibrate/samples/overlap_sample.h"
#include "costmodel/io/json_value.h"
#include "costmodel/model/batch_shape.h"
#include "costmodel/model/transformer.h"
#include "costmodel/records/profile.h"

namespace stepsim {

/// An op's time at one batch shape, over all repetitions, passes and ranks, with its spread: see
/// read_samples().
struct OpSample {
  Op op;  ///< Class, pass, rows, sizes, dtype (name and completes are left out).
  BatchShape batch;
  double seconds = 0;
  double p20 = 0;
  double p80 = 0;
  int repetitions = 0;
  double per_step = 1;  ///< How often one step runs it.
};

struct CollectiveSample {
  std::string kind = "all_reduce";
  int ranks = 0;
  int nodes = 1;
  std::int64_t bytes = 0;
  /// When measured here, the mean over repetitions and passes without the slowest 1 %: between busy
  /// ranks the times have two or three levels, and many steps take their mean, not the middle one.
  /// When imported, the median over the rows of this size of the faster of out-of-place and
  /// in-place.
  double seconds = 0;
  /// The noise as a fraction. When measured here, half the distance of p20 and p80; when imported,
  /// |out-of-place - in-place|, or half that distance where there is only one of both.
  double noise = 0;
  int repetitions = 0;
  std::vector<double> all_seconds;  ///< Every repetition; empty when imported.
  bool pipelined = false;           ///< Calls went back to back, instead of one by itself.
};

/// The time of a small step that is repeated again and again, to see the machine drift.
struct SentinelSample {
  double seconds = 0;
  double at_seconds = 0;  ///< Measuring time since the start, without interruptions.
};

/// The times of one and the same step in every repetition, pass and rank, which show the jitter.
struct JitterSample {
  BatchShape batch;
  std::vector<double> step_seconds;
};

/// A batch shape of the grid that cannot run here, and why.
struct RefusedPoint {
  GridPoint point;
  std::string why;
};

/// What it took the host of a GPU to put a training step in, or how much more to meet its shape
/// first:
/// {"kind":"host"|"meeting","pass","rank","samples","max_length","ops","forward_us","backward_us",
/// "optimizer_us"}.
struct HostSample {
  GridPoint point;
  int ops = 1;     ///< Of the step.
  int copies = 0;  ///< Of those, DDP's copies of gradients.
  int round = 0;   ///< Of the measurement: the host's speed differs between rounds.
  double forward_seconds = 0;
  double backward_seconds = 0;
  double optimizer_seconds = 0;
};

/// What came between the samples of a file.
struct DisturbedSamples {
  std::int64_t dropped = 0;    ///< Times that hold launches; they are not in the file.
  std::int64_t throttled = 0;  ///< Steps that ran while heat held the clock down.
  double cooled_seconds = 0;   ///< Waited for the device to cool down.
};

/// What a samples file holds, with repetitions already combined. (Named so because `Samples` is a
/// counted type.)
struct SampleSet {
  JsonValue header;           ///< Device, versions, date, command, and the measuring plan.
  MeasurePlan plan;           ///< The default one when the file holds imports only.
  std::vector<OpSample> ops;  ///< By op, then batch shape, both in order of first appearance.
  std::vector<CollectiveSample> collectives;  ///< By collective, ranks, nodes and size.
  JsonValue imports;  ///< An array: what is known of each imported log; null without any.
  std::vector<OverlapSample> overlaps;
  std::vector<SentinelSample> sentinels;
  std::vector<JitterSample> jitter;
  std::vector<RefusedPoint> refused;
  std::vector<HostSample> hosts;     ///< Steps as in training, of a small shape.
  std::vector<HostSample> meetings;  ///< What the first step of a shape took more than the second.
  std::vector<UnitHostTimes> unit_hosts;  ///< [rank] Hooks and optimizer of sharded training.
  DisturbedSamples disturbed;
};

/// "format": "stepsim-samples/1". A truncated last line is dropped with a warning; other damage
/// raises InputError with file:line.
///
/// The ops of one batch shape are scaled by a common factor so that their sum is the median of the
/// whole step, since medians of parts leave out the hiccups that every step has somewhere; and by
/// how much longer steps are on average than at their median, over all shapes without the slowest
/// 1 % of them.
[[nodiscard]] SampleSet read_samples(const std::string& path, std::vector<std::string>* warnings);

}  // namespace stepsim
