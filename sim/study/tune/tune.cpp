#include "sim/study/tune/tune.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <tuple>

#include <fmt/format.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/quantile.h"
#include "sim/points/prediction_members.h"
#include "sim/points/setting_members.h"
#include "sim/predict/predict.h"
#include "sim/predict/run/jobs.h"

namespace stepsim {

STEPSIM_MEMBERS(TunePrice,
                refused,
                out_of_memory,
                unconfirmed,
                step_ms,
                low90,
                high90,
                tokens,
                memory,
                paired,
                notes)

namespace {

constexpr std::size_t kRound = 16;  // Points priced at a time, whatever the threads.
constexpr int kNoisySteps = 64;     // Of each run with noise; their mean is that of all steps.
constexpr std::size_t kLeastFinalists = 3;
constexpr double kFinal = 0.03;  // Finalists beyond these are at most so much slower than the best.

/// What a price is computed from.
struct TuneTask {
  std::string policy;
  bool noise = false;
  std::vector<Setting> set;
};

STEPSIM_MEMBERS(TuneTask, policy, noise, set)

TunePrice price_of(Jobs& jobs, const TuneTask& task) {
  TunePrice price;
  try {
    const Job job = jobs.job(task.policy, task.set);
    PredictOptions options;
    options.threads = 1;
    options.noise_runs = task.noise ? options.noise_runs : 0;
    options.most_noisy_steps = kNoisySteps;
    options.paired_draws = true;
    options.rows = KeptRows::None;
    const Prediction prediction = predict(job, options);
    price.out_of_memory = prediction.out_of_memory.has_value();
    price.unconfirmed = prediction.unconfirmed;
    price.step_ms = prediction.summary.step_time_ms.mean;
    price.low90_ms = prediction.summary.step_time_ms.low90;
    price.high90_ms = prediction.summary.step_time_ms.high90;
    price.useful_tokens = prediction.summary.useful_tokens_per_step;
    price.memory_mib = prediction.largest_memory_mib;
    price.paired_step_ms = prediction.paired_step_ms;
    price.notes = prediction.notes;
  } catch (const InputError& error) {
    price.refused = error.what();
  }
  return price;
}

/// Compares speeds. Where two points are equally fast, the one that costs less comes first.
bool is_faster(const TunedPoint& a, const TunedPoint& b) {
  const auto costs = [](const TunedPoint& point) {
    return std::tuple(-point.price.useful_tokens_per_s(),
                      point.price.memory_mib,
                      point.displacement,
                      point.left_out,
                      point.number);
  };
  return costs(a) < costs(b);
}

/// The points that no other one beats in speed, memory, distance from the sampler's order and what
/// they leave out. `sorted`: by is_faster().
std::vector<TunedPoint> pareto_front(const std::vector<TunedPoint>& sorted) {
  std::vector<TunedPoint> front;
  for (const TunedPoint& point : sorted) {
    const bool beaten = std::ranges::any_of(front, [&](const TunedPoint& faster) {
      return faster.price.memory_mib <= point.price.memory_mib &&
             faster.displacement <= point.displacement && faster.left_out <= point.left_out;
    });
    if (!beaten) {
      front.push_back(point);
    }
  }
  return front;
}

/// What the best gains over another, draw by draw: both have the same errors.
Gain gain_of_best(const TunePrice& best, const TunePrice& other) {
  std::vector<double> gains;
  double faster = 0;
  // A point with more work has fewer draws.
  const std::size_t draws = std::min(best.paired_step_ms.size(), other.paired_step_ms.size());
  for (std::size_t i = 0; i < draws; ++i) {
    const double gain = gain_over(
        best.useful_tokens / other.useful_tokens * other.paired_step_ms[i], best.paired_step_ms[i]);
    gains.push_back(gain);
    faster += gain > 0 ? 1 : gain == 0 ? 0.5 : 0;
  }
  Gain gain;
  gain.gain = gain_over(best.useful_tokens_per_s(), other.useful_tokens_per_s());
  gain.interval = {gain.gain, gain.gain};
  gain.faster_share = gain.gain > 0 ? 1 : 0;
  gain.unconfirmed = best.unconfirmed || other.unconfirmed;
  if (!gains.empty()) {
    gain.faster_share = faster / static_cast<double>(gains.size());
    gain.interval = {quantile(gains, 0.05), quantile(gains, 0.95)};
  }
  return gain;
}

/// The 95th of a hundred draws by how much faster another finalist is.
double regret95(const std::vector<TunedPoint>& finalists) {
  std::vector<double> regrets;
  const TunePrice& best = finalists.front().drawn;
  std::size_t draws = best.paired_step_ms.size();
  for (const TunedPoint& other : finalists) {
    draws = std::min(draws, other.drawn.paired_step_ms.size());
  }
  for (std::size_t i = 0; i < draws; ++i) {
    double regret = 0;
    for (const TunedPoint& other : finalists) {
      regret = std::max(
          regret,
          gain_over(other.drawn.useful_tokens / best.useful_tokens * best.paired_step_ms[i],
                    other.drawn.paired_step_ms[i]));
    }
    regrets.push_back(regret);
  }
  return regrets.empty() ? 0 : quantile(regrets, 0.95);
}

/// Prices points of a space, and keeps them.
class PointPrices {
 public:
  PointPrices(const TuneSpace& space,
              PointRunner& runner,
              std::function<TunePrice(const TuneTask&)> compute)
      : space_(space), runner_(runner), compute_(std::move(compute)) {}

