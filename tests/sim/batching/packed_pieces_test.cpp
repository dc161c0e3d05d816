// Packed policies that cut samples, by hand: samples in their own order.
#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "sim/batching/training_effects.h"
#include "tests/sim/batching/make_policy.h"
#include "tests/sim/batching/plan_hash.h"
#include "tests/sim/batching/steps_of.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

using Lengths = std::vector<std::int64_t>;
/// [rank][batch][piece]
using Pieces = std::vector<std::vector<std::vector<Piece>>>;

struct Planned {
  Pieces pieces;
  TrainingEffects effects;
};

Planned planned(const std::string& kind,
                PolicyParameters parameters,
                const Lengths& lengths,
                int ranks = 1) {
  PolicySpec spec;
  spec.kind = kind;
  spec.parameters = std::move(parameters);
  PolicyInput input;
  input.lengths = lengths;
  input.ranks = ranks;
  input.sampler.shuffle = false;
  const EpochPlan epoch = make_policy(spec).epoch(input);
  Planned result;
  for (const auto& rank : epoch.batches) {
    auto& own = result.pieces.emplace_back();
    for (const auto& batch : rank) {
      own.push_back(epoch.pieces_of(batch, lengths));
    }
  }
  result.effects = training_effects(epoch, input);
  return result;
}

PolicyParameters capacity(std::int64_t tokens) {
  return {{"capacity", tokens}};
}

PolicyParameters with(PolicyParameters parameters, const std::string& name, PolicyValue value) {
  parameters.set(name, std::move(value));
  return parameters;
}

}  // namespace

TEST_CASE("wrapped cuts the line of samples every capacity tokens") {
  const auto plan = planned("packed_wrapped", capacity(4), {5, 3, 4});
  const Pieces expected = {{{{0, 0, 4}}, {{0, 4, 1}, {1, 0, 3}}, {{2, 0, 4}}}};
  CHECK(plan.pieces == expected);
  CHECK(plan.effects.split_samples == 1);
  CHECK(plan.effects.cropped_tokens == 0);
  CHECK(plan.effects.repeated_samples == 0);
  CHECK(plan.effects.repeated_tokens == 0);
}

TEST_CASE("the fullest row of several pieces is halved until the ranks divide the rows") {
  const auto plan = planned("packed_wrapped", capacity(4), {5, 3, 4}, 2);
  const Pieces expected = {{{{0, 0, 4}}, {{2, 0, 4}}}, {{{1, 0, 3}}, {{0, 4, 1}}}};
  CHECK(plan.pieces == expected);
}

TEST_CASE("best-fit decreasing cuts long samples, or goes on with them in further pieces") {
  const Lengths lengths = {5, 3, 4, 2};
  const auto cut = planned("packed_bfd", capacity(4), lengths);
  const Pieces cut_rows = {{{{0, 0, 4}}, {{2, 0, 4}}, {{1, 0, 3}}, {{3, 0, 2}}}};
  CHECK(cut.pieces == cut_rows);
  CHECK(cut.effects.cropped_samples == 1);
  CHECK(cut.effects.cropped_tokens == 1);
  CHECK(cut.effects.lost_samples == 0);

  const auto split = planned("packed_bfd_split", capacity(4), lengths);
  const Pieces split_rows = {{{{0, 0, 4}}, {{2, 0, 4}}, {{1, 0, 3}, {0, 4, 1}}, {{3, 0, 2}}}};
  CHECK(split.pieces == split_rows);
  CHECK(split.effects.cropped_tokens == 0);
  CHECK(split.effects.split_samples == 1);

  const auto two = planned("packed_bfd_split", with(capacity(4), "rows", std::int64_t{2}), lengths);
  const Pieces two_rows = {{{{0, 0, 4}, {2, 0, 4}}, {{1, 0, 3}, {0, 4, 1}, {3, 0, 2}}}};
  CHECK(two.pieces == two_rows);
}

TEST_CASE("a sample that no row can hold is left out, cut or bad input, as axolotl's option says") {
  const Lengths lengths = {2, 5, 1, 3};
  for (const char* kind : {"packed_first_fit", "packed_next_fit"}) {
    CAPTURE(kind);
    const auto dropped = planned(kind, capacity(4), lengths);
    const Pieces without = {{{{0, 0, 2}, {2, 0, 1}}, {{3, 0, 3}}}};
    CHECK(dropped.pieces == without);
    CHECK(dropped.effects.lost_samples == 1);
    CHECK(dropped.effects.lost_tokens == 5);
    const auto strategy = [&](const std::string& name) {
      return with(capacity(4), "excess_length_strategy", name);
    };
    const auto cut = planned(kind, strategy("truncate"), lengths);
    CHECK(cut.effects.lost_samples == 0);
    CHECK(cut.effects.cropped_tokens == 1);
    CHECK_THROWS_WITH_AS(
        (void)planned(kind, strategy("raise"), lengths),
        "sample 1 has 5 tokens, above the capacity of 4; cut lengths with cap = 4 in [data]",
        InputError);
  }
  const auto first_fit = planned("packed_first_fit", capacity(4), {2, 3, 2, 1});
  const Pieces rows = {{{{0, 0, 2}, {2, 0, 2}}, {{1, 0, 3}, {3, 0, 1}}}};
  CHECK(first_fit.pieces == rows);
}

