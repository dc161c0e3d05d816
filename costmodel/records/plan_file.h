#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/model/batch_shape.h"
#include "costmodel/model/transformer.h"

namespace stepsim {

/// One rank's batch for one forward pass.
struct MicroBatch {
  int step = 0;
  int rank = 0;
  int micro_batch = 0;
  std::vector<std::int64_t> samples;  ///< [i] sample ids, in batch order.
  std::vector<std::int64_t> lengths;  ///< [i] the length of each sample, or of its part.
  double loss_scale = 1;
  /// [i] the token at which each part starts in its sample. Empty: all samples are whole.
  std::vector<std::int64_t> offsets = {};
  std::vector<std::int64_t> targets = {};  ///< [i] target lengths; empty: samples have no targets.
  /// The lengths of the sequences that attention runs over, when these are not the samples but rows
  /// packed with several samples or merged documents. The sum equals that of `lengths`.
  std::vector<std::int64_t> sequences = {};
  std::int64_t padded_length = 0;  ///< The length all sequences are padded to; 0: the longest's.

  [[nodiscard]] const std::vector<std::int64_t>& attended() const {
    return sequences.empty() ? lengths : sequences;
  }
  /// Returns the batch's shape; `window` is the model's attention window, for window_pairs.
  [[nodiscard]] BatchShape shape(std::int64_t window = 0) const {
    BatchShape shape = batch_shape(attended(), window);
    shape.max_length = std::max(shape.max_length, padded_length);
    return shape;
  }
  bool operator==(const MicroBatch&) const = default;
};

/// What DistributedDataParallel is told in the planned run, for those who train it. The fields are
/// named as DDP's arguments.
struct PlanDdp {
  /// [bucket] limit in bytes; the last one holds for all further buckets.
  std::vector<std::int64_t> bucket_limits;
  bool set_to_none = true;  ///< Of the optimizer's zero_grad().
  bool gradient_as_bucket_view = false;
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool broadcast_buffers = true;
  std::string communication_hook = "none";
  /// Keys of the scenario that are no arguments of DDP, and that the run depends on.
  std::vector<std::string> other_keys;

  bool operator==(const PlanDdp&) const = default;
};

/// The batches of a run. `stepsim plan` writes it; stepsim_live.py or a PyTorch batch_sampler reads
/// it.
struct Plan {
  std::string scenario;
  std::string policy;
  /// Name and id of the profile that a policy planned by, where it plans by predicted time: with
  /// another profile it makes other batches.
  std::string profile = {};
  std::string profile_id = {};
  std::uint64_t seed = 0;
  int ranks = 0;
  int steps = 0;
  int warmup_steps = 0;  ///< The leading steps that all means leave out.
  TransformerConfig model;
  std::string optimizer = "adamw";
  std::optional<PlanDdp> ddp = {};  ///< Absent in files of version 0.2 and before.
  /// [bucket] parameter indices of step 0, buckets in launch order.
  std::vector<std::vector<int>> initial_buckets;
  std::vector<std::vector<int>> buckets;  ///< [bucket] as DDP rebuilds them, from step 1 on.
  std::vector<MicroBatch> micro_batches;  ///< Sorted by step, then rank, then micro_batch.

  bool operator==(const Plan&) const = default;
};

/// Reads and writes a plan file. The first line has "format": "stepsim-plan/1"; each line after it
/// is one micro-batch, sorted by step, rank and micro_batch. A batch may be empty. "max_length" is
/// the length that the batch is padded to. Only a batch that holds a part of a sample has
/// "offsets"; a plan with target lengths has "target_lengths" in every row that holds samples.
/// Reading checks what can be derived: totals, that each parameter is in one bucket, that each step
/// and rank has a batch. Raises InputError with file:line, and EnvironmentFault when the file
/// cannot be written.
[[nodiscard]] Plan read_plan(const std::string& path);
void write_plan(const std::string& path, const Plan& plan);
/// Returns the text of such a file.
[[nodiscard]] std::string plan_text(const Plan& plan);

}  // namespace stepsim
