#include "sim/predict/loader.h"

#include <algorithm>

#include "sim/engine/time_limit.h"

namespace stepsim {

Loader::Loader(const LoaderOptions& options, int ranks)
    : options_(options), ranks_(static_cast<std::size_t>(ranks)) {
  for (Rank& rank : ranks_) {
    rank.worker_free.resize(static_cast<std::size_t>(options.workers));
  }
}

Duration Loader::cost(int rank, std::int64_t index, std::int64_t padded_tokens) const {
  Duration cost = bounded(options_.batch) +
                  bounded_duration(options_.token_seconds * static_cast<double>(padded_tokens));
  if (options_.plan_every > 0 && index % options_.plan_every == 0) {
    cost += bounded(options_.plan);
  }
  if (!options_.delays.empty()) {
    cost += bounded(options_.delays[static_cast<std::size_t>(rank)]);
  }
  return bounded(cost);
}

SimTime Loader::ready(int rank, Duration cost) {
  Rank& state = ranks_[static_cast<std::size_t>(rank)];
  const std::int64_t index = state.made++;
  const std::int64_t ahead = static_cast<std::int64_t>(options_.workers) * options_.prefetch;
  SimTime asked;
  if (index >= ahead) {
    // Within one step of several micro-batches the fetch may not be known yet: the last known one.
    const auto fetch = std::min(static_cast<std::size_t>(index - ahead),
                                state.fetch_times.empty() ? 0 : state.fetch_times.size() - 1);
    asked = state.fetch_times.empty() ? SimTime{} : state.fetch_times[fetch];
  }
  SimTime& free = state.worker_free[static_cast<std::size_t>(index % options_.workers)];
  free = bounded(std::max(free, asked) + cost);
  return free;
}

void Loader::fetched(int rank, SimTime time) {
  ranks_[static_cast<std::size_t>(rank)].fetch_times.push_back(time);
}

}  // namespace stepsim