  /// Prices without noise; points that cannot run are counted in `result`.
  void add(const std::vector<Candidate>& candidates, TuneResult& result) {
    const std::vector<TunePrice> prices =
        runner_.evaluate(mapped(candidates,
                                [&](const Candidate& candidate) {
                                  return task_of(space_.choice(candidate.number), false);
                                }),
                         compute_);
    for (std::size_t i = 0; i < prices.size(); ++i) {
      const TunePrice& price = prices[i];
      tried_.insert(candidates[i].number);
      if (!price.refused.empty() || price.out_of_memory) {
        result.first_refusal = result.first_refusal.empty() ? price.refused : result.first_refusal;
        ++(price.out_of_memory ? result.out_of_memory : result.refused);
        continue;
      }
      points_.push_back({candidates[i].number,
                         space_.choice(candidates[i].number),
                         candidates[i].bound,
                         candidates[i].displacement,
                         candidates[i].left_out,
                         candidates[i].samples,
                         price,
                         {},
                         {}});
      best_ = std::max(best_, price.useful_tokens_per_s());
    }
  }

  /// Draws the finalists with noise, and compares each with the first.
  void draw(std::vector<TunedPoint>& finalists, bool noise) {
    const std::vector<TunePrice> drawn = runner_.evaluate(
        mapped(finalists, [&](const TunedPoint& point) { return task_of(point.choice, noise); }),
        compute_);
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      finalists[i].drawn = drawn[i];
      finalists[i].gain = gain_of_best(drawn.front(), drawn[i]);
    }
  }

  [[nodiscard]] const std::vector<TunedPoint>& points() const { return points_; }
  /// A point that was priced and can run; null: there is no such one.
  [[nodiscard]] const TunedPoint* find(std::size_t number) const {
    const auto found = std::ranges::find(points_, number, &TunedPoint::number);
    return found == points_.end() ? nullptr : &*found;
  }
  [[nodiscard]] double best() const { return best_; }  ///< Useful tokens/s.
  [[nodiscard]] bool tried(std::size_t number) const { return tried_.count(number) > 0; }

 private:
  [[nodiscard]] TuneTask task_of(const TuneChoice& choice, bool noise) const {
    return {space_.policies()[choice.policy].name, noise, space_.settings(choice)};
  }

