#pragma once

#include <tuple>

#include "sim/points/exact_json.h"
#include "sim/predict/prediction.h"
#include "sim/predict/step_picture.h"

namespace stepsim {

// The members of a prediction and of all that it holds, for exact_json.h. A structured binding must
// name every member, so that one that is added and not named here does not compile; structs with a
// base cannot be bound, and their size is stated instead.

auto members(Is<TokenBudget> auto& value) {
  auto& [tokens, length] = value;
  return std::tie(tokens, length);
}

auto members(Is<OutOfMemory> auto& value) {
  auto& [step, rank, needed, capacity, budget] = value;
  return std::tie(step, rank, needed, capacity, budget);
}

auto members(Is<CollectiveOrigin> auto& value) {
  auto& [text, source] = value;
  return std::tie(text, source);
}

auto members(Is<SizesBeyondMeasured> auto& value) {
  auto& [op, factor, smaller] = value;
  return std::tie(op, factor, smaller);
}

auto members(Is<SizesNotMeasured> auto& value) {
  auto& [op_classes] = value;
  return std::tie(op_classes);
}

auto members(Is<EmptyBlocksFree> auto& value) {
  static_assert(std::is_empty_v<std::remove_reference_t<decltype(value)>>);
  return std::tie();
}

auto members(Is<EmptyBlockKeyUnused> auto& value) {
  static_assert(std::is_empty_v<std::remove_reference_t<decltype(value)>>);
  return std::tie();
}

auto members(Is<Interference> auto& value) {
  auto& [compute, transfer, multiprocessors, max_channels, memory_share, limit, while_waiting] =
      value;
  return std::tie(
      compute, transfer, multiprocessors, max_channels, memory_share, limit, while_waiting);
}

auto members(Is<ProfileInterference> auto& value) {
  auto& [measurements, interference] = value;
  return std::tie(measurements, interference);
}

auto members(Is<CollectivesInsidePasses> auto& value) {
  static_assert(std::is_empty_v<std::remove_reference_t<decltype(value)>>);
  return std::tie();
}

auto members(Is<StatedErrors> auto& value) {
  auto& [times, all_reduce, interference] = value;
  return std::tie(times, all_reduce, interference);
}

auto members(Is<HostBound> auto& value) {
  auto& [kernels, compute_ms, launch_seconds, launch_assumed] = value;
  return std::tie(kernels, compute_ms, launch_seconds, launch_assumed);
}

auto members(Is<CollectiveNotMeasured> auto& value) {
  auto& [origin] = value;
  return std::tie(origin);
}

auto members(Is<PricesNotMeasured> auto& value) {
  auto& [origin] = value;
  return std::tie(origin);
}

auto members(Is<CostsNothing> auto& value) {
  auto& [launches, interference] = value;
  return std::tie(launches, interference);
}

auto members(Is<RankTimes> auto& value) {
  auto& [data_ms, forward_ms, backward_ms, exposed_ms, waiting_ms, optimizer_ms, step_ms] = value;
  return std::tie(data_ms, forward_ms, backward_ms, exposed_ms, waiting_ms, optimizer_ms, step_ms);
}

/// The RankTimes inside a row, const or not as the row is.
template <typename Row>
auto& rank_times_in(Row& row) {
  return static_cast<std::conditional_t<std::is_const_v<Row>, const RankTimes, RankTimes>&>(row);
}

auto members(Is<RankStepResult> auto& value) {
  static_assert(sizeof(RankStepResult) == sizeof(RankTimes) + 2 * 4 + 6 * 8);
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
  static_assert(sizeof(RankMeans) == sizeof(RankTimes) + 2 * 8);
  return std::tuple_cat(members(rank_times_in(value)),
                        std::tie(value.useful_tokens, value.padded_tokens));
}

auto members(Is<StepTimeSummary> auto& value) {
  auto& [mean, p50, p95, p99, max, low90, high90] = value;
  return std::tie(mean, p50, p95, p99, max, low90, high90);
}

auto members(Is<PredictionSummary> auto& value) {
  auto& [step_time_ms,
         samples_per_step,
         useful_tokens_per_step,
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
         peak_memory_mib] = value;
  return std::tie(step_time_ms,
                  samples_per_step,
                  useful_tokens_per_step,
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
                  peak_memory_mib);
}

auto members(Is<MeanDraw> auto& value) {
  auto& [step_ms, drift] = value;
  return std::tie(step_ms, drift);
}

auto members(Is<RankTimeline> auto& value) {
  auto& [start,
         data_end,
         forward_end,
         backward_end,
         compute_end,
         end,
         exposed,
         waiting,
         copy_out,
         optimizer,
         ready_at,
         enqueued_at] = value;
  return std::tie(start,
                  data_end,
                  forward_end,
                  backward_end,
                  compute_end,
                  end,
                  exposed,
                  waiting,
                  copy_out,
                  optimizer,
                  ready_at,
                  enqueued_at);
}

auto members(Is<CollectiveUse> auto& value) {
  auto& [kind, bytes, bucket] = value;
  return std::tie(kind, bytes, bucket);
}

auto members(Is<TraceSpan> auto& value) {
  auto& [rank, label, stream, phase, begin, end, enqueued_at] = value;
  return std::tie(rank, label, stream, phase, begin, end, enqueued_at);
}

auto members(Is<RankClock> auto& value) {
  auto& [host, device] = value;
  return std::tie(host, device);
}

auto members(Is<StepTimeline> auto& value) {
  auto& [ranks, collectives, reduce_start, reduce_end, spans, waits, clocks] = value;
  return std::tie(ranks, collectives, reduce_start, reduce_end, spans, waits, clocks);
}

auto members(Is<TrainingEffects> auto& value) {
  auto& [samples,
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
         padded_target_tokens] = value;
  return std::tie(samples,
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
                  padded_target_tokens);
}

auto members(Is<VarlenUse> auto& value) {
  auto& [max_num_docs,
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
         blocks] = value;
  return std::tie(max_num_docs,
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
                  blocks);
}

auto members(Is<EpochShapes> auto& value) {
  auto& [steps, builds, stalled_steps, step_ms, warm_up_seconds] = value;
  return std::tie(steps, builds, stalled_steps, step_ms, warm_up_seconds);
}

auto members(Is<ShapeSummary> auto& value) {
  auto& [mechanisms,
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
         epoch] = value;
  return std::tie(mechanisms,
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
                  epoch);
}

auto members(Is<Prediction> auto& value) {
  auto& [scenario,
         policy,
         profile,
         profile_id,
         summary,
         ranks,
         steps,
         draws,
         paired_step_ms,
         timelines,
         op_labels,
         training,
         varlen,
         shapes,
         collective_origins,
         notes,
         out_of_memory,
         token_budget] = value;
  return std::tie(scenario,
                  policy,
                  profile,
                  profile_id,
                  summary,
                  ranks,
                  steps,
                  draws,
                  paired_step_ms,
                  timelines,
                  op_labels,
                  training,
                  varlen,
                  shapes,
                  collective_origins,
                  notes,
                  out_of_memory,
                  token_budget);
}

auto members(Is<BucketSize> auto& value) {
  auto& [bytes, tensors] = value;
  return std::tie(bytes, tensors);
}

auto members(Is<StepPicture> auto& value) {
  auto& [step, timeline, ranks, buckets, bucket_cap] = value;
  return std::tie(step, timeline, ranks, buckets, bucket_cap);
}

}  // namespace stepsim
