#include "sim/study/tune/tune.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parallel.h"
#include "costmodel/base/quantile.h"
#include "costmodel/model/memory.h"
#include "sim/predict/bucket_lists.h"
#include "sim/predict/predict.h"
#include "sim/predict/scenario_profile.h"
#include "sim/study/recommendation.h"

namespace stepsim {

/// For exact_json.h.
auto members(Is<TunePrice> auto& value) {
  auto& [refused, out_of_memory, step_ms, low90, high90, tokens, memory, paired] = value;
  return std::tie(refused, out_of_memory, step_ms, low90, high90, tokens, memory, paired);
}

namespace {

constexpr std::size_t kRound = 16;  // Points priced at a time, whatever the threads.
constexpr std::size_t kFinalists = 8;
constexpr double kFinal = 0.03;     // Finalists are at most so much slower than the best.
constexpr double kOwnSlack = 1.25;  // On the samples of the scenario's own policies.

std::string tune_text_of(const std::string& policy,
                         const std::vector<std::string>& set,
                         bool noise) {
  return fmt::format(
      "{{\"policy\":{},\"noise\":{},\"set\":{}}}", exact_text(policy), noise, exact_text(set));
}

TunePrice price_of(const Scenario& as_it_stands,
                   const std::vector<std::string>& overrides,
                   const std::string& text) {
  const Json point = parse_json(text, "point of a tuning");
  std::vector<std::string> set = overrides;
  std::vector<std::string> own;
  read_exact(point["set"], own);
  set.insert(set.end(), own.begin(), own.end());
  TunePrice price;
  try {
    const Scenario scenario = parse_scenario(as_it_stands.text, as_it_stands.path, set);
    const Profile profile = scenario_profile(scenario);
    PredictOptions options;
    options.threads = 1;
    options.noise_runs = point["noise"].get<bool>() ? options.noise_runs : 0;
    options.paired_draws = true;
    options.rows = KeptRows::None;
    const Prediction prediction = predict(
        scenario, find_policy(scenario, point["policy"].get<std::string>()), profile, options);
    price.out_of_memory = prediction.out_of_memory.has_value();
    price.step_ms = prediction.summary.step_time_ms.mean;
    price.low90_ms = prediction.summary.step_time_ms.low90;
    price.high90_ms = prediction.summary.step_time_ms.high90;
    price.useful_tokens = prediction.summary.useful_tokens_per_step;
    price.memory_mib = prediction.summary.peak_memory_mib;
    price.paired_step_ms = prediction.paired_step_ms;
  } catch (const InputError& error) {
    price.refused = error.what();
  }
  return price;
}

/// One combination of the shared axes.
struct SharedSettings {
  std::string refused;
  ReduceBound reduce;
  std::string buckets;  ///< All that the keys which only reduce decide, as a text.
  std::optional<Scenario> scenario;
  std::map<AttentionKind, PeakMemory> memory;
};

/// The buckets, and of stages that keep one of them in memory its size.
std::string buckets_text(const Scenario& scenario) {
  const DdpBuckets lists = bucket_lists(scenario);
  std::string text;
  for (const std::vector<Bucket>* list : {&lists.initial, &lists.rebuilt}) {
    for (const Bucket& bucket : *list) {
      text += fmt::format("{};", fmt::join(bucket.parameters, ","));
    }
    text += "|";
  }
  return text +
         (scenario.ddp.zero_stage > 1 ? std::to_string(scenario.ddp.bucket_cap.value()) : "");
}

/// A point before it is priced.
struct Candidate {
  std::size_t number = 0;
  std::size_t work = 0;  ///< In SearchBounds::works.
  double bound = 0;      ///< Useful tokens/s.
};

/// The bounds of all points, from those of their parts: points that differ in their buckets alone
/// have the same work, and all policies reduce the same gradients.
class SearchBounds {
 public:
  SearchBounds(const Scenario& scenario, const TuneSpace& space, const TuneOptions& options)
      : space_(space), shared_(space.shared_size()) {
    find_works();
    const auto scenario_of = [&](std::vector<std::string> set) {
      set.insert(set.begin(), options.overrides.begin(), options.overrides.end());
      return parse_scenario(scenario.text, scenario.path, set);
    };
    parallel_for(shared_.size(), options.threads, [&](std::size_t i) {
      SharedSettings& settings = shared_[i];
      try {
        settings.scenario = scenario_of(space.shared_settings(space.choice(i)));
        settings.reduce = reduce_bound(*settings.scenario, scenario_profile(*settings.scenario));
        settings.buckets = buckets_text(*settings.scenario);
      } catch (const InputError& error) {
        settings.refused = error.what();
      }
    });
    works_.resize(work_points_.size());
    parallel_for(works_.size(), options.threads, [&](std::size_t i) {
      const TuneChoice choice = space.choice(work_points_[i]);
      try {
        const Scenario of_work = scenario_of(space.settings(choice, false));
        works_[i] = work_bound(of_work,
                               find_policy(of_work, space.policies()[choice.policy].name),
                               scenario_profile(of_work));
      } catch (const InputError& error) {
        works_[i].refused = error.what();
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
  /// Whether some batch of the plan needs more memory than the device has.
  [[nodiscard]] bool exceeds(std::size_t point, AttentionKind attention, Bytes capacity) {
    if (capacity.value() == 0) {
      return false;
    }
    SharedSettings& settings = shared_[point % shared_.size()];
    auto known = settings.memory.find(attention);
    if (known == settings.memory.end()) {
      TransformerConfig model = settings.scenario->model;
      model.attention = attention;
      known =
          settings.memory.emplace(attention, PeakMemory(model, memory_options(*settings.scenario)))
              .first;
    }
    return std::ranges::any_of(work(point).largest, [&](const BatchShape& shape) {
      return known->second.at(shape).total() > capacity;
    });
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

bool is_within(const std::optional<std::pair<double, double>>& range, double value) {
  constexpr double kSlack = 1e-9;
  return !range || (value >= range->first * (1 - kSlack) && value <= range->second * (1 + kSlack));
}

bool meets(const TuneLimits& limits, const WorkBound& work) {
  return is_within(limits.samples, work.samples) && is_within(limits.tokens, work.useful_tokens) &&
         !(limits.displacement && work.displacement > *limits.displacement) &&
         !(limits.keeps_samples && work.lost_samples > 0);
}

/// The limits, with a range of samples where they say nothing of how much a step holds.
TuneLimits completed_limits(TuneLimits limits, const Scenario& scenario, const TuneSpace& space) {
  if (limits.samples || limits.tokens) {
    return limits;
  }
  double least = std::numeric_limits<double>::max();
  double most = 0;
  for (const TuneSpace::Policy& policy : space.policies()) {
    const WorkBound own =
        work_bound(scenario, find_policy(scenario, policy.name), scenario_profile(scenario));
    if (own.refused.empty()) {
      least = std::min(least, own.samples);
      most = std::max(most, own.samples);
    }
  }
  if (most > 0) {
    limits.samples = {least / kOwnSlack, most * kOwnSlack};
  }
  return limits;
}

/// The candidates in the order in which they are priced; what is left out is counted. Points with
/// the same buckets are priced once, unless all are to be.
std::vector<Candidate> find_candidates(const Scenario& scenario,
                                       const TuneSpace& space,
                                       const TuneLimits& limits,
                                       bool exhaustive,
                                       SearchBounds& bounds,
                                       TuneResult& result) {
  const Bytes capacity = scenario_profile(scenario).memory_capacity;
  std::vector<Candidate> candidates;
  std::set<std::pair<std::size_t, std::string_view>> seen;
  for (std::size_t i = 0; i < result.points; ++i) {
    if (const std::string& why = bounds.refused(i); !why.empty()) {
      result.first_refusal = result.refused == 0 ? why : result.first_refusal;
      ++result.refused;
      continue;
    }
    const WorkBound& work = bounds.work(i);
    if (!meets(limits, work)) {
      ++result.outside_limits;
      continue;
    }
    const std::string& policy = space.policies()[space.choice(i).policy].name;
    if (bounds.exceeds(i, find_policy(scenario, policy).attention(), capacity)) {
      ++result.out_of_memory;
      continue;
    }
    if (!seen.emplace(bounds.work_of(i), bounds.buckets(i)).second && !exhaustive) {
      ++result.same_buckets;
      continue;
    }
    const double least = bounds.least_seconds(i);
    candidates.push_back(
        {i,
         bounds.work_of(i),
         least > 0 ? work.useful_tokens / least : std::numeric_limits<double>::max()});
  }
  std::ranges::stable_sort(candidates, std::greater(), &Candidate::bound);
  return candidates;
}

bool is_faster(const TunedPoint& a, const TunedPoint& b) {
  const double first = a.price.useful_tokens_per_s();
  const double second = b.price.useful_tokens_per_s();
  return first != second ? first > second : a.number < b.number;
}

/// The points that no other one beats in speed, memory and distance from the sampler's order.
std::vector<TunedPoint> pareto_front(const std::vector<TunedPoint>& sorted) {
  std::vector<TunedPoint> front;
  for (const TunedPoint& point : sorted) {
    const bool beaten = std::ranges::any_of(front, [&](const TunedPoint& faster) {
      return faster.price.memory_mib <= point.price.memory_mib &&
             faster.displacement <= point.displacement;
    });
    if (!beaten) {
      front.push_back(point);
    }
  }
  return front;
}

/// Compares a finalist with the best, draw by draw: both have the same errors.
void compare_with_best(const TunePrice& best, TunedPoint& point) {
  std::vector<double> gains;
  double faster = 0;
  for (std::size_t i = 0; i < best.paired_step_ms.size(); ++i) {
    const double gain = best.useful_tokens / best.paired_step_ms[i] *
                            point.drawn.paired_step_ms[i] / point.drawn.useful_tokens -
                        1;
    gains.push_back(gain);
    faster += gain > 0 ? 1 : gain == 0 ? 0.5 : 0;
  }
  if (gains.empty()) {
    return;
  }
  Gain gain;
  gain.gain = best.useful_tokens_per_s() / point.drawn.useful_tokens_per_s() - 1;
  gain.faster_share = faster / static_cast<double>(gains.size());
  point.best_is_faster = gain.faster_share;
  point.gain_interval = {quantile(gains, 0.05), quantile(gains, 0.95)};
  point.too_close = !gain.is_certain();
}

/// The 95th of a hundred draws by how much faster another finalist is.
double regret95(const std::vector<TunedPoint>& finalists) {
  std::vector<double> regrets;
  const TunePrice& best = finalists.front().drawn;
  for (std::size_t i = 0; i < best.paired_step_ms.size(); ++i) {
    double regret = 0;
    for (const TunedPoint& other : finalists) {
      const double speed = other.drawn.useful_tokens / other.drawn.paired_step_ms[i];
      regret = std::max(regret, speed * best.paired_step_ms[i] / best.useful_tokens - 1);
    }
    regrets.push_back(regret);
  }
  return regrets.empty() ? 0 : quantile(regrets, 0.95);
}

}  // namespace

TuneResult tune(const Scenario& scenario,
                const TuneSpace& space,
                const TuneOptions& options,
                PointRunner& runner) {
  const std::function<TunePrice(const std::string&)> compute = [&](const std::string& text) {
    return price_of(scenario, options.overrides, text);
  };
  TuneResult result;
  result.points = space.size();
  // First, so that other processes begin to serve before process 0 computes the bounds.
  const std::vector<TunePrice> own =
      runner.evaluate(mapped(space.policies(),
                             [&](const TuneSpace::Policy& policy) {
                               return tune_text_of(policy.name, {}, options.draws);
                             }),
                      compute);
  for (std::size_t i = 0; i < own.size(); ++i) {
    result.references.push_back({space.policies()[i].name, own[i]});
  }
  SearchBounds bounds(scenario, space, options);
  const TuneLimits limits = completed_limits(options.limits, scenario, space);
  const std::vector<Candidate> candidates =
      find_candidates(scenario, space, limits, options.exhaustive, bounds, result);
  std::vector<TunedPoint> priced;
  double best = 0;
  std::size_t next = 0;
  const auto is_done = [&] {
    return !options.exhaustive && candidates[next].bound <= best * (1 + options.within);
  };
  while (next < candidates.size() && !is_done() &&
         (options.most_priced == 0 || next < options.most_priced)) {
    std::size_t end = std::min(candidates.size(), next + kRound);
    end = options.most_priced > 0 ? std::min(end, options.most_priced) : end;
    std::vector<std::string> texts;
    for (std::size_t i = next; i < end; ++i) {
      const TuneChoice choice = space.choice(candidates[i].number);
      texts.push_back(
          tune_text_of(space.policies()[choice.policy].name, space.settings(choice), false));
    }
    const std::vector<TunePrice> prices = runner.evaluate(texts, compute);
    for (std::size_t i = next; i < end; ++i) {
      const TunePrice& price = prices[i - next];
      if (!price.refused.empty() || price.out_of_memory) {
        result.first_refusal = result.first_refusal.empty() ? price.refused : result.first_refusal;
        ++(price.out_of_memory ? result.out_of_memory : result.refused);
        continue;
      }
      const WorkBound& work = bounds.work(candidates[i].number);
      priced.push_back({candidates[i].number,
                        space.choice(candidates[i].number),
                        candidates[i].bound,
                        work.displacement,
                        work.samples,
                        price,
                        {},
                        0,
                        {},
                        false});
      best = std::max(best, price.useful_tokens_per_s());
    }
    next = end;
    if (options.on_progress) {
      options.on_progress(static_cast<double>(next) / static_cast<double>(candidates.size()));
    }
  }
  if (priced.empty()) {
    throw InputError(
        "no setting of this space can run: of {} points {} are refused{}, {} exceed the memory and "
        "{} are outside the limits",
        result.points,
        result.refused,
        result.first_refusal.empty() ? "" : " (" + result.first_refusal + ")",
        result.out_of_memory,
        result.outside_limits);
  }
  result.priced = priced.size();
  const double next_bound = next < candidates.size() ? candidates[next].bound : 0;
  const bool ended = next < candidates.size() && !is_done();
  for (std::size_t i = next; i < candidates.size(); ++i) {
    ++(candidates[i].bound <= best * (1 + options.within) ? result.bounded : result.open);
  }
  result.open_gain = ended ? next_bound / best - 1 : 0;
  result.certificate =
      ended ? options.within : std::max(0.0, next_bound > 0 ? next_bound / best - 1 : 0);
  std::ranges::sort(priced, is_faster);
  result.front = pareto_front(priced);
  for (const TunedPoint& point : priced) {
    if (result.finalists.size() == kFinalists ||
        point.price.useful_tokens_per_s() < best * (1 - kFinal)) {
      break;
    }
    // Settings that come to the same, as two bucket caps that make the same buckets, stand once.
    const bool known = std::ranges::any_of(result.finalists, [&](const TunedPoint& other) {
      return other.price == point.price && other.choice.policy == point.choice.policy;
    });
    result.alike += known ? 1 : 0;
    if (!known) {
      result.finalists.push_back(point);
    }
  }
  const std::vector<TunePrice> drawn =
      runner.evaluate(mapped(result.finalists,
                             [&](const TunedPoint& point) {
                               return tune_text_of(space.policies()[point.choice.policy].name,
                                                   space.settings(point.choice),
                                                   options.draws);
                             }),
                      compute);
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    result.finalists[i].drawn = drawn[i];
    compare_with_best(drawn.front(), result.finalists[i]);
  }
  result.regret95 = regret95(result.finalists);
  return result;
}

}  // namespace stepsim
