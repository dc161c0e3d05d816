// How the libraries' batch formers close a batch, on lengths that can be followed by hand.
#include <doctest/doctest.h>

#include "sim/batching/policies/deepspeed.h"
#include "sim/batching/policies/espnet.h"
#include "sim/batching/policies/fairseq.h"
#include "sim/batching/policies/hold_back.h"
#include "sim/batching/policies/hugging_face.h"
#include "sim/batching/policies/lhotse.h"
#include "sim/batching/policies/tensorflow.h"

using namespace stepsim;

namespace {

using Ids = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("fairseq emits what the multiple divides and drops the ragged last, longest batch") {
  // Up to four samples of one token keep 4 * 1 <= 5 and divide by 2; sample 4 needs 5 * 5 tokens.
  const Ids order = {0, 1, 2, 3, 4};
  const Ids lengths = {1, 1, 1, 1, 5};
  FairseqBatching options;
  options.max_tokens = 5;
  options.multiple = 2;
  Batches batches = fairseq_batch_by_size(order, lengths, options);
  CHECK(batches == Batches{{0, 1, 2, 3}, {4}});
  drop_ragged_batch(batches, 2);
  CHECK(batches == Batches{{0, 1, 2, 3}});
}

TEST_CASE("fairseq's samples beyond the last multiple begin the next batch") {
  // Samples 0-1 make a multiple of 2; with 3 tokens sample 2 would still fit, sample 3 does not.
  const Ids lengths = {1, 1, 1, 2};
  FairseqBatching options;
  options.max_tokens = 4;
  options.multiple = 2;
  CHECK(fairseq_batch_by_size(Ids{0, 1, 2, 3}, lengths, options) == Batches{{0, 1}, {2, 3}});
  options.multiple = 1;
  CHECK(fairseq_batch_by_size(Ids{0, 1, 2, 3}, lengths, options) == Batches{{0, 1, 2}, {3}});
}

TEST_CASE("a batch that hits its size is emitted whole, one that exceeds it without its last") {
  const HoldBack tokens = {6, true, 1};
  CHECK(fill_holding_back(Ids{0, 1, 2, 3}, Ids{2, 2, 2, 5}, tokens) == Batches{{0, 1, 2}, {3}});
  CHECK(fill_holding_back(Ids{0, 1, 2}, Ids{2, 2, 5}, tokens) == Batches{{0, 1}, {2}});
}

TEST_CASE("a batch that would give all its samples back is filled on") {
  // 5 > 4 with one sample: the multiple of 2 leaves nothing to emit; 2 * 5 with two samples: one
  // is over, and the other does not divide by 2.
  const HoldBack tokens = {4, true, 2};
  CHECK(fill_holding_back(Ids{0, 1, 2}, Ids{5, 5, 5}, tokens) == Batches{{0, 1}, {2}});
}

TEST_CASE("torchtext does not bucket unless it sorts within its pools") {
  const HoldBack two = {2, false, 1};
  const Ids lengths = {9, 1, 8, 2};
  CHECK(torchtext_pools(Ids{0, 1, 2, 3}, lengths, two, false).front() == Batches{{0, 1}, {2, 3}});
  CHECK(torchtext_pools(Ids{0, 1, 2, 3}, lengths, two, true).front() == Batches{{1, 3}, {2, 0}});
}

TEST_CASE("ESPnet closes a batch behind the sample that exceeds the bins") {
  // 1 * 1, 2 * 2, then 3 * 3 > 5 closes; sample 3 is left over.
  EspnetNumel options;
  options.batch_bins = 5;
  const Ids lengths = {1, 2, 3, 4};
  CHECK(espnet_numel(lengths, options) == Batches{{2, 1, 0}, {3}});
  options.min_batch_size = 2;  // The left-over batch of one is dissolved.
  CHECK(espnet_numel(lengths, options) == Batches{{3, 2, 1, 0}});
  options.min_batch_size = 1;
  options.drop_last = true;
  CHECK(espnet_numel(lengths, options) == Batches{{2, 1, 0}});
}

TEST_CASE("DeepSpeed never places the last sample and leaves long ones out") {
  DeepspeedBatching options;
  options.max_tokens = 4;
  CHECK(deepspeed_batch_by_seqlens(Ids{0, 1, 2, 3}, Ids{2, 2, 2, 2}, options) ==
        Batches{{0, 1}, {2}});
  CHECK(deepspeed_batch_by_seqlens(Ids{0, 1, 2, 3}, Ids{2, 5, 2, 2}, options) == Batches{{0, 2}});
  options.effective_batch_size = 2;
  options.same_size = true;  // Two micro-batches at a time, dealt like cards.
  CHECK(deepspeed_batch_by_seqlens(Ids{0, 1, 2, 3, 4}, Ids{2, 2, 2, 2, 2}, options) ==
        Batches{{0, 2}, {1, 3}});
}

TEST_CASE("a longer cut takes Lhotse's batch above its duration") {
  // After 2 and 2 a third of the same length would fit into 6, so the batch stays open for the 5.
  LhotseLimit limit;
  limit.max_duration = 6;
  CHECK(lhotse_cuts(Ids{0, 1, 2, 3}, Ids{2, 2, 5, 1}, limit, false) == Batches{{0, 1, 2}, {3}});
  CHECK(lhotse_cuts(Ids{0, 1, 2, 3}, Ids{2, 2, 5, 1}, limit, true) == Batches{{0, 1, 2}});
  // d + d^2 / 2 = 4 for 2: two of them are more than 6.
  limit.quadratic_duration = 2;
  CHECK(lhotse_cuts(Ids{0, 1}, Ids{2, 2}, limit, false) == Batches{{0}, {1}});
}

TEST_CASE("Lhotse's ranks draw from one bucket in a step") {
  LhotseBucketing options;
  options.bins = {10};
  LhotseLimit two;
  two.max_cuts = 2;
  options.limits = {two};
  Ids lengths;
  for (int i = 0; i < 16; ++i) {
    lengths.push_back(i % 2 == 0 ? 1 : 20);
  }
  Ids order(lengths.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = static_cast<std::int64_t>(i);
  }
  const Batches batches = lhotse_buckets(order, lengths, options, 2);
  REQUIRE(batches.size() == 8);
  for (std::size_t step = 0; step < batches.size(); step += 2) {
    CHECK(batches[step].front() % 2 == batches[step + 1].front() % 2);
  }
}

TEST_CASE("the longest sample of all changes places with the first of the epoch") {
  // Mega-batches of two, each descending: 1 0 and 2 3; sample 2 is the longest.
  const Ids permutation = {0, 1, 2, 3};
  CHECK(length_grouped_indices(permutation, Ids{1, 2, 9, 7}, 2, 1) == Ids{2, 0, 1, 3});
  CHECK(usual_mega_batch_mult(1000, 8) == 31);
  CHECK(usual_mega_batch_mult(10, 8) == 1);
  CHECK(usual_mega_batch_mult(100'000, 8) == 50);
}

TEST_CASE("a bucket is emitted when full, left-over samples in the order of the buckets") {
  const BucketScheme scheme = {{4}, {2, 3}};
  const Ids order = {0, 1, 2, 3, 4};
  const Ids lengths = {4, 3, 9, 1, 2};  // 4 is in the upper bucket.
  CHECK(bucket_by_sequence_length(order, lengths, scheme, false) == Batches{{1, 3}, {4}, {0, 2}});
  CHECK(bucket_by_sequence_length(order, lengths, scheme, true) == Batches{{1, 3}});
  CHECK(bucket_padded_length(scheme, 3) == 3);
}
