#include "sim/batching/policies/packed.h"
#include "sim/batching/policies/packed_pieces.h"
#include "sim/batching/policies/policy_table.h"

namespace stepsim {

std::vector<PolicyKind> packing_policies() {
  return {
      {.name = "packed_bfd",
       .summary = "the data set packed by best-fit decreasing into rows of capacity tokens, to "
                  "which longer samples are cut; for attention = \"varlen\"",
       .source = "TRL: SFTConfig(packing=True), strategy bfd",
       .is_common = true,
       .parameters = {required_integer("capacity"), integer_or("rows", 1)},
       .epoch = packed_bfd_epoch,
       .token_budget = value_of("capacity")},
      {.name = "packed_bfd_split",
       .summary = "the same, but longer samples go on in further pieces: nothing is cut off; for "
                  "attention = \"varlen\"",
       .source = "TRL: SFTConfig(packing=True), strategy bfd_split",
       .parameters = {required_integer("capacity"), integer_or("rows", 1)},
       .epoch = packed_bfd_split_epoch,
       .token_budget = value_of("capacity")},
      {.name = "packed_wrapped",
       .summary = "the data set in one line, cut every capacity tokens; for attention = \"varlen\"",
       .source = "TRL: SFTConfig(packing=True), strategy wrapped",
       .parameters = {required_integer("capacity"), integer_or("rows", 1)},
       .epoch = packed_wrapped_epoch,
       .token_budget = value_of("capacity")},
      {.name = "packed_best_fit_crop",
       .summary = "each rank fills rows of exactly capacity tokens out of a buffer with the "
                  "longest document that fits; where none fits the shortest is cropped to the room "
                  "and its rest lost; for attention = \"varlen\"",
       .source = "nanochat pretraining loader (capacity = T + 1)",
       .parameters = {required_integer("capacity"),
                      integer_or("buffer_size", 1000),
                      integer_or("tokenizer_batch_size", 128),
                      integer_or("rows", 1)},
       .epoch = packed_best_fit_crop_epoch,
       .token_budget = value_of("capacity")},
      {.name = "packed_stream",
       .summary =
           "rank after rank takes documents in the sampler's order, each cut to max_seq_len and to "
           "the room, until it has exactly num_tokens_local + 1 tokens; for attention = \"varlen\"",
       .source = "modded-nanogpt, aligned to documents",
       .parameters = {required_integer("num_tokens_local"), integer_or("max_seq_len", 2048)},
       .epoch = packed_stream_epoch},
      {.name = "packed_bins",
       .summary = "each rank packs rows * packing_ratio samples a step, cut to the capacity, and "
                  "trains on the fullest rows; other rows wait, and those never used are lost; for "
                  "attention = \"varlen\"",
       .source = "llm-foundry packing collator",
       .parameters = {required_integer("capacity"),
                      integer_or("rows", 1),
                      required_number("packing_ratio"),
                      optional_integer("max_leftover_bins_to_keep", 0)},
       .epoch = packed_bins_epoch,
       .check = check_packed_bins,
       .token_budget = value_of("capacity")},
      {.name = "packed_first_fit",
       .summary = "samples packed in the sampler's order, each into the first row with room; rows "
                  "dealt to ranks in turn; samples above the capacity are left out, cut or an "
                  "error; for attention = \"varlen\"",
       .source = "axolotl: sample_packing: true",
       .is_common = true,
       .parameters = {required_integer("capacity"),
                      choice("excess_length_strategy", {"drop", "truncate", "raise"}),
                      integer_or("sample_packing_bin_size", 200),
                      integer_or("sample_packing_group_size", 100'000)},
       .epoch = packed_first_fit_epoch,
       .token_budget = value_of("capacity")},
      {.name = "packed_next_fit",
       .summary = "samples one after another, a new row where the next one has no room; rows dealt "
                  "to ranks in turn; samples above the capacity are left out, cut or an error; for "
                  "attention = \"varlen\"",
       .source = "axolotl: sample_packing_sequentially: true",
       .parameters = {required_integer("capacity"),
                      choice("excess_length_strategy", {"drop", "truncate", "raise"})},
       .epoch = packed_next_fit_epoch,
       .token_budget = value_of("capacity")},
      {.name = "packed_knapsack",
       .summary = "one row at a time filled with the longest sample that fits; samples above the "
                  "capacity are left out; for attention = \"varlen\"",
       .source = "LLaMA-Factory greedy_knapsack",
       .parameters = {required_integer("capacity")},
       .epoch = packed_knapsack_epoch,
       .token_budget = value_of("capacity")},
      {.name = "packed_longalign",
       .summary = "samples one after another in rows below the capacity; samples that reach it and "
                  "the last row are left out; for attention = \"varlen\"",
       .source = "LongAlign packing",
       .parameters = {required_integer("capacity")},
       .epoch = packed_longalign_epoch,
       .token_budget = value_of("capacity")},
      {.name = "packed_histogram",
       .summary = "the data set packed by its histogram of lengths, at most max_sequences_per_pack "
                  "samples a row (12; with nnlshp, which weighs every way to fill a row, 3); for "
                  "attention = \"varlen\"",
       .source = "Graphcore LPFHP, SPFHP, NNLSHP",
       .parameters = {required_integer("capacity"),
                      optional_integer("max_sequences_per_pack"),
                      choice("algorithm", {"lpfhp", "spfhp", "nnlshp"})},
       .epoch = packed_histogram_epoch,
       .token_budget = value_of("capacity")},
      {.name = "multipack",
       .summary =
           "each step packs the longest prefix of the shuffled samples that fits into one row of "
           "capacity tokens a rank; the last samples are left out; for attention = \"varlen\"",
       .source = "multipack_sampler",
       .is_common = true,
       .parameters = {required_integer("capacity"), choice("algorithm", {"quadratic", "linear"})},
       .epoch = multipack_epoch,
       .token_budget = value_of("capacity")},
      {.name = "streamed_rows",
       .summary =
           "one open row a rank, each sample to the row with room of the least sum of squares; the "
           "last rows and samples above the budget are left out; for attention = \"varlen\"",
       .source = "TRL async GRPO TokenBudgetBatcher",
       .parameters = {required_integer("token_budget")},
       .epoch = streamed_rows_epoch,
       .token_budget = value_of("token_budget")},
  };
}

}  // namespace stepsim
