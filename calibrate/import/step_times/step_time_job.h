#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "costmodel/compute/pass_cost.h"
#include "costmodel/model/transformer.h"
#include "costmodel/network/fitted_links.h"
#include "costmodel/records/step_time_table.h"

namespace stepsim {

/// A batch of one rank whose compute is known, or is to be found.
struct ComputePoint {
  std::int64_t batch = 0;
  std::int64_t length = 1;
  double seconds = 0;  ///< Forward, backward and optimizer of a rank that trains alone.
  bool timed = false;  ///< Whether a rank was timed alone; else `seconds` is a first guess.
  /// What the host takes at least, which is guessed, too; 0 where batches that were timed say how
  /// long it takes.
  double host_s = 0;
};

/// Returns what a batch that was not timed takes, if the device takes `device` seconds for it and
/// the host `host`: the longer of both, and somewhat more where they are alike, since neither is
/// ahead of the other all the time.
[[nodiscard]] double untimed_compute(double device, double host);

/// Rows that differ in nothing but their times: what is predicted of one is predicted of all.
struct StepTimePoint {
  std::size_t compute = 0;  ///< The place of its batch in StepTimeJob::compute.
  Placement placement;
  double spread = 0;  ///< work_spread()
  std::int64_t micro_batches = 1;
};

/// A training job whose steps were timed: what a rank computes, and what it sends when.
struct StepTimeJob {
  TransformerConfig model;
  double operations_per_byte = 0;     ///< As in RecordedModel; it decides `ready`.
  std::vector<double> bucket_bytes;   ///< In launch order.
  std::vector<double> ready;          ///< [bucket] The part of the backward after which it is sent.
  std::vector<ComputePoint> compute;  ///< Ascending by batch, then length.
  /// Batches of 1, 2, 4, … samples, where the smallest of `compute` was not timed: below it the
  /// host may take longer than the device. Ascending.
  std::vector<ComputePoint> below;
  std::vector<StepTimePoint> points;
  std::vector<std::size_t> point_of_row;  ///< [row of the table]
  double shortest_s = 0;                  ///< The smallest compute.
  double sample_deviation = 0;            ///< How sure the compute is where no rank was alone.
  double rest_s = 0;  ///< What a rank alone shows as exposed: the rest of the last hook.
  double data_s = 0;  ///< Waiting for the first batch of a step; later ones are made beside it.
};

/// Returns the job of a table of step times. Buckets are filled by DDP's rule to these caps.
/// Batches that no rank was timed with alone get their compute from the line through the two
/// nearest that were, in proportion to one, or where none was, a part of what a token takes in the
/// row in which it takes least; and below all that were timed the host's time
/// (HostFloor::kOfTensor). Raises InputError: the model has no parameters; waiting and exposed
/// communication of a rank alone leave nothing of its step.
[[nodiscard]] StepTimeJob step_time_job(const StepTimeTable& table,
                                        const TransformerConfig& model,
                                        std::int64_t first_bucket_bytes,
                                        std::int64_t bucket_cap_bytes);

/// Returns the place of a row's batch in StepTimeJob::compute.
[[nodiscard]] std::size_t compute_point(const StepTimeJob& job, const StepTimeRow& row);

/// What decides a step's time beside the job.
struct StepTimeCoefficients {
  double several_ranks = 0;  ///< Logarithm of the factor on compute where several ranks train.
  double per_doubling = 0;   ///< What compute grows by with each doubling of ranks.
  double per_doubling_of_node = 0;  ///< With each doubling of the fullest node's ranks.
  double forward_share = 0;         ///< Of forward and backward together.
  double optimizer_share = 0;       ///< Of the shortest compute; it is the same for every batch.
  double interference = 0;          ///< How much longer compute takes during a collective.
  LinkSpeeds links;
};

/// What compute grows by with the ranks.
[[nodiscard]] SeveralRanks several_ranks_of(const StepTimeCoefficients& coefficients);

/// A predicted step, in seconds, without waiting for data.
struct StepTimeParts {
  double step = 0;
  double sync = 0;  ///< Exposed communication, with StepTimeJob::rest_s.
};

/// Plays the steady step of a rank with `compute` seconds of work of its own (see ComputePoint):
/// forward, backward while the buckets are reduced one after another in order, the rest of the last
/// bucket, optimizer. Where the ranks' work differs by `spread` (its standard deviation, as a
/// fraction), all wait for the slowest: the expected maximum of as many normal numbers. Of several
/// micro-batches each has its forward and backward, and gradients are reduced beside the last one:
/// the slowest is the rank whose micro-batches take longest together, which are independent, so
/// that their sums differ by the root of their number.
[[nodiscard]] StepTimeParts step_time(const StepTimeJob& job,
                                      const StepTimeCoefficients& coefficients,
                                      double compute,
                                      const Placement& placement,
                                      double spread = 0,
                                      std::int64_t micro_batches = 1);

/// Returns what a rank with one micro-batch would take for a row, in seconds without data, whose
/// other ones take `compute` each, but for the optimizer: of this 5 % are taken off, and where that
/// leaves less than a batch's compute, the optimizer takes more and nothing is exposed.
[[nodiscard]] double step_of_last(const StepTimeRow& row, double compute);

/// Returns a row's step without data over its micro-batches, as if nothing were exposed: each with
/// its own optimizer.
[[nodiscard]] double step_of_each(const StepTimeRow& row);

/// Returns the standard deviation of the ranks' work in a row, as a fraction: that of the lengths
/// that they pad to, since work grows about as the padded tokens do.
[[nodiscard]] double work_spread(const StepTimeRow& row);

}  // namespace stepsim
