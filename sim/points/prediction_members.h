#pragma once

#include <tuple>

#include "sim/points/exact_json.h"
#include "sim/predict/prediction.h"
#include "sim/predict/step_picture.h"

namespace stepsim {

// The members of a prediction and of all that it holds, for exact_json.h. Structs with a base
// cannot be bound, and their size is stated instead.

STEPSIM_MEMBERS(TokenBudget, tokens, length)
STEPSIM_MEMBERS(OutOfMemory, step, rank, needed, capacity, budget, behind_steps)
STEPSIM_MEMBERS(CollectiveOrigin, text, source)
STEPSIM_MEMBERS(TimesOfAnyBatch, fewest, most)
STEPSIM_MEMBERS(OptimizerOfAdamw, moved)
STEPSIM_MEMBERS(SizesBeyondMeasured, op, factor, smaller)
STEPSIM_MEMBERS(SizesNotMeasured, op_classes)

auto members(Is<EmptyBlocksFree> auto& value) {
  static_assert(std::is_empty_v<std::remove_reference_t<decltype(value)>>);
  return std::tie();
}

auto members(Is<EmptyBlockKeyUnused> auto& value) {
  static_assert(std::is_empty_v<std::remove_reference_t<decltype(value)>>);
  return std::tie();
}

STEPSIM_MEMBERS(Interference,
                compute,
                transfer,
                multiprocessors,
                max_channels,
                memory_share,
                limit,
                while_waiting)
STEPSIM_MEMBERS(ProfileInterference, measurements, interference)

auto members(Is<CollectivesInsidePasses> auto& value) {
  static_assert(std::is_empty_v<std::remove_reference_t<decltype(value)>>);
  return std::tie();
}

auto members(Is<DefaultCapStated> auto& value) {
  static_assert(std::is_empty_v<std::remove_reference_t<decltype(value)>>);
  return std::tie();
}

auto members(Is<ActivationsNotCounted> auto& value) {
  return std::tie(value.lengths_unknown);
}

STEPSIM_MEMBERS(StatedErrors, times, all_reduce, interference)
STEPSIM_MEMBERS(HostBound, kernels, compute_ms, launch_seconds, launch_assumed)
STEPSIM_MEMBERS(BelowHostFloor, tensors, costs_ms, priced_ms, host_low_ms, host_high_ms)
STEPSIM_MEMBERS(CollectiveNotMeasured, origin)
STEPSIM_MEMBERS(PricesNotMeasured, origin)
STEPSIM_MEMBERS(UnitHostAssumed, forward_ms, backward_ms, optimizer_ms)
STEPSIM_MEMBERS(AssumedOfKind, text)
STEPSIM_MEMBERS(RecordedBesideOthers, slowed)
STEPSIM_MEMBERS(CostsNothing, launches, interference)
STEPSIM_MEMBERS(OtherSettings, differences)
STEPSIM_MEMBERS(KeysOfBuckets, kind, keys)
STEPSIM_MEMBERS(HookNotStarted, hook, start, steps, warmup_steps)
STEPSIM_MEMBERS(
    RankTimes, data_ms, forward_ms, backward_ms, exposed_ms, waiting_ms, optimizer_ms, step_ms)

/// The RankTimes inside a row, const or not as the row is.
template <typename Row>
auto& rank_times_in(Row& row) {
  return static_cast<std::conditional_t<std::is_const_v<Row>, const RankTimes, RankTimes>&>(row);
}

auto members(Is<RankStepResult> auto& value) {
  static_assert(sizeof(RankStepResult) == sizeof(RankTimes) + 2UL * 4 + 6UL * 8);
  return std::tuple_cat(members(rank_times_in(value)),
                        std::tie(value.step,
                                 value.rank,
                                 value.samples,
                                 value.max_length,
                                 value.useful_tokens,
                                 value.padded_tokens,
                                 value.start_ms,
                                 value.peak_memory_mib));
}

auto members(Is<RankMeans> auto& value) {
  static_assert(sizeof(RankMeans) == sizeof(RankTimes) + 2UL * 8);
  return std::tuple_cat(members(rank_times_in(value)),
                        std::tie(value.useful_tokens, value.padded_tokens));
}

STEPSIM_MEMBERS(
    StepTimeSummary, mean, p50, p95, p99, max, low90, high90, same_hour_low90, same_hour_high90)
STEPSIM_MEMBERS(PredictionSummary,
                step_time_ms,
                samples_per_step,
                useful_tokens_per_step,
                tokens_per_sample,
                padded_tokens_per_step,
                rank_token_spread,
                step_time_std_over_ranks,
                padded_tokens_std_over_ranks,
                peak_memory_std_over_ranks,
                data_ms,
                forward_ms,
                backward_ms,
                optimizer_ms,
                exposed_communication_ms,
                waiting_for_ranks_ms,
                communication_ms,
                overlap_fraction,
                peak_memory_mib)
STEPSIM_MEMBERS(MeanInterval, percent, low, high, same_hour_low, same_hour_high)
STEPSIM_MEMBERS(MeanDraw, step_ms, drift)
STEPSIM_MEMBERS(RankTimeline,
                start,
                data_end,
                forward_end,
                backward_end,
                compute_end,
                end,
                exposed,
                held,
                waiting,
                copy_out,
                optimizer,
                ready_at,
                enqueued_at)
STEPSIM_MEMBERS(CollectiveUse, kind, bytes, bucket)
STEPSIM_MEMBERS(TraceSpan, rank, label, stream, phase, begin, end, enqueued_at)
STEPSIM_MEMBERS(RankClock, host, device)
STEPSIM_MEMBERS(
    StepTimeline, ranks, collectives, waits_within, reduce_start, reduce_end, spans, waits, clocks)
STEPSIM_MEMBERS(TrainingEffects,
                samples,
                tokens,
                lost_samples,
                lost_tokens,
                cropped_samples,
                cropped_tokens,
                split_samples,
                repeated_samples,
                repeated_tokens,
                over_budget_samples,
                fewest_steps,
                most_steps,
                sample_skew,
                token_skew,
                displacement,
                distinct_shapes,
                useful_target_tokens,
                padded_target_tokens)
STEPSIM_MEMBERS(VarlenUse,
                max_num_docs,
                batches,
                most_documents,
                merged_batches,
                merged_documents,
                cross_document_tokens,
                discarded_batches,
                trailing_batches,
                lost_documents,
                lost_tokens,
                cut_documents,
                cut_tokens,
                empty_blocks,
                blocks)
STEPSIM_MEMBERS(EpochShapes, steps, builds, stalled_steps, step_ms, warm_up_seconds)
STEPSIM_MEMBERS(ShapeSummary,
                mechanisms,
                builds,
                stalled_steps,
                warm_ms,
                run_ms,
                warm_up_seconds,
                hidden,
                warmed_up,
                gave_up,
                step_ms,
                lost_ms,
                distinct,
                epoch)
STEPSIM_MEMBERS(MemoryPoint, ms, event, micro_batch, backward, mib)
STEPSIM_MEMBERS(MemoryCurve, step, rank, parts, points, peak)
STEPSIM_MEMBERS(Prediction,
                scenario,
                policy,
                profile,
                profile_id,
                unconfirmed,
                summary,
                ranks,
                steps,
                draws,
                intervals,
                paired_step_ms,
                timelines,
                op_labels,
                training,
                varlen,
                shapes,
                collective_origins,
                notes,
                out_of_memory,
                largest_memory_mib,
                memory_curve,
                token_budget)
STEPSIM_MEMBERS(BucketSize, bytes, tensors)
STEPSIM_MEMBERS(StepPicture, step, timeline, ranks, buckets, bucket_cap, has_units)

}  // namespace stepsim
