#include "sim/batching/algorithms/min_max.h"
#include "sim/batching/policies/balanced.h"
#include "sim/batching/policies/min_max.h"
#include "sim/batching/policies/packed.h"
#include "sim/batching/policies/packed_pieces.h"
#include "sim/batching/policies/planner.h"
#include "sim/batching/policies/policy_rows.h"

namespace stepsim {

std::vector<PolicyRow> balancing_rows() {
  return {
      {{"planner",
        "windows of the sampler's order, sorted by length, cut into steps of equal samples (each "
        "dealt over the ranks with the least highest predicted time) or of equal time; use "
        "weighting = \"sample\"",
        {required_integer("batch_size"),
         integer_or("window", 64),
         optional_integer("max_tokens"),
         choice("steps", {"equal_samples", "equal_time"}),
         choice("cost", {"step_time", "tokens"})},
        "Stepsim"},
       planner_epoch},
      {{"min_max",
        "each step takes a prefix of every rank's buffer, global_batch samples in all, so that "
        "the highest cost of a rank is least; needs weighting = \"sample\"",
        {required_integer("global_batch"),
         integer_or("buffer", 64),
         optional_integer("b_max"),
         optional_integer("max_tokens"),
         choice("cost", {"tokens", "tokens_sq", "quadratic", "step_time"}),
         optional_number("quadratic_tokens"),
         choice("tie_break", {"variance", "none", "min_sum", "leximax"})},
        "dynamic min-max micro-batch allocation"},
       min_max_epoch,
       check_min_max},
      {{"batch_rebalance",
        "each global batch of ranks * batch_size samples is sorted and cut so that the highest "
        "padded cost of a rank is least (exact); needs weighting = \"sample\"",
        {required_integer("batch_size")},
        "Hugging Face Trainer batch_rebalance"},
       batch_rebalance_epoch},
      {{"karmarkar_karp",
        "each global batch is dealt to the ranks by largest differencing of the samples' "
        "workloads, batch_size samples a rank",
        {required_integer("batch_size"), choice("workload", {"verl", "tokens", "tokens_sq"})},
        "verl, slime sequence-length balancing"},
       karmarkar_karp_epoch},
      {{"lpt",
        "each global batch is dealt to the ranks, longest sample first, each to the rank of least "
        "workload; needs weighting = \"sample\"",
        {required_integer("batch_size"), choice("workload", {"tokens", "tokens_sq", "verl"})},
        "fairchem balanced partition; TRL async GRPO (tokens_sq)"},
       lpt_epoch},
      {{"load_balancing",
        "samples by length in groups of one sample a rank, groups shuffled",
        {required_integer("batch_size")},
        "Bagua, ONNX Runtime LoadBalancingDistributedSampler"},
       load_balancing_epoch},
      {{"dynapipe",
        "each global batch is sorted and cut into micro-batches of least padded tokens and "
        "overhead_tokens each, which are dealt to the ranks by largest differencing; every round "
        "of them is a step; needs weighting = \"sample\"",
        {required_integer("batch_size"),
         integer_or("overhead_tokens", 256, 0),
         optional_integer("max_tokens"),
         integer_or("pipeline_stages", 1)},
        "DynaPipe ordered partition"},
       dynapipe_epoch},
      {{"packed_bfd",
        "the data set packed by best-fit decreasing into rows of capacity tokens, to which longer "
        "samples are cut; for attention = \"varlen\"",
        {required_integer("capacity"), integer_or("rows", 1)},
        "TRL packing, strategy bfd"},
       packed_bfd_epoch},
      {{"packed_bfd_split",
        "the same, but longer samples go on in further pieces: nothing is cut off; for attention = "
        "\"varlen\"",
        {required_integer("capacity"), integer_or("rows", 1)},
        "TRL packing, strategy bfd_split"},
       packed_bfd_split_epoch},
      {{"packed_wrapped",
        "the data set in one line, cut every capacity tokens; for attention = \"varlen\"",
        {required_integer("capacity"), integer_or("rows", 1)},
        "TRL packing, strategy wrapped"},
       packed_wrapped_epoch},
      {{"packed_best_fit_crop",
        "each rank fills rows of exactly capacity tokens out of a buffer with the longest document "
        "that fits; where none fits the shortest is cropped to the room and its rest lost; for "
        "attention = \"varlen\"",
        {required_integer("capacity"),
         integer_or("buffer_size", 1000),
         integer_or("tokenizer_batch_size", 128),
         integer_or("rows", 1)},
        "nanochat pretraining loader (capacity = T + 1)"},
       packed_best_fit_crop_epoch},
      {{"packed_stream",
        "rank after rank takes documents in the sampler's order, each cut to max_seq_len and to "
        "the room, until it has exactly num_tokens_local + 1 tokens; for attention = \"varlen\"",
        {required_integer("num_tokens_local"), integer_or("max_seq_len", 2048)},
        "modded-nanogpt, aligned to documents"},
       packed_stream_epoch},
      {{"packed_bins",
        "each rank packs rows * packing_ratio samples a step, cut to the capacity, and trains on "
        "the fullest rows; other rows wait, and those never used are lost; for attention = "
        "\"varlen\"",
        {required_integer("capacity"),
         integer_or("rows", 1),
         required_number("packing_ratio"),
         optional_integer("max_leftover_bins_to_keep", 0)},
        "llm-foundry packing collator"},
       packed_bins_epoch,
       check_packed_bins},
      {{"packed_first_fit",
        "samples packed in the sampler's order, each into the first row with room; rows dealt to "
        "ranks in turn; samples above the capacity are left out, cut or an error; for attention = "
        "\"varlen\"",
        {required_integer("capacity"),
         choice("excess_length_strategy", {"drop", "truncate", "raise"}),
         integer_or("sample_packing_bin_size", 200),
         integer_or("sample_packing_group_size", 100'000)},
        "axolotl sample_packing"},
       packed_first_fit_epoch},
      {{"packed_next_fit",
        "samples one after another, a new row where the next one has no room; rows dealt to ranks "
        "in turn; samples above the capacity are left out, cut or an error; for attention = "
        "\"varlen\"",
        {required_integer("capacity"),
         choice("excess_length_strategy", {"drop", "truncate", "raise"})},
        "axolotl sample_packing_sequentially"},
       packed_next_fit_epoch},
      {{"packed_knapsack",
        "one row at a time filled with the longest sample that fits; samples above the capacity "
        "are left out; for attention = \"varlen\"",
        {required_integer("capacity")},
        "LLaMA-Factory greedy_knapsack"},
       packed_knapsack_epoch},
      {{"packed_longalign",
        "samples one after another in rows below the capacity; samples that reach it and the last "
        "row are left out; for attention = \"varlen\"",
        {required_integer("capacity")},
        "LongAlign packing"},
       packed_longalign_epoch},
      {{"packed_histogram",
        "the data set packed by its histogram of lengths, at most max_sequences_per_pack samples "
        "a row (12; with nnlshp, which weighs every way to fill a row, 3); for attention = "
        "\"varlen\"",
        {required_integer("capacity"),
         optional_integer("max_sequences_per_pack"),
         choice("algorithm", {"lpfhp", "spfhp", "nnlshp"})},
        "Graphcore LPFHP, SPFHP, NNLSHP"},
       packed_histogram_epoch},
      {{"multipack",
        "each step packs the longest prefix of the shuffled samples that fits into one row of "
        "capacity tokens a rank; the last samples are left out; for attention = \"varlen\"",
        {required_integer("capacity"), choice("algorithm", {"quadratic", "linear"})},
        "multipack_sampler"},
       multipack_epoch},
      {{"streamed_rows",
        "one open row a rank, each sample to the row with room of the least sum of squares; the "
        "last rows and samples above the budget are left out; for attention = \"varlen\"",
        {required_integer("token_budget")},
        "TRL async GRPO TokenBudgetBatcher"},
       streamed_rows_epoch},
  };
}

}  // namespace stepsim
