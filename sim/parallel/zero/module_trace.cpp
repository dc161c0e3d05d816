#include "sim/parallel/zero/module_trace.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <iterator>

#include "costmodel/base/index.h"

namespace stepsim {
namespace {

/// The bookkeeping of DeepSpeed's coordinator over one micro-batch.
class TraceWalk {
 public:
  TraceWalk(const TrainedModel& model,
            const std::vector<ModuleRun>& runs,
            const ZeroOptions& options,
            bool knows_trace)
      : model_(model),
        runs_(runs),
        options_(options),
        knows_trace_(knows_trace),
        gathered_(model.parameters.size(), false),
        awaited_(model.parameters.size(), false),
        fetched_for_(model.parameters.size(), -1) {
    for (std::size_t run = 0; knows_trace && run < runs.size(); ++run) {
      for (const int parameter : parameters_of(run)) {
        queue_.push_back({parameter, static_cast<int>(run)});
      }
    }
  }

  ModuleTrace trace() {
    ModuleTrace result;
    for (std::size_t run = 0; run < runs_.size(); ++run) {
      result.fetches.push_back(fetch(run));
      free(run);
    }
    result.most_live = most_live_;
    result.largest_gather = largest_gather_;
    return result;
  }

 private:
  struct Use {
    int parameter = 0;
    int run = 0;
  };

  [[nodiscard]] const std::vector<int>& parameters_of(std::size_t run) const {
    return model_.units[at(runs_[run].unit)];
  }
  [[nodiscard]] bool is_there(int parameter) const {
    return gathered_[at(parameter)] || is_persistent(model_, options_, parameter);
  }

  ModuleFetch fetch(std::size_t run) {
    ModuleFetch result;
    for (const int parameter : parameters_of(run)) {
      if (!is_there(parameter)) {
        result.fetched.push_back(parameter);
      }
    }
    gather(result.fetched);
    for (const int parameter : parameters_of(run)) {
      if (awaited_[at(parameter)]) {
        result.awaited.push_back(parameter);
        awaited_[at(parameter)] = false;
      }
    }
    if (knows_trace_) {
      leave_queue(run);
      result.prefetched = prefetch();
      gather(result.prefetched);
    }
    return result;
  }

  void gather(const std::vector<int>& parameters) {
    std::int64_t elements = 0;
    for (const int parameter : parameters) {
      gathered_[at(parameter)] = awaited_[at(parameter)] = true;
      elements += model_.elements(parameter);
    }
    live_ += elements;
    most_live_ = std::max(most_live_, live_);
    largest_gather_ = std::max(largest_gather_, elements);
  }

  /// The uses of this run leave the queue, unless a prefetch has taken them before.
  void leave_queue(std::size_t run) {
    std::ptrdiff_t left = std::ranges::count_if(parameters_of(run), [&](int parameter) {
      return fetched_for_[at(parameter)] < static_cast<int>(run);
    });
    for (; left > 0 && !queue_.empty(); --left) {
      fetched_for_[at(queue_.front().parameter)] = queue_.front().run;
      queue_.pop_front();
    }
  }

  std::vector<int> prefetch() {
    const std::int64_t most = std::min(options_.max_live - live_, options_.prefetch_bucket);
    std::vector<int> parameters;
    std::int64_t elements = 0;
    while (!queue_.empty() && elements < most) {
      const auto [parameter, run] = queue_.front();
      queue_.pop_front();
      fetched_for_[at(parameter)] = std::max(fetched_for_[at(parameter)], run);
      if (!is_there(parameter) && std::ranges::count(parameters, parameter) == 0) {
        parameters.push_back(parameter);
        elements += model_.elements(parameter);
      }
    }
    return parameters;
  }

  void free(std::size_t run) {
    std::vector<int> freed;
    std::ranges::copy_if(parameters_of(run), std::back_inserter(freed), [&](int parameter) {
      // What a prefetch has passed over, since it was there, must stay until that use.
      return gathered_[at(parameter)] && fetched_for_[at(parameter)] <= static_cast<int>(run) + 1;
    });
    std::int64_t passed = 0;
    for (std::size_t next = run + 1;
         knows_trace_ && next < runs_.size() && !freed.empty() && passed < options_.max_reuse;
         ++next) {
      for (const int parameter : parameters_of(next)) {
        std::erase(freed, parameter);
        passed += model_.elements(parameter);
      }
    }
    for (const int parameter : freed) {
      gathered_[at(parameter)] = false;
      live_ -= model_.elements(parameter);
    }
  }

  const TrainedModel& model_;
  const std::vector<ModuleRun>& runs_;
  const ZeroOptions& options_;
  bool knows_trace_;
  std::vector<bool> gathered_;    ///< [parameter] there, or on its way.
  std::vector<bool> awaited_;     ///< [parameter] on its way, and no run has waited for it.
  std::vector<int> fetched_for_;  ///< [parameter] the last run that it was fetched for; -1: none.
  std::deque<Use> queue_;         ///< The uses to come that no fetch has looked at.
  std::int64_t live_ = 0;
  std::int64_t most_live_ = 0;
  std::int64_t largest_gather_ = 0;
};

void add_runs(const std::vector<int>& units, bool backward, std::vector<ModuleRun>& runs) {
  for (std::size_t op = 0; op < units.size(); ++op) {
    const int unit = units[op];
    const auto number = static_cast<int>(op);
    const bool goes_on = op > 0 && units[op - 1] == unit;
    if (goes_on && unit != 0) {
      runs.back().end = number + 1;
    } else if (unit != 0) {
      runs.push_back({unit, number, number + 1, backward});
    }
  }
}

}  // namespace

std::vector<ModuleRun> module_runs(const TrainedModel& model) {
  std::vector<ModuleRun> runs;
  add_runs(model.forward_unit, false, runs);
  add_runs(model.backward_unit, true, runs);
  return runs;
}

bool is_persistent(const TrainedModel& model, const ZeroOptions& options, int parameter) {
  return model.elements(parameter) <= options.persistence_threshold;
}

ModuleTrace module_trace(const TrainedModel& model,
                         const std::vector<ModuleRun>& runs,
                         const ZeroOptions& options,
                         bool knows_trace) {
  return TraceWalk(model, runs, options, knows_trace).trace();
}

std::vector<std::vector<int>> reduce_buckets(const TrainedModel& model, std::int64_t bucket) {
  std::vector<std::vector<int>> buckets;
  std::int64_t elements = 0;
  for (const std::vector<int>& completed : model.completes) {
    for (const int parameter : completed) {
      const std::int64_t own = model.elements(parameter);
      if (buckets.empty() || elements + own > bucket) {
        buckets.emplace_back();
        elements = 0;
      }
      buckets.back().push_back(parameter);
      elements += own;
    }
  }
  return buckets;
}

}  // namespace stepsim
