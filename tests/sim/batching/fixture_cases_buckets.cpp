// Batches of samples of similar length: buckets, mega-batches and their split over ranks.
#include <array>

#include <nlohmann/json.hpp>

#include "sim/batching/algorithms/samples.h"
#include "sim/batching/policies/batch_forming.h"
#include "sim/batching/policies/hugging_face.h"
#include "sim/batching/policies/lhotse.h"
#include "sim/batching/policies/tensorflow.h"
#include "sim/batching/random/random.h"
#include "sim/batching/sharding.h"
#include "tests/sim/batching/fixture_case.h"
#include "tests/sim/batching/plan_hash.h"

namespace stepsim::test {
namespace {

Json tf_buckets(const FixtureCase& data) {
  const Ids lengths = data.lengths();
  const BucketScheme scheme = {data.parameters.at("bucket_boundaries"),
                               data.parameters.at("bucket_batch_sizes")};
  const Batches batches = bucket_by_sequence_length(
      all_samples(lengths.size()), lengths, scheme, data.parameter("drop_remainder", false));
  Ids padded;
  for (const auto& stats : batch_stats(batches, lengths)) {
    padded.push_back(data.parameter("pad_to_bucket_boundary", false)
                         ? bucket_padded_length(scheme, stats.at("max_len").get<std::int64_t>())
                         : stats.at("max_len").get<std::int64_t>());
  }
  return {{"batches", batches}, {"padded_lens", padded}};
}

Json t2t_scheme(const FixtureCase& data) {
  T2tScheme options;
  options.batch_size = data.parameters.at("batch_size");
  options.max_length = data.parameters.at("max_length");
  options.min_length_bucket = data.parameters.at("min_length_bucket");
  options.length_bucket_step = data.parameters.at("length_bucket_step");
  options.shard_multiplier = data.parameter("shard_multiplier", std::int64_t{1});
  options.length_multiplier = data.parameter("length_multiplier", std::int64_t{1});
  options.drop_long_sequences = data.parameter("drop_long_sequences", false);
  const T2tBuckets scheme = t2t_batching_scheme(options);
  return {{"boundaries", scheme.buckets.boundaries},
          {"batch_sizes", scheme.buckets.batch_sizes},
          {"max_length", scheme.max_length},
          {"shuffle_queue_size", scheme.shuffle_queue_size}};
}

Json ranks_stats(const EpochBatches& ranks, const Ids& lengths) {
  Json result = Json::array();
  for (const Batches& batches : ranks) {
    result.push_back(batch_stats(batches, lengths));
  }
  return result;
}

std::optional<std::int64_t> mega_batch_mult(const FixtureCase& data) {
  const auto found = data.parameters.find("mega_batch_mult");
  return found == data.parameters.end() || found->is_null()
             ? std::nullopt
             : std::optional(found->get<std::int64_t>());
}

Json hf_indices(const FixtureCase& data) {
  const Ids lengths = data.lengths();
  const std::int64_t batch_size = data.parameters.at("batch_size");
  const Ids permutation =
      data.input.contains("permutation")
          ? data.input.at("permutation").get<Ids>()
          : torch_randperm(static_cast<std::int64_t>(lengths.size()),
                           data.parameters.at("generator_seed").get<std::uint64_t>());
  const Ids order = length_grouped_indices(permutation, lengths, batch_size, mega_batch_mult(data));
  return {{"indices", order}, {"batches", chunk(order, batch_size, false)}};
}

Json hf_trainer(const FixtureCase& data) {
  const Ids lengths = data.lengths();
  const std::int64_t batch_size =
      data.parameter("batch_size", data.parameter("per_device_batch", std::int64_t{1}));
  const std::int64_t grouped = data.parameter("train_batch_size*grad_accum", batch_size);
  const auto count = static_cast<std::int64_t>(lengths.size());
  const Ids order = length_grouped_indices(
      torch_randperm(count, data.parameters.at("seed")), lengths, grouped, mega_batch_mult(data));
  AccelerateShard shard;
  shard.batch_size = batch_size;
  shard.even_batches = data.parameter("even_batches", true);
  const EpochBatches ranks = accelerate_shards(
      chunk(order, batch_size, false), data.parameters.at("num_processes"), shard);
  const auto first = static_cast<std::ptrdiff_t>(std::min<std::size_t>(8, order.size()));
  return {{"indices", order},
          {"first8_indices", Ids(order.begin(), order.begin() + first)},
          {"index_hash", plan_hash({{order}})},
          {"mega_batch_mult", usual_mega_batch_mult(count, grouped)},
          {"steps", ranks.front().size()},
          {"batches_per_rank", ranks},
          {"stats_per_rank", ranks_stats(ranks, lengths)},
          {"plan_hash_per_rank", plan_hash(ranks)}};
}

Json hf_legacy_sampler(const FixtureCase& data) {
  const Ids lengths = data.lengths();
  const std::int64_t batch_size = data.parameters.at("batch_size");
  const bool drop_last = data.parameter("drop_last", false);
  const auto seed =
      data.parameters.at("seed").get<std::uint64_t>() + data.parameter("epoch", std::uint64_t{0});
  const Ids order =
      length_grouped_indices(torch_randperm(static_cast<std::int64_t>(lengths.size()), seed),
                             lengths,
                             batch_size,
                             std::nullopt);
  const IdLists shares =
      length_grouped_shares(order, data.parameters.at("num_replicas"), drop_last);
  EpochBatches ranks;
  for (const Ids& share : shares) {
    ranks.push_back(chunk(share, batch_size, drop_last));
  }
  return {{"indices_per_rank", shares},
          {"batches_per_rank", ranks},
          {"stats_per_rank", ranks_stats(ranks, lengths)}};
}

LhotseLimit lhotse_limit(const FixtureCase& data) {
  LhotseLimit limit;
  const auto number = [&data](const char* name) {
    const auto found = data.parameters.find(name);
    return found == data.parameters.end() || found->is_null() ? std::nullopt
                                                              : std::optional(found->get<double>());
  };
  limit.max_duration = number("max_duration");
  limit.quadratic_duration = number("quadratic_duration");
  if (const auto cuts = number("max_cuts")) {
    limit.max_cuts = static_cast<std::int64_t>(*cuts);
  }
  return limit;
}

Json lhotse_cut_sampler(const FixtureCase& data) {
  const Ids durations = data.lengths("durations");
  const bool drop_last = data.parameter("drop_last", false);
  const Batches batches =
      lhotse_cuts(all_samples(durations.size()), durations, lhotse_limit(data), drop_last);
  return {
      {"batches_per_rank", lhotse_shards(batches, data.parameters.at("world_size"), drop_last)}};
}

Json lhotse_bucketing_sampler(const FixtureCase& data) {
  const Ids durations = data.lengths("durations");
  const int ranks = data.parameters.at("world_size");
  LhotseBucketing options;
  options.bins = lhotse_duration_bins(durations, data.parameters.at("num_buckets"));
  options.limits = {lhotse_limit(data)};
  options.buffer_size = data.parameters.at("buffer_size");
  options.shuffle = data.parameters.at("shuffle");
  options.drop_last = data.parameters.at("drop_last");
  options.sync_buckets = data.parameters.at("sync_buckets");
  options.seed = data.parameter("seed", std::uint64_t{0});
  const Batches batches = lhotse_buckets(all_samples(durations.size()), durations, options, ranks);
  std::size_t emitted = 0;
  for (const auto& batch : batches) {
    emitted += batch.size();
  }
  return {{"duration_bins", options.bins},
          {"batches_per_rank", lhotse_shards(batches, ranks, options.drop_last)},
          {"samples_never_emitted", durations.size() - emitted}};
}

Json lhotse_bins(const FixtureCase& data) {
  Json bins = Json::array();
  for (const auto& count : data.parameters.at("num_buckets")) {
    bins.push_back(lhotse_duration_bins(data.lengths("durations"), count));
  }
  return {{"bins", bins}};
}

constexpr std::array kBucketsKinds = {
    CaseKind{"tf.bucket_by_sequence_length", tf_buckets},
    CaseKind{"t2t.batching_scheme", t2t_scheme},
    CaseKind{"hf.get_length_grouped_indices", hf_indices},
    CaseKind{"hf.trainer.group_by_length", hf_trainer},
    CaseKind{"hf.DistributedLengthGroupedSampler", hf_legacy_sampler},
    CaseKind{"lhotse.DynamicCutSampler", lhotse_cut_sampler},
    CaseKind{"lhotse.DynamicBucketingSampler", lhotse_bucketing_sampler},
    CaseKind{"lhotse.estimate_duration_buckets", lhotse_bins},
};

}  // namespace

std::span<const CaseKind> bucket_cases() {
  return kBucketsKinds;
}

}  // namespace stepsim::test