  const TuneSpace& space_;
  PointRunner& runner_;
  std::function<TunePrice(const TuneTask&)> compute_;
  std::vector<TunedPoint> points_;
  std::set<std::size_t> tried_;  ///< Numbers of all points that were to be priced.
  double best_ = 0;
};

/// A candidate for the front.
struct FrontCandidate : Candidate {
  std::size_t kind = 0;  ///< Those of one kind have the same memory and order, and leave out the
                         ///< same.
};

std::vector<FrontCandidate> front_candidates(std::span<const Candidate> candidates) {
  std::map<std::tuple<double, double, double>, std::size_t> kinds;
  return mapped(candidates, [&](const Candidate& one) {
    const std::tuple kind(one.memory_mib, one.displacement, one.left_out);
    return FrontCandidate{one, kinds.try_emplace(kind, kinds.size()).first->second};
  });
}

/// Prices what could be on the front: what no priced point beats even if it is as fast as its
/// bound. `open`: those that are not priced, by their bounds.
void price_front(std::span<const Candidate> open,
                 const TuneOptions& options,
                 PointPrices& prices,
                 TuneResult& result) {
  const auto is_beaten = [&](const Candidate& candidate) {
    return std::ranges::any_of(prices.points(), [&](const TunedPoint& point) {
      return point.price.useful_tokens_per_s() * (1 + options.within) >= candidate.bound &&
             point.price.memory_mib <= candidate.memory_mib * (1 + options.within) &&
             point.displacement <= candidate.displacement + options.within &&
             point.left_out <= candidate.left_out;
    });
  };
  std::size_t left = options.most_front;
  if (options.most_priced > 0) {
    left = std::min(left, options.most_priced - std::min(options.most_priced, result.priced));
  }
  // Points of one kind differ in speed alone: one of them at a time, so that the whole front is
  // seen before any part of it is searched closely.
  std::vector<FrontCandidate> candidates = front_candidates(open);
  std::vector<std::size_t> priced(candidates.size());  // [kind]
  const auto priced_alike = [&](const FrontCandidate& candidate) -> std::size_t& {
    return priced[candidate.kind];
  };
  for (;;) {
    std::erase_if(candidates, is_beaten);
    std::ranges::stable_sort(candidates, std::less(), priced_alike);
    std::vector<Candidate> round;
    for (const FrontCandidate& candidate : candidates) {
      if (round.size() < std::min(kRound, left) &&
          priced_alike(candidate) == priced_alike(candidates.front())) {
        round.push_back(candidate);
        ++priced_alike(candidate);
      }
    }
    if (round.empty()) {
      break;
    }
    prices.add(round, result);
    std::erase_if(candidates, [&](const Candidate& one) { return prices.tried(one.number); });
    result.front_priced += round.size();
    left -= round.size();
  }
  result.front_open = candidates.size();
}

/// The fastest points, each way of coming to the same once.
std::vector<TunedPoint> find_finalists(const std::vector<TunedPoint>& sorted, std::size_t& alike) {
  std::vector<TunedPoint> finalists;
  const double best = sorted.front().price.useful_tokens_per_s();
  for (const TunedPoint& point : sorted) {
    const bool slower = point.price.useful_tokens_per_s() < best * (1 - kFinal);
    if (finalists.size() == kMostFinalists || (slower && finalists.size() >= kLeastFinalists)) {
      break;
    }
    const auto same_as = [&](const TunedPoint& other) {
      return other.choice.policy == point.choice.policy &&
             other.price.step_ms == point.price.step_ms &&
             other.price.useful_tokens == point.price.useful_tokens &&
             other.price.memory_mib == point.price.memory_mib;
    };
    const bool known = std::ranges::any_of(finalists, same_as);
    alike += known ? 1 : 0;
    if (!known) {
      finalists.push_back(point);
    }
  }
  return finalists;
}

/// The point that is left of the fastest one when changes of the scenario that gain less than
/// kSmallestGain all together are taken back, the one that gains least first. The fastest one where
/// each gains more. `may_price`: false: points that were not priced count as slow.
TunedPoint simplified(const TunedPoint& fastest,
                      const TuneSpace& space,
                      const std::vector<Candidate>& candidates,
                      bool may_price,
                      PointPrices& prices,
                      TuneResult& result) {
  const double speed = fastest.price.useful_tokens_per_s();
  const auto is_as_fast = [&](double of) { return gain_over(speed, of) < kSmallestGain; };
  TunedPoint simplest = fastest;
  for (;;) {
    const TunedPoint* next = nullptr;
    for (const TuneChoice& choice : space.simpler(simplest.choice)) {
      const std::size_t number = space.number(choice);
      const auto candidate = std::ranges::find(candidates, number, &Candidate::number);
      if (candidate == candidates.end() || !is_as_fast(candidate->bound)) {
        continue;  // Outside the limits, or too slow at its fastest.
      }
      if (may_price && !prices.tried(number)) {
        const std::size_t before = next != nullptr ? next->number : number;
        prices.add({*candidate}, result);
        next = next != nullptr ? prices.find(before) : next;  // The points have moved.
      }
      const TunedPoint* point = prices.find(number);
      if (point != nullptr && is_as_fast(point->price.useful_tokens_per_s()) &&
          (next == nullptr || is_faster(*point, *next))) {
        next = point;
      }
    }
    if (next == nullptr) {
      return simplest;
    }
    simplest = *next;
  }
}

/// Draws the finalists. The simpler setting stays the first where it is as fast with noise, too,
/// and faster than what the scenario has for certain, if that may stay.
void draw_finalists(const TunedPoint& simpler,
                    bool noise,
                    PointPrices& prices,
                    TuneResult& result) {
  std::vector<TunedPoint>& finalists = result.finalists;
  const std::size_t fastest = finalists.front().number;
  if (simpler.number != fastest) {
    std::erase_if(finalists, [&](const TunedPoint& one) { return one.number == simpler.number; });
    finalists.insert(finalists.begin(), simpler);
    finalists.resize(std::min(finalists.size(), kMostFinalists));
  }
  prices.draw(finalists, noise);
  if (simpler.number == fastest) {
    return;
  }
  const TuneReference* own = best_reference(result);
  const TunePrice& drawn = finalists.front().drawn;
  const Gain given_up = gain_of_best(finalists[1].drawn, drawn);
  const bool is_gain =
      own == nullptr || !own->meets_limits || gain_of_best(drawn, own->price).is_certain();
  result.simplified = is_gain && given_up.gain < kSmallestGain;
  if (!result.simplified) {
    std::ranges::sort(finalists, is_faster);
    for (TunedPoint& one : finalists) {
      one.gain = gain_of_best(finalists.front().drawn, one.drawn);
    }
  }
}

}  // namespace

