#include "sim/study/tune/candidates.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include <fmt/format.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parallel.h"
#include "costmodel/model/memory.h"
#include "sim/predict/bucket_lists.h"
#include "sim/predict/predict.h"
#include "sim/study/tune/step_bound.h"

namespace stepsim {
namespace {

constexpr double kOwnSlack = 1.25;  // On the samples of the scenario's own policies.

/// One combination of the shared axes.
struct SharedSettings {
  std::string refused;
  ReduceBound reduce;
  std::string buckets;  ///< All that the keys which only reduce decide, as a text.
  std::optional<Scenario> scenario;
  std::map<AttentionKind, PeakMemory> memory;
};

/// The buckets, of those who keep one of them in memory its size, and the keys of the kind.
std::string buckets_text(const Scenario& scenario) {
  const BucketLists lists = bucket_lists(scenario);
  std::string text;
  for (const std::vector<Bucket>* list : {&lists.initial, &lists.rebuilt}) {
    for (const Bucket& bucket : *list) {
      text += fmt::format("{};", fmt::join(bucket.parameters, ","));
    }
    text += "|";
  }
  const std::optional<Bytes> working = memory_options(scenario).working_bucket;
  return text + (working ? std::to_string(working->value()) : "") +
         scenario.parallel_values.printed();
}

/// The numbers below `count` from several places on by turns. Works that follow one another share
/// an epoch, for which threads would wait that begin side by side.
std::vector<std::size_t> spread(std::size_t count) {
  constexpr std::size_t kPlaces = 16;
  const std::size_t part = (count + kPlaces - 1) / kPlaces;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < part; ++i) {
    for (std::size_t number = i; number < count; number += part) {
      order.push_back(number);
    }
  }
  return order;
}

/// The bounds of all points, from those of their parts: points that differ in their buckets alone
/// have the same work, and all policies reduce the same gradients.
class SearchBounds {
 public:
  SearchBounds(const TuneSpace& space, const CandidateOptions& options, Jobs& jobs)
      : space_(space), shared_(space.shared_size()) {
    find_works();
    parallel_for(shared_.size(), options.threads, [&](std::size_t i) {
      SharedSettings& settings = shared_[i];
      try {
        settings.scenario = jobs.scenario(space.shared_settings(space.choice(i)));
        settings.reduce = reduce_bound(*settings.scenario, *jobs.profile(*settings.scenario));
        settings.buckets = buckets_text(*settings.scenario);
      } catch (const InputError& error) {
        settings.refused = error.what();
      }
    });
    works_.resize(work_points_.size());
    const std::vector<std::size_t> order = spread(works_.size());
    parallel_for(works_.size(), options.threads, [&](std::size_t i) {
      WorkBound& work = works_[order[i]];
      const TuneChoice choice = space.choice(work_points_[order[i]]);
      try {
        work = work_bound(
            jobs.job(space.policies()[choice.policy].name, space.settings(choice, false)),
            options.limits);
      } catch (const InputError& error) {
        work.refused = error.what();
      }
    });
  }

  [[nodiscard]] const WorkBound& work(std::size_t point) const { return works_[work_of(point)]; }
  [[nodiscard]] std::size_t work_of(std::size_t point) const { return work_of_[point]; }
  [[nodiscard]] const std::string& refused(std::size_t point) const {
    const std::string& by_work = work(point).refused;
    return by_work.empty() ? shared_[point % shared_.size()].refused : by_work;
  }
  [[nodiscard]] const std::string& buckets(std::size_t point) const {
    return shared_[point % shared_.size()].buckets;
  }
  [[nodiscard]] double least_seconds(std::size_t point) const {
    return least_step_s(work(point), shared_[point % shared_.size()].reduce);
  }
  /// The most that a batch of the plan needs, by the formulas.
  [[nodiscard]] Bytes memory(std::size_t point, AttentionKind attention) {
    SharedSettings& settings = shared_[point % shared_.size()];
    auto known = settings.memory.find(attention);
    if (known == settings.memory.end()) {
      TransformerConfig model = settings.scenario->model;
      model.attention = attention;
      known =
          settings.memory.emplace(attention, PeakMemory(model, memory_options(*settings.scenario)))
              .first;
    }
    return max_of(
        work(point).largest,
        [&](const BatchShape& shape) { return known->second.at(shape).total(); },
        Bytes());
  }

