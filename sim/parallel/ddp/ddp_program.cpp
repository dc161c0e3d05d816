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
double bytes_over_parameter(const std::optional<Dtype>& dtype, const TrainedModel& model) {
  return dtype
             ? static_cast<double>(element_size(*dtype)) / static_cast<double>(model.element_bytes)
             : 1;
}

}  // namespace

StepContext step_context(const TrainedModel& model,
                         const BucketLists& buckets,
                         const DdpOptions& options,
                         const StepHost& host,
                         const StepPrices& prices,
                         const StepWork& step) {
  const auto listed = [&](const std::vector<Bucket>& list, bool rebuilt) -> BucketList {
    const bool used = std::ranges::any_of(step.iterations, [&](const Iteration& iteration) {
      return iteration.uses_rebuilt == rebuilt;
    });
    return {list, used ? bucket_of_parameters(list, model.parameters.size()) : std::vector<int>{}};
  };
  return {model,
          listed(buckets.initial, false),
          listed(buckets.rebuilt, true),
          options,
          host,
          prices,
          step,
          static_cast<int>(step.ranks.size()),
          bytes_over_parameter(options.mixed_param_dtype, model),
          bytes_over_parameter(options.mixed_reduce_dtype, model)};
}

StepProgram ddp_program(const TrainedModel& model,
                        const BucketLists& buckets,
                        const DdpOptions& options,
                        const StepHost& host,
                        const StepPrices& prices,
                        const StepWork& step) {
  return built_program<RankProgramBuilder>(
      step_context(model, buckets, options, host, prices, step));
}

std::vector<Communicator> ddp_communicators(const DdpOptions& options, bool gloo, int ranks) {
  Communicator world;
  if (gloo) {
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

std::vector<std::int64_t> owned_elements(const TrainedModel& model, int zero_stage, int ranks) {
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

}  // namespace stepsim
