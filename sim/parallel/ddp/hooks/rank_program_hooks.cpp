#include <cmath>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "sim/parallel/ddp/rank_program_builder.h"

namespace stepsim {

/// The default: one all-reduce of the bucket (a reduce-scatter from ZeRO-2 on).
void RankProgramBuilder::reduce(int bucket) {
  const DdpOptions& options = context_.options;
  const int first = buckets_->list[at(bucket)].parameters.front();
  if (context_.model.parameters[at(first)].sparse) {
    in_flight_[at(bucket)] = {collective(
        {CollectiveKind::AllGather, context_.step.sparse_bytes, bucket}, kComputeStream)};
    return;
  }
  const bool casts = context_.reduce_scale != context_.gradient_scale;
  if (casts) {
    memory(gradient_bytes(bucket) + wire_bytes(bucket), Phase::Backward);
  }
  const CollectiveKind kind =
      options.zero_stage >= 2 ? CollectiveKind::ReduceScatter : CollectiveKind::AllReduce;
  const int sent = collective({kind, wire_bytes(bucket), bucket}, kComputeStream);
  in_flight_[at(bucket)] = {sent};
  if (context_.casts_parameters()) {
    // Native mixed precision divides and casts to fp32 on its own stream, after the reduction.
    stream_wait(sent, kSideStream);
    memory(2 * wire_bytes(bucket), Phase::Other, kSideStream);
    memory(wire_bytes(bucket) * (1 + 1 / context_.reduce_scale), Phase::Other, kSideStream);
    done_event_[at(bucket)] = record(kSideStream);
  }
}

void RankProgramBuilder::reduce_with_hook(int bucket) {
  const DdpOptions& options = context_.options;
  const double bytes = gradient_bytes(bucket);
  const auto count = static_cast<double>(std::max<std::int64_t>(bucket_elements(bucket), 1));
  std::vector<std::vector<std::int64_t>> shapes;
  for (const int parameter : buckets_->list[at(bucket)].parameters) {
    shapes.push_back(context_.model.shapes[at(parameter)]);
  }
  const std::vector<HookCollective> parts = hook_collectives(options.hook,
                                                             options.hook_options,
                                                             shapes,
                                                             std::llround(bytes / count),
                                                             context_.ranks,
                                                             context_.step.step);
  host(context_.prices.python_hook);
  std::vector<int>& sent = in_flight_[at(bucket)];
  sent.clear();
  const RankGroup subgroup = {1, options.hook_options.subgroup_ranks};
  const auto send = [&](const HookCollective& part, std::uint8_t stream, bool world = true) {
    sent.push_back(
        collective({part.kind, part.bytes, bucket}, stream, world ? RankGroup{} : subgroup));
    return sent.back();
  };
  const auto finish_beside = [&](double moved) {
    stream_wait(sent.back(), kSideStream);
    memory(moved, Phase::Other, kSideStream);
    done_event_[at(bucket)] = record(kSideStream);
  };
  switch (hook_schedule(options.hook, options.hook_options, context_.step.step)) {
    case HookSchedule::Nothing:
      break;
    case HookSchedule::Divided:
      memory(2 * bytes, Phase::Backward);
      for (const HookCollective& part : parts) {
        send(part, kComputeStream, part.ranks == context_.ranks);
      }
      break;
    case HookSchedule::Cast: {
      const double cast = parts.front().bytes;
      memory(bytes + cast, Phase::Backward);
      memory(2 * cast, Phase::Backward);  // It divides what it has cast.
      send(parts.front(), kComputeStream);
      finish_beside(cast + bytes);
      break;
    }
    case HookSchedule::LowRank:
      power_sgd(bucket, parts);
      break;
    case HookSchedule::Selected: {
      // Selection reads magnitudes twice and writes the chosen; every rank's choice is added back.
      memory(3 * bytes, Phase::Backward);
      for (const HookCollective& part : parts) {
        send(part, kComputeStream);
      }
      const double gathered = sum_of(parts, &HookCollective::bytes);
      finish_beside(2 * gathered + bytes);
      break;
    }
    case HookSchedule::Quantized: {
      memory(bytes, Phase::Backward);  // Smallest and largest value.
      send(parts.front(), kComputeStream);
      stream_wait(sent.back(), kSideStream);
      memory(1.25 * bytes, Phase::Other, kSideStream);
      send(parts.back(), kSideStream);
      finish_beside(context_.ranks * 2.25 * bytes);
      break;
    }
  }
}

/// Uncompressed tensors, all P, all Q, one after the other. The decompression synchronises the
/// device, so the host can launch nothing of the backward meanwhile.
void RankProgramBuilder::power_sgd(int bucket, const std::vector<HookCollective>& parts) {
  const double bytes = gradient_bytes(bucket);
  std::vector<int>& sent = in_flight_[at(bucket)];
  memory(5 * bytes, Phase::Backward);  // Error feedback: add, and keep a copy.
  memory(bytes, Phase::Backward);      // P = M Q reads the gradient once.
  const auto send = [&](const HookCollective& part, std::uint8_t stream) {
    sent.push_back(collective({part.kind, part.bytes, bucket}, stream));
    stream_wait(sent.back(), kSideStream);
  };
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    send(parts[i], kComputeStream);
  }
  memory(bytes, Phase::Other, kSideStream);  // Q = M^T P reads it again.
  send(parts.back(), kSideStream);
  memory(4 * bytes, Phase::Other, kSideStream);  // P Q^T, and what it leaves as error.
  done_event_[at(bucket)] = record(kSideStream);
  host_sync(kSideStream);
  host_sync(kComputeStream);
  if (context_.host.is_device) {
    event_wait(done_event_[at(bucket)], Phase::Wait);
  }
}

}  // namespace stepsim
