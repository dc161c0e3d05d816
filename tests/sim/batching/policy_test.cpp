#include <algorithm>
#include <set>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "sim/batching/loss_scale.h"
#include "sim/batching/policies/policy_table.h"
#include "tests/costmodel/helpers.h"
#include "tests/sim/batching/make_policy.h"
#include "tests/sim/batching/plan_hash.h"
#include "tests/sim/batching/steps_of.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

using Lengths = std::vector<std::int64_t>;
using TestSteps = std::vector<std::vector<std::vector<std::int64_t>>>;

PolicySpec spec(const std::string& kind, PolicyParameters parameters) {
  PolicySpec result;
  result.kind = kind;
  result.parameters = std::move(parameters);
  return result;
}

PolicySpec fixed(std::int64_t batch_size) {
  return spec("fixed", {{"batch_size", batch_size}});
}

PolicySpec token_budget(std::int64_t max_tokens) {
  return spec("token_budget", {{"max_tokens", max_tokens}});
}

/// The samples in their own order, so that a batch can be read off the lengths.
PolicyInput in_order(const Lengths& lengths, int ranks) {
  PolicyInput input;
  input.lengths = lengths;
  input.sampler.shuffle = false;
  input.ranks = ranks;
  return input;
}

EpochBatches batches(const PolicySpec& policy, const PolicyInput& input) {
  return make_policy(policy).epoch(input).batches;
}

std::string error_of(const PolicySpec& bad) {
  return test::error_of([&] { (void)make_policy(bad); });
}

}  // namespace

TEST_CASE("fixed batches are chunks of the rank's order, the last one may be short") {
  const Lengths lengths = {5, 1, 4, 2, 3, 9, 7, 8, 6, 10};
  const EpochBatches expected = {{{0, 2}, {4, 6}, {8}}, {{1, 3}, {5, 7}, {9}}};
  CHECK(batches(fixed(2), in_order(lengths, 2)) == expected);
}

TEST_CASE("drop_last leaves the short batch out") {
  const Lengths lengths = {5, 1, 4, 2, 3, 9, 7, 8, 6, 10};
  PolicyInput input = in_order(lengths, 2);
  input.sampler.drop_last = true;
  const EpochBatches expected = {{{0, 2}, {4, 6}}, {{1, 3}, {5, 7}}};
  CHECK(batches(fixed(2), input) == expected);
}

TEST_CASE("bucketed batches without shuffle ascend in length, equal lengths in sampler order") {
  const Lengths lengths = {5, 1, 4, 2, 4, 9, 4, 8};
  const EpochBatches expected = {{{2, 4, 6}, {0}}, {{1, 3, 7}, {5}}};
  CHECK(batches(spec("bucketed", {{"batch_size", 3}}), in_order(lengths, 2)) == expected);
}

TEST_CASE("ranks of the distributed sampler shuffle their buckets alike") {
  // Sample i has length i / 4 + 1, so every rank's k-th bucket has the same length.
  Lengths lengths(80);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    lengths[i] = static_cast<std::int64_t>(i) / 4 + 1;
  }
  PolicyInput input = in_order(lengths, 4);
  input.sampler.seed = 3;
  const auto policy = make_policy(spec("bucketed", {{"batch_size", 2}}));
  input.sampler.shuffle = true;
  for (const auto& rank : policy.epoch(input).batches) {
    CHECK(rank.size() == 10);
  }
  // With one bucket order for all ranks, no step mixes the two ends of the length axis.
  for (const auto& step : steps_of(policy, input, 10)) {
    std::int64_t low = 100;
    std::int64_t high = 0;
    for (const auto& batch : step) {
      for (const Piece& piece : batch) {
        low = std::min(low, piece.length);
        high = std::max(high, piece.length);
      }
    }
    CHECK(high - low < 14);
  }
}

TEST_CASE("a token budget closes a batch just before its padded tokens exceed the budget") {
  // 4 x 5 = 20 fits exactly; a fifth would make 25. Then 6 x 3 = 18 fits, a fourth would make 24.
  const Lengths lengths = {5, 5, 5, 5, 6, 6, 6, 6};
  const EpochBatches expected = {{{0, 1, 2, 3}, {4, 5, 6}, {7}}};
  CHECK(batches(token_budget(20), in_order(lengths, 1)) == expected);
  const EpochBatches one_less = {{{0, 1, 2}, {3, 4, 5}, {6, 7}}};
  CHECK(batches(token_budget(19), in_order(lengths, 1)) == one_less);
}

