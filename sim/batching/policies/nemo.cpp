#include "sim/batching/policies/nemo.h"

#include <algorithm>
#include <tuple>

#include "costmodel/base/input_error.h"
#include "sim/batching/algorithms/samples.h"
#include "sim/batching/policies/lhotse.h"
#include "sim/batching/sharding.h"

namespace stepsim {
namespace {

/// Without bucket_token_bins no bin has tokens, and no sample counts with any.
std::vector<NemoBin> bins_of(const PolicyParameters& parameters) {
  const SampleIds& durations = parameters.integers("bucket_duration_bins");
  const bool both = parameters.has("bucket_token_bins");
  std::vector<NemoBin> bins;
  for (std::size_t i = 0; i < durations.size(); ++i) {
    bins.push_back({durations[i], both ? parameters.integers("bucket_token_bins")[i] : 0});
  }
  return bins;
}

/// [bin] samples of a batch.
SampleIds batch_sizes(const PolicyParameters& parameters, std::span<const NemoBin> bins) {
  if (parameters.has("bucket_batch_size")) {
    return parameters.integers("bucket_batch_size");
  }
  const std::int64_t most = parameters.integer("max_tokens");
  SampleIds sizes;
  for (const NemoBin& bin : bins) {
    const bool fits = bin.duration <= most && bin.tokens <= most - bin.duration;
    sizes.push_back(fits ? most / (bin.duration + bin.tokens) : 0);
  }
  return sizes;
}

void check_count(const PolicyParameters& parameters, const char* name, std::size_t bins) {
  if (parameters.has(name) && parameters.integers(name).size() != bins) {
    throw InputError("{}: {} entries for {} bins; expected one each",
                     name,
                     parameters.integers(name).size(),
                     bins);
  }
}

}  // namespace

std::optional<std::size_t> nemo_bucket(std::span<const NemoBin> bins,
                                       std::int64_t duration,
                                       std::int64_t tokens,
                                       bool strict) {
  std::optional<std::int64_t> only;
  for (std::size_t i = 0; i < bins.size(); ++i) {
    if (bins[i].duration < duration) {
      continue;
    }
    if (strict && only && bins[i].duration != *only) {
      return std::nullopt;
    }
    only = bins[i].duration;
    if (tokens <= bins[i].tokens) {
      return i;
    }
  }
  return std::nullopt;
}

EpochBatches nemo_bucketing_epoch(const PolicyParameters& parameters, const PolicyInput& input) {
  const bool both = parameters.has("bucket_token_bins");
  if (both && input.targets.empty()) {
    throw InputError("bucket_token_bins needs second lengths; write targets in [data]");
  }
  const std::vector<NemoBin> bins = bins_of(parameters);
  const bool strict = parameters.flag("bucketing_2d_strict_mode");
  // A sample is as long as the number of its bucket, which is all that Lhotse's sampler sees.
  SampleIds kept;
  SampleIds bucket_of(input.lengths.size());
  for (std::size_t i = 0; i < bucket_of.size(); ++i) {
    if (const auto bucket =
            nemo_bucket(bins, input.lengths[i], both ? input.targets[i] : 0, strict)) {
      bucket_of[i] = static_cast<std::int64_t>(*bucket);
      kept.push_back(static_cast<std::int64_t>(i));
    }
  }
  LhotseBucketing options = lhotse_bucketing(parameters, input);
  for (const std::int64_t size : batch_sizes(parameters, bins)) {
    options.bins.push_back(std::ssize(options.bins));
    options.limits.push_back({std::nullopt, size, std::nullopt});
  }
  options.bins.pop_back();
  return lhotse_shards(
      lhotse_buckets(kept, bucket_of, options, input.ranks), input.ranks, options.drop_last);
}

void check_nemo_bucketing(const PolicyParameters& parameters) {
  const std::size_t count = parameters.integers("bucket_duration_bins").size();
  if (count == 0) {
    throw InputError("bucket_duration_bins: expected at least one bin");
  }
  check_count(parameters, "bucket_token_bins", count);
  check_count(parameters, "bucket_batch_size", count);
  const std::vector<NemoBin> bins = bins_of(parameters);
  const auto not_ascending = [](const NemoBin& a, const NemoBin& b) {
    return std::tie(a.duration, a.tokens) >= std::tie(b.duration, b.tokens);
  };
  if (std::ranges::adjacent_find(bins, not_ascending) != bins.end()) {
    throw InputError(parameters.has("bucket_token_bins")
                         ? "bucket_duration_bins: expected pairs with bucket_token_bins that "
                           "ascend, by duration, then by tokens"
                         : "bucket_duration_bins: expected lengths that ascend");
  }
  if (parameters.has("bucket_batch_size") == parameters.has("max_tokens")) {
    throw InputError("expected one of bucket_batch_size and max_tokens");
  }
  const SampleIds sizes = batch_sizes(parameters, bins);
  if (const auto none = std::ranges::find(sizes, 0); none != sizes.end()) {
    const NemoBin& bin = bins[static_cast<std::size_t>(none - sizes.begin())];
    throw InputError("max_tokens = {} holds no sample of the bin of {} + {} tokens",
                     parameters.integer("max_tokens"),
                     bin.duration,
                     bin.tokens);
  }
}

}  // namespace stepsim
