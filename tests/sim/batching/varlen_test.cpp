#include "sim/batching/varlen.h"

#include <numeric>
#include <random>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "sim/batching/varlen_epoch.h"
#include "tests/costmodel/helpers.h"

using namespace stepsim;

namespace {

using Lengths = std::vector<std::int64_t>;

VarlenCall call_of(std::int64_t slots, std::int64_t longest, Overflow overflow) {
  VarlenCall call;
  call.max_num_docs = slots;
  call.max_seq_len = longest;
  call.overflow = overflow;
  return call;
}

std::int64_t sum_of(const Lengths& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

/// Tokens of documents of these lengths, side by side in one sequence, that see another document.
std::int64_t mixed_tokens(const Lengths& documents, bool causal) {
  Lengths owner;
  for (std::size_t d = 0; d < documents.size(); ++d) {
    owner.insert(owner.end(), static_cast<std::size_t>(documents[d]), static_cast<std::int64_t>(d));
  }
  std::int64_t mixed = 0;
  for (std::size_t query = 0; query < owner.size(); ++query) {
    bool sees = false;
    for (std::size_t key = 0; key < owner.size(); ++key) {
      sees = sees || ((!causal || key <= query) && owner[key] != owner[query]);
    }
    mixed += sees ? 1 : 0;
  }
  return mixed;
}

/// Blocks of a grid without a row of their sequence, one by one.
std::int64_t counted_empty_blocks(const Lengths& lengths,
                                  std::int64_t slots,
                                  std::int64_t longest,
                                  std::int64_t block_rows) {
  std::int64_t empty = 0;
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    const std::int64_t length = slot < static_cast<std::int64_t>(lengths.size())
                                    ? lengths[static_cast<std::size_t>(slot)]
                                    : 0;
    for (std::int64_t row = 0; row < longest; row += block_rows) {
      empty += row >= length ? 1 : 0;
    }
  }
  return empty;
}

std::string error_of(EpochBatches epoch, const Lengths& lengths, const VarlenCall& call) {
  return test::error_of([&] { (void)fit_into_slots(epoch, lengths, call, true); });
}

}  // namespace

TEST_CASE("the two shortest neighbours merge until the documents fit") {
  const Lengths documents = {5, 3, 2, 7, 1};
  // 3 + 2 is the least of 8, 5, 9, 8; then 7 + 1 of 10, 12, 8.
  const auto three = sequences_in_slots(documents, call_of(3, 10, Overflow::Merge));
  REQUIRE(three.has_value());
  CHECK(*three == std::vector<Sequence>{{1, 5, 5}, {2, 5, 3}, {2, 8, 7}});
  // 5 + 5 is the least of 10, 13.
  const auto two = sequences_in_slots(documents, call_of(2, 10, Overflow::Merge));
  REQUIRE(two.has_value());
  CHECK(*two == std::vector<Sequence>{{3, 10, 5}, {2, 8, 7}});
  CHECK(!sequences_in_slots(documents, call_of(1, 10, Overflow::Merge)));
  CHECK(!sequences_in_slots(documents, call_of(4, 10, Overflow::Discard)));
  CHECK(sequences_in_slots(documents, call_of(5, 10, Overflow::Error))->size() == 5);
  CHECK(sequences_in_slots(documents, call_of(0, 0, Overflow::Error))->size() == 5);
}

TEST_CASE("documents above max_seq_len are cut, or bad input") {
  const Lengths lengths = {3, 9, 4};
  CHECK(cut_lengths(lengths, call_of(2, 4, Overflow::Merge)) == Lengths{3, 4, 4});
  CHECK(cut_lengths(lengths, call_of(2, 0, Overflow::Error)) == lengths);
  CHECK_THROWS_WITH_AS((void)cut_lengths(lengths, call_of(2, 4, Overflow::Error)),
                       "sample 1 has 9 tokens, above the max_seq_len of 4 of the varlen call; "
                       "overflow = \"merge\" or \"discard\" cuts it",
                       InputError);
}

TEST_CASE("empty blocks are the grid's less those that hold a row") {
  VarlenCall call = call_of(4, 512, Overflow::Error);
  // 4 slots of 4 blocks of 128 rows; 300 rows take 3 blocks, 128 one, 1 one.
  CHECK(empty_blocks(Lengths{300, 128, 1}, call) == 16 - 5);
  call = VarlenCall();
  CHECK(empty_blocks(Lengths{300, 128, 1}, call) == 9 - 5);
  CHECK(empty_blocks(Lengths{}, call) == 0);
  std::mt19937_64 random(2);
  for (int seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    const auto slots = static_cast<std::int64_t>(1 + random() % 6);
    const auto longest = static_cast<std::int64_t>(1 + random() % 60);
    call = call_of(slots, longest, Overflow::Error);
    call.block_rows = static_cast<std::int64_t>(1 + random() % 20);
    Lengths lengths(1 + random() % static_cast<std::uint64_t>(slots));
    for (auto& length : lengths) {
      length = 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(longest));
    }
    CHECK(empty_blocks(lengths, call) ==
          counted_empty_blocks(lengths, slots, longest, call.block_rows));
  }
}

