#pragma once

#include "sim/batching/epoch_plan.h"
#include "sim/batching/policy_parameters.h"

// Packed policies that can cut samples. Like those in packed.h they are for attention = "varlen": a
// batch costs what its documents cost, whole or in parts, in however many rows they stand.

namespace stepsim {

/// The data set packed once by best-fit decreasing, longer samples cut to `capacity`; rows in the
/// sampler's order, `rows` a batch. Source: TRL, bfd.
[[nodiscard]] EpochPlan packed_bfd_epoch(const PolicyParameters& parameters,
                                         const PolicyInput& input);

/// Packs like packed_bfd_epoch, but longer samples go on in further pieces. Source: TRL, bfd_split.
[[nodiscard]] EpochPlan packed_bfd_split_epoch(const PolicyParameters& parameters,
                                               const PolicyInput& input);

/// pack_wrapped of the data set; rows in the sampler's order, `rows` a batch. Source: TRL, wrapped.
[[nodiscard]] EpochPlan packed_wrapped_epoch(const PolicyParameters& parameters,
                                             const PolicyInput& input);

/// First-fit in the sampler's order, row k to rank k modulo ranks. SampleIds above `capacity` are
/// handled first, as excess_length_strategy says: left out, cut to it, or bad input.
/// Source: axolotl.
[[nodiscard]] EpochPlan packed_first_fit_epoch(const PolicyParameters& parameters,
                                               const PolicyInput& input);

/// Packs like packed_first_fit_epoch, but by next-fit. Source: axolotl, sequentially.
[[nodiscard]] EpochPlan packed_next_fit_epoch(const PolicyParameters& parameters,
                                              const PolicyInput& input);

/// Each rank packs the stream of its share by pack_best_fit_crop, `rows` full rows a batch; what
/// fills no batch of every rank is left out. Source: nanochat, dataloader.py.
[[nodiscard]] EpochPlan packed_best_fit_crop_epoch(const PolicyParameters& parameters,
                                                   const PolicyInput& input);

/// take_from_stream of the sampler's order, step by step; what fills no step is left out.
/// Source: modded-nanogpt, train_gpt.py.
[[nodiscard]] EpochPlan packed_stream_epoch(const PolicyParameters& parameters,
                                            const PolicyInput& input);

/// Each rank's collator packs `rows` * packing_ratio samples of its share into `rows` rows a step
/// and keeps what it does not emit; what is left at the end is lost. Source: llm-foundry.
[[nodiscard]] EpochPlan packed_bins_epoch(const PolicyParameters& parameters,
                                          const PolicyInput& input);
/// Raises InputError: packing_ratio below 1.
void check_packed_bins(const PolicyParameters& parameters);

}  // namespace stepsim