TEST_CASE("best fit with cropping: the longest that fits, else the shortest cropped to the room") {
  const auto plan = planned("packed_best_fit_crop", capacity(6), {4, 3, 5, 1, 9});
  const Pieces expected = {{{{2, 0, 5}, {3, 0, 1}}, {{0, 0, 4}, {1, 0, 2}}, {{4, 0, 6}}}};
  CHECK(plan.pieces == expected);
  CHECK(plan.effects.cropped_samples == 2);
  CHECK(plan.effects.cropped_tokens == 1 + 3);
  // Two rows a batch: the third row fills none.
  const auto two =
      planned("packed_best_fit_crop", with(capacity(6), "rows", std::int64_t{2}), {4, 3, 5, 1, 9});
  const Pieces one_batch = {{{{2, 0, 5}, {3, 0, 1}, {0, 0, 4}, {1, 0, 2}}}};
  CHECK(two.pieces == one_batch);
  CHECK(two.effects.lost_tokens == 9);
  // One document at a time in the buffer: greedy cropping in the order of the stream.
  PolicyParameters greedy = with(capacity(6), "buffer_size", std::int64_t{1});
  greedy.set("tokenizer_batch_size", std::int64_t{1});
  const auto stream = planned("packed_best_fit_crop", greedy, {4, 3, 5, 1, 9});
  const Pieces cropped = {{{{0, 0, 4}, {1, 0, 2}}, {{2, 0, 5}, {3, 0, 1}}, {{4, 0, 6}}}};
  CHECK(stream.pieces == cropped);
}

TEST_CASE("a stream fills the ranks in turn with exactly one token more than asked for") {
  PolicyParameters parameters = {{"num_tokens_local", std::int64_t{4}},
                                 {"max_seq_len", std::int64_t{4}}};
  const auto plan = planned("packed_stream", parameters, {3, 5, 2, 7, 4}, 2);
  // Rank 0: 3, then 2 of 5. Rank 1: 2, then 3 of 7. The last sample fills no step.
  const Pieces expected = {{{{0, 0, 3}, {1, 0, 2}}}, {{{2, 0, 2}, {3, 0, 3}}}};
  CHECK(plan.pieces == expected);
  CHECK(plan.effects.cropped_tokens == 3 + 4);
  CHECK(plan.effects.lost_tokens == 4);
}

TEST_CASE("bins: the fullest rows of a step are used, others wait or are thrown away") {
  const Lengths lengths = {3, 2, 2, 1, 6, 1, 1, 1};
  PolicyParameters parameters = with(capacity(4), "packing_ratio", 4.0);
  // Step 1: 3 and 2 open bins, 2 fills the second, 1 the first, which moves behind it.
  // Step 2: the long sample is cut to 4; the bin kept from step 1 is the first of the full ones.
  const auto all = planned("packed_bins", parameters, lengths);
  const Pieces kept = {{{{1, 0, 2}, {2, 0, 2}}, {{0, 0, 3}, {3, 0, 1}}}};
  CHECK(all.pieces == kept);
  CHECK(all.effects.lost_samples == 4);
  CHECK(all.effects.lost_tokens == 9);

  parameters.set("max_leftover_bins_to_keep", std::int64_t{0});
  const auto none = planned("packed_bins", parameters, lengths);
  const Pieces fresh = {{{{1, 0, 2}, {2, 0, 2}}, {{4, 0, 4}}}};
  CHECK(none.pieces == fresh);
  CHECK(none.effects.cropped_tokens == 2);

  parameters.set("rows", std::int64_t{2});
  const auto two = planned("packed_bins", parameters, lengths);
  // One step of all eight: 6 (cut to 4) alone; 3 + 1, 2 + 2 and 1 + 1 beside it.
  CHECK(two.pieces.front().size() == 1);
  CHECK(two.effects.lost_samples + std::ssize(two.pieces.front().front()) == 8);

  parameters.set("packing_ratio", 0.5);
  CHECK_THROWS_WITH_AS((void)planned("packed_bins", parameters, lengths),
                       "packing_ratio: 0.5 is below 1: a row holds a sample at least",
                       InputError);
}

TEST_CASE("a plan of whole samples has no pieces, and pieces have a hash of their own") {
  PolicySpec spec;
  spec.kind = "packed_wrapped";
  spec.parameters = capacity(4);
  PolicyInput input;
  input.sampler.shuffle = false;
  const Lengths whole = {4, 4};
  input.lengths = whole;
  const EpochPlan plan = make_policy(spec).epoch(input);
  CHECK(plan.pieces.empty());
  CHECK(plan.batches == EpochBatches{{{0}, {1}}});
  const Lengths cut = {8};
  input.lengths = cut;
  const EpochPlan pieces = make_policy(spec).epoch(input);
  CHECK(pieces.batches == plan.batches);
  CHECK(plan_hash(pieces.batches, pieces.pieces) != plan_hash(plan.batches));
  const std::vector<Piece> others = {{0, 0, 4}, {0, 3, 4}};
  CHECK(plan_hash(pieces.batches, others) != plan_hash(pieces.batches, pieces.pieces));
}

TEST_CASE("the steps of a policy that cuts are pieces, and start again") {
  PolicySpec spec;
  spec.kind = "packed_wrapped";
  spec.parameters = capacity(4);
  PolicyInput input;
  input.sampler.shuffle = false;
  const Lengths lengths = {6};
  input.lengths = lengths;
  const Pieces expected = {{{{0, 0, 4}}}, {{{0, 4, 2}}}, {{{0, 0, 4}}}};
  CHECK(steps_of(make_policy(spec), input, 3) == expected);
  const Lengths few = {2};
  input.lengths = few;
  spec.kind = "packed_best_fit_crop";
  CHECK_THROWS_AS((void)steps_of(make_policy(spec), input, 1), InputError);
}