 private:
  void find_works() {
    std::map<std::tuple<std::size_t, std::vector<std::size_t>, std::vector<std::size_t>>,
             std::size_t>
        known;
    for (std::size_t i = 0; i < space_.size(); ++i) {
      TuneChoice choice = space_.choice(i);
      for (std::size_t axis = 0; axis < choice.shared.size(); ++axis) {
        choice.shared[axis] = space_.shared()[axis].only_reduces ? 0 : choice.shared[axis];
      }
      const auto [place, is_new] =
          known.emplace(std::tuple(choice.policy, choice.own, choice.shared), work_points_.size());
      if (is_new) {
        work_points_.push_back(i);
      }
      work_of_.push_back(place->second);
    }
  }

  const TuneSpace& space_;
  std::vector<SharedSettings> shared_;    ///< [combination of the shared axes]
  std::vector<std::size_t> work_points_;  ///< [work] a point that has it.
  std::vector<std::size_t> work_of_;      ///< [point]
  std::vector<WorkBound> works_;          ///< [work]
};

}  // namespace

std::vector<WorkBound> own_works(const TuneSpace& space, Jobs& jobs) {
  return mapped(space.policies(), [&](const TuneSpace::Policy& policy) {
    return work_bound(jobs.job(policy.name, {}));
  });
}

TuneLimits completed_limits(TuneLimits limits, const std::vector<WorkBound>& own) {
  if (limits.samples || limits.tokens) {
    return limits;
  }
  double least = std::numeric_limits<double>::max();
  double most = 0;
  for (const WorkBound& work : own) {
    if (work.refused.empty()) {
      least = std::min(least, work.samples);
      most = std::max(most, work.samples);
    }
  }
  if (most > 0) {
    limits.samples = {least / kOwnSlack, most * kOwnSlack};
  }
  return limits;
}

std::vector<Candidate> find_candidates(const Scenario& scenario,
                                       const TuneSpace& space,
                                       const CandidateOptions& options,
                                       Jobs& jobs,
                                       LeftOut& left_out) {
  SearchBounds bounds(space, options, jobs);
  const Bytes capacity = jobs.profile(scenario)->memory_capacity;
  const std::vector<AttentionKind> attention =
      mapped(space.policies(), [&](const TuneSpace::Policy& policy) {
        return find_policy(scenario, policy.name).attention();
      });
  std::vector<Candidate> candidates;
  std::set<std::pair<std::size_t, std::string_view>> seen;
  const std::size_t points = space.size();
  for (std::size_t i = 0; i < points; ++i) {
    if (const std::string& why = bounds.refused(i); !why.empty()) {
      left_out.first_refusal = left_out.refused == 0 ? why : left_out.first_refusal;
      ++left_out.refused;
      continue;
    }
    const WorkBound& work = bounds.work(i);
    if (!meets(options.limits, work)) {
      ++left_out.outside_limits;
      continue;
    }
    const Bytes memory = bounds.memory(i, attention[space.choice(i).policy]);
    if (capacity.value() > 0 && memory > capacity) {
      ++left_out.out_of_memory;
      continue;
    }
    if (!seen.emplace(bounds.work_of(i), bounds.buckets(i)).second && !options.keeps_same_buckets) {
      ++left_out.same_buckets;
      continue;
    }
    const double least = bounds.least_seconds(i);
    candidates.push_back(
        {i,
         least > 0 ? work.useful_tokens / least : std::numeric_limits<double>::max(),
         static_cast<double>(memory.value()) / 0x1p20,
         work.displacement,
         work.left_out,
         work.samples});
  }
  std::ranges::stable_sort(candidates, std::greater(), &Candidate::bound);
  return candidates;
}

}  // namespace stepsim