TEST_CASE("a sample longer than the budget runs alone and is not lost") {
  const Lengths lengths = {3, 50, 4, 60};
  const EpochBatches expected = {{{0, 2}, {1}, {3}}};
  CHECK(batches(token_budget(10), in_order(lengths, 1)) == expected);
}

TEST_CASE("a rank that has used its batches up starts them again") {
  const Lengths lengths = {1, 1, 1, 1, 1};
  PolicyInput input = in_order(lengths, 2);
  input.sampler.kind = SamplerSpec::Kind::Python;  // Rank 0 has three samples, rank 1 two.
  const TestSteps expected = {{{0}, {1}}, {{2}, {3}}, {{4}, {1}}, {{0}, {3}}};
  TestSteps samples;
  for (const auto& step : steps_of(make_policy(fixed(1)), input, 4)) {
    auto& own = samples.emplace_back();
    for (const auto& batch : step) {
      own.push_back({batch.front().sample});
    }
  }
  CHECK(samples == expected);
}

TEST_CASE("with set_epoch a rank goes on with the batches of the next epoch") {
  const Lengths lengths(12, 1);
  PolicyInput input = in_order(lengths, 2);
  input.sampler.shuffle = true;
  const BatchingPolicy policy = make_policy(fixed(2));
  const auto of_rank = [&](int epoch, std::size_t rank) {
    PolicyInput later = input;
    later.epoch = epoch;
    return policy.epoch(later).batches[rank];
  };
  input.sampler.set_epoch = true;
  const auto steps = steps_of(policy, input, 7);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (std::size_t step = 0; step < steps.size(); ++step) {
      std::vector<std::int64_t> samples;
      for (const Piece& piece : steps[step][rank]) {
        samples.push_back(piece.sample);
      }
      CHECK(samples == of_rank(static_cast<int>(step / 3), rank)[step % 3]);
    }
  }
  CHECK(of_rank(0, 0) != of_rank(1, 0));
}

TEST_CASE("a policy knows its token budget by whatever name it has") {
  CHECK(make_policy(token_budget(10)).token_budget() == 10);
  CHECK(make_policy(spec("packed_bfd", {{"capacity", std::int64_t{7}}})).token_budget() == 7);
  CHECK(make_policy(spec("lhotse_dynamic", {{"max_duration", 2.5}})).token_budget() == 2.5);
  PolicySpec pool = spec("torchtext_pool", {{"batch_size", std::int64_t{9}}});
  CHECK_FALSE(make_policy(pool).token_budget());
  pool.parameters.set("batch_type", "tokens");
  CHECK(make_policy(pool).token_budget() == 9);
  CHECK_FALSE(make_policy(fixed(4)).token_budget());
}

TEST_CASE("a batch is padded to a multiple, or to the boundary of its bucket") {
  PolicySpec padded = fixed(2);
  CHECK(make_policy(padded).padded_length(13) == 13);
  padded.pad_to_multiple_of = 8;
  CHECK(make_policy(padded).padded_length(13) == 16);
  CHECK(make_policy(padded).padded_length(16) == 16);
  CHECK(make_policy(padded).padded_length(0) == 0);
  padded.pad_to_multiple_of = 0;
  CHECK_THROWS_WITH_AS((void)make_policy(padded), "pad_to_multiple_of: 0 is below 1", InputError);

  PolicySpec buckets = spec("tf_bucket_by_sequence_length",
                            {{"bucket_boundaries", Lengths{10, 20}},
                             {"bucket_batch_sizes", Lengths{2, 2, 2}},
                             {"pad_to_bucket_boundary", true}});
  CHECK(make_policy(buckets).padded_length(9) == 9);
  CHECK(make_policy(buckets).padded_length(10) == 19);
  CHECK(make_policy(buckets).padded_length(0) == 0);
  CHECK_THROWS_AS((void)make_policy(buckets).padded_length(20), InputError);
  buckets.pad_to_multiple_of = 8;
  CHECK(make_policy(buckets).padded_length(3) == 16);
}

