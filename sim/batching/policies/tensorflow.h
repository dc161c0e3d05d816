#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/batching/epoch_plan.h"
#include "sim/batching/policy_parameters.h"

namespace stepsim {

/// tf.data's bucket_by_sequence_length.
struct BucketScheme {
  std::vector<std::int64_t> boundaries;   ///< Ascending; bucket i holds lengths below entry i.
  std::vector<std::int64_t> batch_sizes;  ///< One more: the last bucket has no upper boundary.
  bool operator==(const BucketScheme&) const = default;
};

/// A bucket's batch is emitted as soon as it is full; left-over samples follow in the order of the
/// buckets, unless drop_remainder. Source: TensorFlow, grouping.py.
[[nodiscard]] Batches bucket_by_sequence_length(std::span<const std::int64_t> order,
                                                std::span<const std::int64_t> lengths,
                                                const BucketScheme& scheme,
                                                bool drop_remainder);

/// The longest length of the bucket that holds `length`, to which pad_to_bucket_boundary pads.
/// Raises InputError: a length beyond the last boundary, as TensorFlow does.
[[nodiscard]] std::int64_t bucket_padded_length(const BucketScheme& scheme, std::int64_t length);

/// Each rank buckets its share. drop_last of the sampler is drop_remainder.
[[nodiscard]] EpochBatches tf_bucket_epoch(const PolicyParameters& parameters,
                                           const PolicyInput& input);

/// bucket_padded_length() with pad_to_bucket_boundary, else `longest`.
[[nodiscard]] std::int64_t tf_padded_length(const PolicyParameters& parameters,
                                            std::int64_t longest);

/// Raises InputError: boundaries that do not ascend, or not one batch size more than boundaries.
void check_tf_bucket(const PolicyParameters& parameters);

/// The options from which Tensor2Tensor makes its batching_scheme.
struct T2tScheme {
  std::int64_t batch_size = 4096;  ///< Tokens.
  std::int64_t max_length = 0;     ///< 0: batch_size.
  std::int64_t min_length_bucket = 8;
  double length_bucket_step = 1.1;
  std::int64_t shard_multiplier = 1;
  std::int64_t length_multiplier = 1;
  bool drop_long_sequences = false;
};

struct T2tBuckets {
  BucketScheme buckets;
  std::int64_t max_length = 0;  ///< Longer samples are left out; 10^9 unless drop_long_sequences.
  std::int64_t shuffle_queue_size = 0;
};

/// Boundaries in geometric steps and batch sizes that divide a highly composite number.
/// Source: tensorflow/tensor2tensor, data_reader.py.
[[nodiscard]] T2tBuckets t2t_batching_scheme(const T2tScheme& options);

/// Global batches of the scheme with shard_multiplier = ranks, so that all ranks of a step run the
/// same bucket; rank r takes its r-th part of each. The data set repeats without end in
/// Tensor2Tensor: samples that fill no batch are left out of the epoch.
[[nodiscard]] EpochBatches t2t_epoch(const PolicyParameters& parameters, const PolicyInput& input);

/// Raises InputError: a length_bucket_step of 1 or less.
void check_t2t(const PolicyParameters& parameters);

}  // namespace stepsim
