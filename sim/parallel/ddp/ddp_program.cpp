#include "sim/parallel/ddp/ddp_program.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

#include "sim/parallel/ddp/rank_program_builder.h"

namespace stepsim {

namespace {

/// Index of the bucket and of the op that completes each parameter; checked to be complete.
std::vector<int> bucket_of_parameters(const std::vector<Bucket>& buckets, std::size_t parameters) {
  std::vector<int> bucket_of(parameters, -1);
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    for (const int parameter : buckets[b].parameters) {
      bucket_of.at(static_cast<std::size_t>(parameter)) = static_cast<int>(b);
    }
  }
  const auto missing = std::ranges::find(bucket_of, -1);
  if (missing != bucket_of.end()) {
    throw std::invalid_argument("ddp: parameter " + std::to_string(missing - bucket_of.begin()) +
                                " is in no bucket");
  }
  return bucket_of;
}

/// Bytes of an element of that type over those of a parameter's; 1 where there is no such type.
double bytes_over_parameter(const std::optional<Dtype>& dtype, const DdpModel& model) {
  return dtype
             ? static_cast<double>(element_size(*dtype)) / static_cast<double>(model.element_bytes)
             : 1;
}

void check(const DdpModel& model, const DdpStep& step) {
  for (std::size_t r = 0; r < step.ranks.size(); ++r) {
    const RankWork& rank = step.ranks[r];
    if (rank.micro_batches.size() != step.iterations.size() || step.iterations.empty()) {
      throw std::invalid_argument(
          "ddp: rank " + std::to_string(r) + " has " + std::to_string(rank.micro_batches.size()) +
          " micro-batches for " + std::to_string(step.iterations.size()) + " iterations");
    }
    for (const MicroBatchWork& batch : rank.micro_batches) {
      if (!batch.joined && batch.backward.size() != model.completes.size()) {
        throw std::invalid_argument(
            "ddp: rank " + std::to_string(r) + " has " + std::to_string(batch.backward.size()) +
            " backward kernels for " + std::to_string(model.completes.size()) + " ops");
      }
    }
  }
}

}  // namespace

DdpProgram ddp_program(const DdpModel& model,
                       const DdpBuckets& buckets,
                       const DdpOptions& options,
                       const DdpHost& host,
                       const DdpPrices& prices,
                       const DdpStep& step) {
  check(model, step);
  DdpProgram result;
  result.program.marks = kDdpMarks;
  result.program.labels = model.labels;
  result.program.ranks.resize(step.ranks.size());
  const auto listed = [&](const std::vector<Bucket>& list, bool rebuilt) -> BucketList {
    const bool used = std::ranges::any_of(step.iterations, [&](const Iteration& iteration) {
      return iteration.uses_rebuilt == rebuilt;
    });
    return {list, used ? bucket_of_parameters(list, model.parameters.size()) : std::vector<int>{}};
  };
  const StepContext context{model,
                            listed(buckets.initial, false),
                            listed(buckets.rebuilt, true),
                            options,
                            host,
                            prices,
                            step,
                            static_cast<int>(step.ranks.size()),
                            bytes_over_parameter(options.mixed_param_dtype, model),
                            bytes_over_parameter(options.mixed_reduce_dtype, model)};
  CollectiveLog log(context, result);
  for (std::size_t r = 0; r < step.ranks.size(); ++r) {
    RankProgramBuilder builder(context, log, result.program, static_cast<int>(r));
    builder.build();
  }
  return result;
}

std::vector<Communicator> ddp_communicators(const DdpOptions& options,
                                            const DdpHost& host,
                                            int ranks) {
  Communicator world;
  if (host.waits_for_collectives) {
    // gloo: two worker threads a process group, over the same sockets.
    world.workers = 2;
    world.shares_links = true;
  }
  std::vector<Communicator> communicators = {world};
  const int group = options.hook_options.subgroup_ranks;
  if (takes_option(options.hook, "subgroup_ranks") && group > 0) {
    for (int first = 0; first < ranks; first += group) {
      Communicator local = world;
      for (int rank = first; rank < std::min(first + group, ranks); ++rank) {
        local.ranks.push_back(rank);
      }
      communicators.push_back(local);
    }
  }
  return communicators;
}

std::vector<std::int64_t> owned_elements(const DdpModel& model, int zero_stage, int ranks) {
  const auto count = static_cast<int>(model.parameters.size());
  std::int64_t all = 0;
  std::vector<int> by_size(static_cast<std::size_t>(count));
  std::iota(by_size.begin(), by_size.end(), 0);
  for (const int parameter : by_size) {
    all += model.elements(parameter);
  }
  std::vector<std::int64_t> owned(static_cast<std::size_t>(ranks), all);
  if (zero_stage >= 2) {
    std::ranges::fill(owned, (all + ranks - 1) / ranks);
  } else if (zero_stage == 1) {
    std::ranges::fill(owned, 0);
    std::ranges::stable_sort(by_size,
                             [&](int a, int b) { return model.elements(a) > model.elements(b); });
    for (const int parameter : by_size) {
      *std::ranges::min_element(owned) += model.elements(parameter);
    }
  }
  return owned;
}

StepTimeline timeline_of(const ExecutionTrace& played, const DdpProgram& program) {
  StepTimeline step;
  step.collectives = program.uses;
  step.spans = played.spans;
  step.waits = played.waits;
  for (const RankTrace& rank : played.ranks) {
    const auto part = [&](Phase which) { return rank.phases[static_cast<std::size_t>(which)]; };
    RankTimeline line;
    line.start = rank.marks[kStepStart];
    line.data_end = line.start + part(Phase::Data);
    line.forward_end = line.data_end + part(Phase::Forward) + part(Phase::Other);
    line.backward_end = line.forward_end + part(Phase::Backward);
    line.compute_end = rank.marks[kBackwardEnd];
    line.end = rank.device_end;
    line.exposed = part(Phase::Wait);
    line.held = rank.held;
    line.waiting = rank.waiting_for_ranks;
    line.copy_out = part(Phase::CopyOut);
    line.optimizer = part(Phase::Optimizer);
    step.ranks.push_back(std::move(line));
    step.clocks.push_back({rank.host_end, rank.device_end});
  }
  for (std::size_t c = 0; c < played.collectives.size(); ++c) {
    const CollectiveTrace& collective = played.collectives[c];
    step.reduce_start.push_back(collective.start);
    step.reduce_end.push_back(collective.end);
    for (std::size_t r = 0; r < step.ranks.size(); ++r) {
      step.ranks[r].ready_at.push_back(collective.arrival[r]);
      if (!collective.enqueued_at.empty()) {
        step.ranks[r].enqueued_at.push_back(collective.enqueued_at[r]);
      }
    }
  }
  return step;
}

}  // namespace stepsim