TEST_CASE("a batch is padded to the next of a list of lengths") {
  PolicySpec ladder = fixed(2);
  ladder.pad_to_lengths = {8, 20, 64};
  const BatchingPolicy policy = make_policy(ladder);
  CHECK(policy.padded_length(1) == 8);
  CHECK(policy.padded_length(8) == 8);
  CHECK(policy.padded_length(9) == 20);
  CHECK(policy.padded_length(64) == 64);
  CHECK(policy.padded_length(0) == 0);
  CHECK_THROWS_WITH_AS((void)policy.padded_length(65),
                       "a sample is 65 tokens long, but the longest of pad_to_lengths is 64",
                       InputError);
  const Lengths lengths = {5, 1, 4, 2};
  CHECK(policy.epoch(in_order(lengths, 2)) == make_policy(fixed(2)).epoch(in_order(lengths, 2)));

  CHECK(policy.with_padding(16, {}).padded_length(13) == 16);
  CHECK(policy.with_padding(1, {13}).padded_length(9) == 13);
  CHECK_THROWS_AS((void)policy.with_padding(16, {64}), InputError);

  ladder.pad_to_multiple_of = 8;
  CHECK(error_of(ladder) ==
        "pad_to_lengths: does not go with pad_to_multiple_of; give one of them");
  ladder.pad_to_multiple_of = 1;
  ladder.pad_to_lengths = {8, 8};
  CHECK(error_of(ladder) == "pad_to_lengths: 8 follows 8; expected each length once, ascending");
  ladder.pad_to_lengths = {8, 20, 9};
  CHECK(error_of(ladder) == "pad_to_lengths: 9 follows 20; expected each length once, ascending");
  ladder.pad_to_lengths = {0, 20};
  CHECK(error_of(ladder) == "pad_to_lengths: 0 is below 1");
}

TEST_CASE("a plan without a batch for every rank is bad input") {
  const auto policy = make_policy(fixed(4));
  const Lengths three = {1, 1, 1};
  PolicyInput input = in_order(three, 4);
  CHECK_THROWS_WITH_AS((void)steps_of(policy, input, 1),
                       "4 ranks for 3 samples: there must be at least one a rank",
                       InputError);
  input.ranks = 1;
  input.sampler.drop_last = true;
  CHECK_THROWS_WITH_AS(
      (void)steps_of(policy, input, 1),
      "rank 0 has no batch at all: of 3 samples over 1 ranks the policy keeps too "
      "few; they are longer than it takes, or do not fill a step (drop_last leaves "
      "partial batches out)",
      InputError);
  const Lengths none;
  CHECK_THROWS_AS((void)steps_of(policy, in_order(none, 1), 1), InputError);
}

TEST_CASE("the table lists every kind with its parameters and source, no kind twice") {
  std::set<std::string> kinds;
  for (const auto& kind : policy_table()) {
    CAPTURE(kind.name);
    CHECK(kinds.insert(kind.name).second);
    CHECK_FALSE(kind.summary.empty());
    CHECK_FALSE(kind.source.empty());
    for (const auto& parameter : kind.parameters) {
      CHECK(std::count(policy_parameter_names().begin(),
                       policy_parameter_names().end(),
                       parameter.name) == 1);
    }
  }
}

TEST_CASE("a policy that cannot be made says what is wrong") {
  CHECK(error_of(spec("bucketted", {})) ==
        "unknown policy kind 'bucketted'; did you mean 'bucketed'?");
  CHECK(error_of(spec("?", {})).starts_with("unknown policy kind '?'; none of the "));
  CHECK(error_of(spec("?", {}))
            .ends_with("any other sampler: kind = \"plan\" with the file of a "
                       "recorded run, whose batches it plays"));
  CHECK(error_of(spec("fixed", {})) == "policy kind 'fixed' needs batch_size (at least 1)");
  CHECK(error_of(fixed(0)) == "batch_size: 0 is too small; expected at least 1");
  CHECK(error_of(fixed(-8)) == "batch_size: -8 is too small; expected at least 1");
  CHECK(error_of(fixed(std::int64_t{1} << 31)) ==
        "batch_size: 2147483648 is too large; expected at most 1073741824");
  CHECK(error_of(spec("token_budget", {})) ==
        "policy kind 'token_budget' needs max_tokens (at least 1)");
  CHECK(error_of(spec("fixed", {{"batch_size", 8}, {"max_tokens", 512}})) ==
        "max_tokens does not apply to policy kind 'fixed'; it takes: batch_size");
  CHECK(error_of(spec("fixed", {{"batch_size", std::string("8")}})) ==
        "batch_size: expected an integer");
}

