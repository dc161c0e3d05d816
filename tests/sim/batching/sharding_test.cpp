#include "sim/batching/sharding.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"

using namespace stepsim;

namespace {

AccelerateShard accelerate(std::int64_t batch_size) {
  AccelerateShard shard;
  shard.batch_size = batch_size;
  return shard;
}

}  // namespace

TEST_CASE("accelerate fills an incomplete round with the epoch's first samples, rank after rank") {
  // Seven samples: round 1 is full, round 2 has a batch of one.
  const Batches batches = {{0, 1}, {2, 3}, {4, 5}, {6}};
  const EpochBatches even = {{{0, 1}, {4, 5}}, {{2, 3}, {6, 0}}};
  CHECK(accelerate_shards(batches, 2, accelerate(2)) == even);
  // Three ranks: round 2 has one sample in all, so five more are needed: 0, then 1 2, then 3 4.
  const EpochBatches three = {{{0, 1}, {6, 0}}, {{2, 3}, {1, 2}}, {{4, 5}, {3, 4}}};
  CHECK(accelerate_shards(batches, 3, accelerate(2)) == three);
}

TEST_CASE("accelerate repeats a data set that is smaller than one round") {
  const EpochBatches expected = {{{0, 1, 0}}, {{1, 0, 1}}};
  CHECK(accelerate_shards({{0, 1}}, 2, accelerate(3)) == expected);
}

TEST_CASE("accelerate keeps uneven rounds without even_batches and leaves them out by drop_last") {
  const Batches batches = {{0, 1}, {2, 3}, {4, 5}, {6}};
  AccelerateShard shard = accelerate(2);
  shard.even_batches = false;
  const EpochBatches uneven = {{{0, 1}, {4, 5}}, {{2, 3}, {6}}};
  CHECK(accelerate_shards(batches, 2, shard) == uneven);
  shard.drop_last = true;
  const EpochBatches dropped = {{{0, 1}}, {{2, 3}}};
  CHECK(accelerate_shards(batches, 2, shard) == dropped);
}

TEST_CASE("accelerate splits batches of all ranks together") {
  AccelerateShard shard = accelerate(4);
  shard.split_batches = true;
  const Batches batches = {{0, 1, 2, 3}, {4, 5, 6}};
  const EpochBatches even = {{{0, 1}, {4, 5}}, {{2, 3}, {6, 0}}};
  CHECK(accelerate_shards(batches, 2, shard) == even);
  shard.even_batches = false;
  const EpochBatches uneven = {{{0, 1}, {4, 5}}, {{2, 3}, {6}}};
  CHECK(accelerate_shards(batches, 2, shard) == uneven);
  CHECK_THROWS_WITH_AS((void)accelerate_shards(batches, 3, shard),
                       "split_batches: 3 ranks do not divide a batch of 4 samples",
                       InputError);
}

TEST_CASE("fairseq gives a rank that comes out short an empty batch") {
  const EpochBatches expected = {{{0}, {2}}, {{1}, {}}};
  CHECK(fairseq_shards({{0}, {1}, {2}}, 2) == expected);
}

TEST_CASE("grouped shuffling keeps a step's batches together and leaves the remainder out") {
  const Batches batches = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}};
  const Batches shuffled = fairseq_shuffled(batches, 2, 1, true);
  REQUIRE(shuffled.size() == 8);
  for (std::size_t i = 0; i < shuffled.size(); i += 2) {
    CHECK(shuffled[i].front() % 2 == 0);
    CHECK(shuffled[i + 1].front() == shuffled[i].front() + 1);
  }
  CHECK_FALSE(std::is_sorted(shuffled.begin(), shuffled.end()));
  CHECK(fairseq_shuffled(batches, 2, 5, false).size() == 9);
}

TEST_CASE("Lhotse deals the samples of an incomplete round out again") {
  const EpochBatches expected = {{{0, 1}, {3, 4}}, {{2}, {5}}};
  CHECK(lhotse_shards({{0, 1}, {2}, {3, 4, 5}}, 2, false) == expected);
  const EpochBatches dropped = {{{0, 1}}, {{2}}};
  CHECK(lhotse_shards({{0, 1}, {2}, {3, 4, 5}}, 2, true) == dropped);
  const EpochBatches repeated = {{{7}}, {{8}}, {{7}}};
  CHECK(lhotse_shards({{7, 8}}, 3, false) == repeated);
}

TEST_CASE("batches of all ranks are dealt out in parts or in turn") {
  const EpochBatches parts = {{{0, 1}}, {{2, 3}}};
  CHECK(contiguous_parts({{0, 1, 2, 3}}, 2) == parts);
  CHECK_THROWS_WITH_AS((void)contiguous_parts({{0, 1, 2}}, 2),
                       "2 ranks do not divide a batch of 3 samples",
                       InputError);
  const EpochBatches turns = {{{0, 2}}, {{1}}};
  CHECK(strided_samples({{0, 1, 2}}, 2) == turns);
  const EpochBatches whole_rounds = {{{0}}, {{1}}};
  CHECK(truncated_shards({{0}, {1}, {2}}, 2) == whole_rounds);
}
