#include "sim/batching/policies/tensorflow.h"

#include <algorithm>
#include <array>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "sim/batching/algorithms/samples.h"
#include "sim/batching/policies/batch_forming.h"
#include "sim/batching/sharding.h"

namespace stepsim {
namespace {

BucketScheme scheme_of(const PolicyParameters& parameters) {
  return {parameters.integers("bucket_boundaries"), parameters.integers("bucket_batch_sizes")};
}

SampleIds t2t_boundaries(const T2tScheme& options, std::int64_t max_length) {
  SampleIds boundaries;
  for (std::int64_t x = options.min_length_bucket; x < max_length;) {
    boundaries.push_back(x);
    x = std::max(x + 1,
                 static_cast<std::int64_t>(static_cast<double>(x) * options.length_bucket_step));
  }
  return boundaries;
}

/// The largest of the highly composite numbers up to `limit`, of those that Tensor2Tensor lists.
std::int64_t highly_composite(std::int64_t limit) {
  constexpr std::array<std::int64_t, 42> kNumbers = {
      1,      2,      4,      6,      12,     24,      36,      48,      60,     120,    180,
      240,    360,    720,    840,    1260,   1680,    2520,    5040,    7560,   10080,  15120,
      20160,  25200,  27720,  45360,  50400,  55440,   83160,   110880,  166320, 221760, 277200,
      332640, 498960, 554400, 665280, 720720, 1081080, 1441440, 2162160, 2882880};
  return *(std::upper_bound(kNumbers.begin() + 1, kNumbers.end(), limit) - 1);
}

std::int64_t largest_divisor(std::int64_t number, std::int64_t limit) {
  while (number % limit != 0) {
    --limit;
  }
  return limit;
}

}  // namespace

Batches bucket_by_sequence_length(std::span<const std::int64_t> order,
                                  std::span<const std::int64_t> lengths,
                                  const BucketScheme& scheme,
                                  bool drop_remainder) {
  Batches batches;
  std::vector<SampleIds> buckets(scheme.batch_sizes.size());
  for (const std::int64_t sample : order) {
    const std::int64_t length = lengths[static_cast<std::size_t>(sample)];
    const auto index = static_cast<std::size_t>(
        std::upper_bound(scheme.boundaries.begin(), scheme.boundaries.end(), length) -
        scheme.boundaries.begin());
    buckets[index].push_back(sample);
    if (static_cast<std::int64_t>(buckets[index].size()) == scheme.batch_sizes[index]) {
      batches.push_back(std::move(buckets[index]));
      buckets[index].clear();
    }
  }
  for (SampleIds& left : buckets) {
    if (!left.empty() && !drop_remainder) {
      batches.push_back(std::move(left));
    }
  }
  return batches;
}

std::int64_t bucket_padded_length(const BucketScheme& scheme, std::int64_t length) {
  const auto boundary =
      std::upper_bound(scheme.boundaries.begin(), scheme.boundaries.end(), length);
  if (boundary == scheme.boundaries.end()) {
    throw InputError("pad_to_bucket_boundary: length {} is above the last boundary {}",
                     length,
                     scheme.boundaries.empty() ? 0 : scheme.boundaries.back());
  }
  return *boundary - 1;
}

EpochBatches tf_bucket_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  return mapped(rank_shares(input), [&](const auto& share) {
    return bucket_by_sequence_length(
        share.samples, input.lengths, scheme_of(parameters), input.sampler.drop_last);
  });
}

std::int64_t tf_padded_length(const PolicyParameters& parameters, std::int64_t longest) {
  return parameters.flag("pad_to_bucket_boundary")
             ? bucket_padded_length(scheme_of(parameters), longest)
             : longest;
}

void check_tf_bucket(const PolicyParameters& parameters) {
  const BucketScheme scheme = scheme_of(parameters);
  const SampleIds& boundaries = scheme.boundaries;
  if (std::ranges::adjacent_find(boundaries, std::greater_equal<>()) != boundaries.end()) {
    throw InputError("bucket_boundaries: expected lengths that ascend");
  }
  if (scheme.batch_sizes.size() != boundaries.size() + 1) {
    throw InputError("bucket_batch_sizes: {} sizes for {} boundaries; expected one size more",
                     scheme.batch_sizes.size(),
                     boundaries.size());
  }
}

T2tBuckets t2t_batching_scheme(const T2tScheme& options) {
  const std::int64_t longest = options.max_length > 0 ? options.max_length : options.batch_size;
  T2tBuckets result;
  BucketScheme& buckets = result.buckets;
  buckets.boundaries = t2t_boundaries(options, longest);
  for (auto& boundary : buckets.boundaries) {
    boundary *= options.length_multiplier;
  }
  const std::int64_t last = longest * options.length_multiplier;
  for (const std::int64_t boundary : buckets.boundaries) {
    buckets.batch_sizes.push_back(std::max<std::int64_t>(1, options.batch_size / boundary));
  }
  buckets.batch_sizes.push_back(std::max<std::int64_t>(1, options.batch_size / last));

  const auto largest = *std::ranges::max_element(buckets.batch_sizes);
  const std::int64_t window = highly_composite(3 * largest);
  for (auto& size : buckets.batch_sizes) {
    size = largest_divisor(window, size);
  }
  const auto smallest = *std::ranges::min_element(buckets.batch_sizes);
  result.shuffle_queue_size = 3 * (window / smallest);
  for (auto& size : buckets.batch_sizes) {
    size *= options.shard_multiplier;
  }
  constexpr std::int64_t kNoLimit = 1'000'000'000;
  result.max_length = options.drop_long_sequences ? last : kNoLimit;
  return result;
}

EpochBatches t2t_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  T2tScheme options;
  options.batch_size = parameters.integer("batch_size");
  options.max_length = parameters.maybe_integer("max_length").value_or(0);
  options.min_length_bucket = parameters.integer("min_length_bucket");
  options.length_bucket_step = parameters.number("length_bucket_step");
  options.shard_multiplier = input.ranks;
  options.drop_long_sequences = parameters.flag("drop_long_sequences");
  const T2tBuckets scheme = t2t_batching_scheme(options);

  SampleIds kept;
  const SampleIds order = sample_order(input);
  std::copy_if(order.begin(), order.end(), std::back_inserter(kept), [&](std::int64_t sample) {
    return input.lengths[static_cast<std::size_t>(sample)] <= scheme.max_length;
  });
  return contiguous_parts(bucket_by_sequence_length(kept, input.lengths, scheme.buckets, true),
                          input.ranks);
}

void check_t2t(const PolicyParameters& parameters) {
  const double step = parameters.number("length_bucket_step");
  if (step <= 1) {
    throw InputError("length_bucket_step: {} is no factor above 1", step);
  }
}

}  // namespace stepsim