TEST_CASE("parameters of a kind that contradict each other are named") {
  using List = std::vector<std::int64_t>;
  CHECK(error_of(spec("fairseq_max_tokens", {})) ==
        "neither max_tokens nor max_sentences is given");
  CHECK(error_of(spec("lhotse_dynamic", {{"quadratic_duration", 30}})) ==
        "neither max_duration nor max_cuts is given");
  CHECK(error_of(spec("lhotse_dynamic", {{"max_duration", -1.5}})) ==
        "max_duration: -1.5 is no finite number above 0");
  CHECK(error_of(spec("fairseq_fixed_shapes",
                      {{"shape_batch_sizes", List{8, 4}}, {"shape_lengths", List{16}}})) ==
        "shape_batch_sizes has 2 entries and shape_lengths 1; a shape is one of each");
  CHECK(
      error_of(spec("tf_bucket_by_sequence_length",
                    {{"bucket_boundaries", List{8, 8}}, {"bucket_batch_sizes", List{4, 2, 1}}})) ==
      "bucket_boundaries: expected lengths that ascend");
  CHECK(error_of(spec("tf_bucket_by_sequence_length",
                      {{"bucket_boundaries", List{8, 16}}, {"bucket_batch_sizes", List{4, 2}}})) ==
        "bucket_batch_sizes: 2 sizes for 2 boundaries; expected one size more");
  CHECK(error_of(spec("nemo_bucketing",
                      {{"bucket_duration_bins", List{}}, {"bucket_batch_size", List{}}})) ==
        "bucket_duration_bins: expected at least one bin");
  CHECK(error_of(spec("tensor2tensor", {{"length_bucket_step", 0.5}})) ==
        "length_bucket_step: 0.5 is no factor above 1");
  CHECK(error_of(spec("opennmt", {{"batch_type", std::string("token")}})) ==
        "batch_type: unknown value 'token'; did you mean 'tokens'? known: sents, tokens");
}

TEST_CASE("data that a kind cannot batch is bad input") {
  const Lengths lengths = {3, 50, 4, 60};
  CHECK_THROWS_WITH_AS(
      (void)batches(spec("fairseq_max_tokens", {{"max_tokens", 55}}), in_order(lengths, 1)),
      "sample 3 is 60 tokens long, above max_tokens 55",
      InputError);
  CHECK_THROWS_WITH_AS(
      (void)batches(spec("espnet_numel", {{"batch_bins", 100}}), in_order(lengths, 5)),
      "a batch of 4 samples cannot be dealt out to 5 ranks",
      InputError);
  CHECK_THROWS_WITH_AS((void)batches(spec("deepspeed_variable_batch",
                                          {{"max_tokens", 100}, {"effective_batch_size", 3}}),
                                     in_order(lengths, 2)),
                       "effective_batch_size: 2 ranks do not divide 3 micro-batches of one step",
                       InputError);
}

TEST_CASE("the plan hash is FNV-1a over ids, ends of batches and ends of ranks") {
  // One rank without a batch: FNV-1a of the bytes fe ff ff ff.
  CHECK(plan_hash({{}}) == "7053767088d9a6c0");
  CHECK(plan_hash({}) == "cbf29ce484222325");
  CHECK(plan_hash({{{1, 2}}}) != plan_hash({{{1}, {2}}}));
  CHECK(plan_hash({{{1}, {2}}}) != plan_hash({{{1}}, {{2}}}));
}

TEST_CASE("loss scales turn DDP's mean over ranks into the mean over samples or tokens") {
  CHECK(loss_scale(LossWeighting::None, 3, 12, 2) == 1);
  // Two ranks with 3 and 9 of 12 units: 2 * 3 / 12 and 2 * 9 / 12; they average to one.
  CHECK(loss_scale(LossWeighting::Sample, 3, 12, 2) == 0.5);
  CHECK(loss_scale(LossWeighting::Token, 9, 12, 2) == 1.5);
  CHECK_THROWS_AS((void)loss_scale(LossWeighting::Token, 0, 0, 2), InputError);
}

TEST_CASE("loss scales of a step weigh samples, or useful tokens, not padded ones") {
  const Lengths short_batch = {1, 3};
  const Lengths long_batch = {4, 4, 4};
  const std::vector<BatchShape> shapes = {batch_shape(short_batch), batch_shape(long_batch)};
  CHECK(loss_scales(LossWeighting::None, shapes) == std::vector<double>{1, 1});
  CHECK(loss_scales(LossWeighting::Sample, shapes) ==
        std::vector<double>{2 * 2 / 5.0, 2 * 3 / 5.0});
  CHECK(loss_scales(LossWeighting::Token, shapes) ==
        std::vector<double>{2 * 4 / 16.0, 2 * 12 / 16.0});
}
