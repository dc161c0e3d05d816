#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "costmodel/model/batch_shape.h"
#include "costmodel/model/transformer.h"

namespace stepsim {

/// One rank's batch in one step (one forward pass).
struct MicroBatch {
  int step = 0;
  int rank = 0;
  int micro_batch = 0;
  std::vector<std::int64_t> samples;  ///< Sample ids, in batch order.
  std::vector<std::int64_t> lengths;  ///< Their lengths, or those of their parts; same order.
  double loss_scale = 1;
  /// Where each part starts in its sample; same order. Empty: whole samples.
  std::vector<std::int64_t> offsets = {};
  std::vector<std::int64_t> targets = {};  ///< Their second lengths; empty: there are none.
  /// What attention runs over, where that is not the samples: rows packed with several, or merged
  /// documents. Their lengths have the same sum.
  std::vector<std::int64_t> sequences = {};
  std::int64_t padded_length = 0;  ///< What each of them is padded to; 0: the longest.

  [[nodiscard]] const std::vector<std::int64_t>& attended() const {
    return sequences.empty() ? lengths : sequences;
  }
  /// `window`: of the model's attention, which its pairs are counted for.
  [[nodiscard]] BatchShape shape(std::int64_t window = 0) const {
    BatchShape shape = batch_shape(attended(), window);
    shape.max_length = std::max(shape.max_length, padded_length);
    return shape;
  }
  bool operator==(const MicroBatch&) const = default;
};

/// What will be run: `stepsim plan` writes it, `stepcal live` or a PyTorch batch_sampler reads it.
struct Plan {
  std::string scenario;
  std::string policy;
  std::uint64_t seed = 0;
  int ranks = 0;
  int steps = 0;
  int warmup_steps = 0;  ///< Leading steps left out of every mean.
  TransformerConfig model;
  std::string optimizer = "adamw";
  std::vector<std::vector<int>> initial_buckets;  ///< Parameter indices, launch order, step 0.
  std::vector<std::vector<int>> buckets;          ///< The same from step 1 on (rebuilt).
  std::vector<MicroBatch> micro_batches;          ///< By step, then rank, then micro_batch.

  bool operator==(const Plan&) const = default;
};

/// "format": "stepsim-plan/1" on the first line, then one micro-batch a line, by step, rank and
/// micro_batch; a batch may be empty. "max_length" is what the batch is padded to. Only a batch
/// that holds a part of a sample has "offsets"; a plan with second lengths has "target_lengths" in
/// every row that holds samples. What can be derived (totals, a bucket for each parameter, a batch
/// for each step and rank) is checked. Raises InputError with file:line; EnvironmentFault when the
/// file cannot be written.
[[nodiscard]] Plan read_plan(const std::string& path);
void write_plan(const std::string& path, const Plan& plan);

}  // namespace stepsim