TEST_CASE("a discarded batch is replaced by the rank's next, and ranks stay equally long") {
  const Lengths lengths = {4, 4, 4, 4, 4, 4, 4, 4};
  const EpochBatches whole = {{{0, 1}, {2}, {3}}, {{4}, {5}, {6}}};
  EpochBatches epoch = whole;
  VarlenUse use = fit_into_slots(epoch, lengths, call_of(1, 8, Overflow::Discard), true);
  CHECK(epoch == EpochBatches{{{2}, {3}}, {{4}, {5}}});
  CHECK(use.batches == 4);
  CHECK(use.most_documents == 2);
  CHECK(use.discarded_batches == 1);
  CHECK(use.trailing_batches == 1);
  CHECK(use.lost_documents == 3);
  CHECK(use.lost_tokens == 12);

  epoch = whole;
  use = fit_into_slots(epoch, lengths, call_of(1, 8, Overflow::Merge), true);
  CHECK(epoch == whole);
  CHECK(use.merged_batches == 1);
  CHECK(use.merged_documents == 2);
  CHECK(use.cross_document_tokens == 4);
  CHECK(use.lost_documents == 0);

  CHECK(error_of(whole, lengths, call_of(1, 8, Overflow::Error)) ==
        "rank 0, batch 0: 2 documents for max_num_docs = 1; raise it, or set overflow = \"merge\" "
        "or \"discard\"");
  CHECK(error_of({{{0, 1}}, {{2}}}, lengths, call_of(1, 8, Overflow::Discard)) ==
        "rank 0: none of its 1 batches fits into max_num_docs = 1");
  // A merged pair of 8 is too long, so even merging leaves the batch out.
  CHECK(error_of({{{0, 1}}, {{2}}}, lengths, call_of(1, 7, Overflow::Merge)) ==
        "rank 0: none of its 1 batches fits into max_num_docs = 1");
}

TEST_CASE("no document is lost uncounted, and slots and lengths are kept to") {
  std::mt19937_64 random(3);
  int merges = 0;
  int discards = 0;
  int cuts = 0;
  for (int seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const bool causal = random() % 2 == 0;
    const VarlenCall call = call_of(static_cast<std::int64_t>(2 + random() % 3),
                                    static_cast<std::int64_t>(6 + random() % 10),
                                    random() % 2 == 0 ? Overflow::Merge : Overflow::Discard);
    Lengths lengths;
    EpochBatches epoch(1 + random() % 3);
    const std::size_t steps = 1 + random() % 5;
    for (Batches& batches : epoch) {
      batches.push_back({static_cast<std::int64_t>(lengths.size())});  // This one always fits.
      lengths.push_back(1);
      for (std::size_t step = 0; step < steps; ++step) {
        auto& batch = batches.emplace_back();
        for (std::size_t d = 0; d <= random() % 6; ++d) {
          batch.push_back(static_cast<std::int64_t>(lengths.size()));
          lengths.push_back(1 + static_cast<std::int64_t>(random() % 12));
        }
      }
    }
    const Lengths cut = cut_lengths(lengths, call);
    std::int64_t most = 0;
    for (const Batches& batches : epoch) {
      for (const auto& batch : batches) {
        most = std::max(most, static_cast<std::int64_t>(batch.size()));
      }
    }
    const VarlenUse use = fit_into_slots(epoch, lengths, call, causal);
    CHECK(use.most_documents == most);
    std::int64_t documents = 0;
    std::int64_t tokens = 0;
    std::int64_t mixed = 0;
    std::int64_t batches_run = 0;
    for (const Batches& batches : epoch) {
      CHECK(batches.size() == epoch.front().size());
      for (const auto& batch : batches) {
        Lengths own;
        for (const std::int64_t sample : batch) {
          own.push_back(cut[static_cast<std::size_t>(sample)]);
        }
        const auto sequences = sequences_in_slots(own, call);
        REQUIRE(sequences.has_value());
        CHECK(static_cast<std::int64_t>(sequences->size()) <= call.max_num_docs);
        auto next = own.begin();
        for (const Sequence& sequence : *sequences) {
          CHECK(sequence.length <= call.max_seq_len);
          const Lengths inside(next, next + sequence.documents);
          next += sequence.documents;
          CHECK(sum_of(inside) == sequence.length);
          CHECK(inside.front() == sequence.first_length);
          mixed += mixed_tokens(inside, causal);
        }
        CHECK(next == own.end());
        documents += static_cast<std::int64_t>(own.size());
        tokens += sum_of(own);
        ++batches_run;
      }
    }
    CHECK(use.batches == batches_run);
    CHECK(documents + use.lost_documents == static_cast<std::int64_t>(lengths.size()));
    CHECK(tokens + use.lost_tokens + use.cut_tokens == sum_of(lengths));
    CHECK(use.cross_document_tokens == mixed);
    CHECK(use.empty_blocks <= use.blocks);
    merges += use.merged_batches > 0 ? 1 : 0;
    discards += use.discarded_batches > 0 ? 1 : 0;
    cuts += use.cut_documents > 0 ? 1 : 0;
  }
  CHECK(merges > 20);
  CHECK(discards > 20);
  CHECK(cuts > 20);
}