const TuneReference* best_reference(const TuneResult& result) {
  const auto rank = [](const TuneReference& one) {
    return std::pair(one.meets_limits, one.price.useful_tokens_per_s());
  };
  const TuneReference* best = nullptr;
  for (const TuneReference& one : result.references) {
    const bool runs = one.price.refused.empty() && !one.price.out_of_memory;
    if (runs && (best == nullptr || rank(one) > rank(*best))) {
      best = &one;
    }
  }
  return best;
}

bool is_better(const TuneResult& result) {
  const TuneReference* own = best_reference(result);
  return !result.finalists.empty() &&
         (own == nullptr || !own->meets_limits || own->gain.is_certain());
}

TuneResult tune(Jobs& jobs,
                const TuneSpace& space,
                const TuneOptions& options,
                PointRunner& runner) {
  const Scenario& scenario = jobs.base();
  const std::function<TunePrice(const TuneTask&)> compute = [&](const TuneTask& task) {
    return price_of(jobs, task);
  };
  TuneResult result;
  result.overrides = scenario.overrides;
  result.points = space.size();
  // First, so that other processes begin to serve before process 0 computes the bounds.
  const std::vector<TunePrice> own =
      runner.evaluate(mapped(space.policies(),
                             [&](const TuneSpace::Policy& policy) {
                               return TuneTask{policy.name, options.draws, {}};
                             }),
                      compute);
  const std::vector<WorkBound> works = own_works(space, jobs);
  const TuneLimits limits = completed_limits(options.limits, works);
  for (std::size_t i = 0; i < own.size(); ++i) {
    const bool is_allowed = works[i].refused.empty() && meets(limits, works[i]);
    result.references.push_back(
        {space.policies()[i].name, own[i], works[i].left_out, is_allowed, {}});
  }
  const std::vector<Candidate> candidates =
      find_candidates(scenario, space, {limits, options.exhaustive, options.threads}, jobs, result);
  PointPrices prices(space, runner, compute);
  const auto limit = [&](double slack) { return prices.best() * (1 + slack); };
  std::size_t next = 0;
  const auto is_done = [&] {
    return !options.exhaustive && candidates[next].bound <= limit(options.within);
  };
  while (next < candidates.size() && !is_done() &&
         (options.most_priced == 0 || next < options.most_priced)) {
    std::size_t end = std::min(candidates.size(), next + kRound);
    end = options.most_priced > 0 ? std::min(end, options.most_priced) : end;
    prices.add({candidates.begin() + static_cast<std::ptrdiff_t>(next),
                candidates.begin() + static_cast<std::ptrdiff_t>(end)},
               result);
    next = end;
    if (options.on_progress) {
      options.on_progress(static_cast<double>(next) / static_cast<double>(candidates.size()));
    }
  }
  if (prices.points().empty() && result.out_of_memory > 0) {
    result.open = candidates.size() - next;
    return result;
  }
  if (prices.points().empty()) {
    throw InputError(
        "no setting of this space can run: of {} points {} are refused{} and {} are outside the "
        "limits",
        result.points,
        result.refused,
        result.first_refusal.empty() ? "" : " (" + result.first_refusal + ")",
        result.outside_limits);
  }
  const bool ended = next < candidates.size() && !is_done();
  const double next_bound = next < candidates.size() ? candidates[next].bound : 0;
  result.priced = next;
  price_front(std::span(candidates).subspan(next), options, prices, result);
  const TunedPoint simpler = simplified(*std::ranges::min_element(prices.points(), is_faster),
                                        space,
                                        candidates,
                                        options.most_priced == 0,
                                        prices,
                                        result);
  for (const Candidate& candidate : candidates) {
    if (!prices.tried(candidate.number)) {
      const bool is_open = candidate.bound > limit(options.within);
      ++(is_open ? result.open : result.bounded);
      result.close += !is_open && candidate.bound > limit(-kFinal) ? 1 : 0;
    }
  }
  result.open_gain = ended ? next_bound / prices.best() - 1 : 0;
  result.certificate = ended ? options.within : std::max(0.0, next_bound / prices.best() - 1);
  result.all = prices.points();
  std::ranges::sort(result.all, is_faster);
  result.priced = result.all.size();
  result.front = pareto_front(result.all);
  result.finalists = find_finalists(result.all, result.alike);
  draw_finalists(simpler, options.draws, prices, result);
  const TunedPoint& first = result.finalists.front();
  result.certificate = std::max(
      result.certificate,
      gain_over(prices.best() * (1 + result.certificate), first.price.useful_tokens_per_s()));
  for (TuneReference& one : result.references) {
    if (one.price.refused.empty()) {
      one.gain = gain_of_best(first.drawn, one.price);
    }
  }
  result.regret95 = regret95(result.finalists);
  return result;
}

}  // namespace stepsim
