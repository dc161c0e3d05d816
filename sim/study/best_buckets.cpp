#include "sim/study/best_buckets.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/model/cap_lists.h"
#include "costmodel/records/profile_cost_model.h"
#include "sim/engine/time_limit.h"
#include "sim/parallel/ddp/best_partition.h"
#include "sim/predict/bucket_lists.h"
#include "sim/predict/metrics.h"
#include "sim/predict/predict.h"
#include "sim/predict/run/run.h"
#include "sim/predict/step_cost.h"
#include "sim/scenario/key_table.h"

namespace stepsim {

namespace {

constexpr std::size_t kPricedCaps = 16;
constexpr double kSameStep = 1e-9;  ///< Relative: sums of equal times may differ by rounding.

Scenario under_ddp(Scenario scenario, const DdpOptions& ddp) {
  scenario.ddp = ddp;
  return scenario;
}

/// The buckets from the rebuild on.
std::vector<Bucket> steady_buckets(const Scenario& scenario, const DdpOptions& ddp) {
  return bucket_lists(under_ddp(scenario, ddp)).rebuilt;
}

/// One cap by the rules of the version: from "newest" on the first bucket has it, too.
DdpOptions one_cap(DdpOptions ddp, Bytes cap) {
  const bool listed = !ddp.bucket_caps.empty();
  ddp.bucket_caps.clear();
  ddp.bucket_cap = cap;
  if (ddp.torch == DdpRules::Newest || listed) {
    ddp.first_bucket_cap = cap;
  }
  return ddp;
}

DdpOptions default_caps(DdpOptions ddp) {
  ddp.bucket_caps.clear();
  ddp.bucket_cap = Bytes(kDefaultBucketCapBytes);
  ddp.first_bucket_cap = Bytes(kDefaultFirstBucketBytes);
  return ddp;
}

DdpOptions listed_caps(DdpOptions ddp, std::vector<Bytes> caps) {
  ddp.torch = DdpRules::Newest;
  ddp.bucket_cap = ddp.first_bucket_cap = *std::ranges::max_element(caps);
  ddp.bucket_caps = std::move(caps);
  return ddp;
}

void check_caps_matter(const Scenario& scenario, const Profile& profile) {
  const auto fail = [](const std::string& reason) {
    throw InputError("bucket sizes have no effect: {}", reason);
  };
  if (scenario.ranks == 1) {
    fail("there is one rank");
  }
  if (scenario.ddp.bucket_rule != BucketRule::PyTorch) {
    fail("ddp.bucket_rule is not \"pytorch\"");
  }
  if (scenario.ddp.optimize_ddp == OptimizeDdp::DdpOptimizer) {
    throw InputError(
        "the graphs of DDPOptimizer change with ddp.bucket_cap, and with them when gradients are "
        "ready; sweep ddp.bucket_cap instead");
  }
  const std::string fixed = scenario.parallel->facts(parallel_job(scenario)).fixed_units;
  if (!fixed.empty()) {
    fail(fixed);
  }
  if (prices_recorded_model(scenario, profile) && profile.recorded->whole_steps) {
    fail("the profile's passes hold the all-reduces");
  }
}

/// One search: what stays the same while buckets change.
class BucketSearch {
 public:
  BucketSearch(const Scenario& scenario, const BatchingPolicy& policy, const Profile& profile)
      : scenario_(scenario),
        parameters_(bucket_parameters(scenario.model)),
        pricer_(scenario_pricer(scenario, profile)),
        single_(steady_buckets(scenario, listed_caps(scenario.ddp, {Bytes(1)}))),
        job_(scenario, policy, profile) {
    for (const BucketParameter& parameter : parameters_) {
      if (parameter.sparse || parameter.dtype != parameters_.front().dtype) {
        throw InputError(
            "the best buckets are searched for gradients of one dtype, none of them sparse");
      }
    }
    std::size_t tensors = 0;
    for (std::size_t i = 0; i < single_.size(); ++i) {
      tensors += single_[i].parameters.size();
      place_behind_[tensors] = i + 1;
    }
  }

  [[nodiscard]] Prediction priced(const DdpOptions& ddp, int noise_runs) const {
    PredictOptions options;
    options.noise_runs = noise_runs;
    options.paired_draws = true;
    return predict(job_under(ddp), options);
  }

  /// Whether the recurrence plays the steps with these buckets.
  [[nodiscard]] bool is_plain(const DdpOptions& ddp) const {
    return Run(job_under(ddp)).reduced().plain();
  }

  /// The steady steps at the quantiles of their times, each once.
  [[nodiscard]] std::set<int> typical_steps(const Prediction& prediction) const {
    const int rebuilt = std::min(2, scenario_.steps - 1);
    std::vector<std::pair<double, int>> times =
        mapped(step_times(prediction.steps, std::max(scenario_.warmup_steps, rebuilt)),
               [](const auto& step) { return std::pair(step.second, step.first); });
    std::ranges::sort(times);
    std::set<int> steps;
    double last = -1;
    for (const double share : {0.1, 0.3, 0.5, 0.7, 0.9}) {
      const auto& [ms, step] =
          times[at(static_cast<int>(share * static_cast<double>(times.size())))];
      if (std::abs(ms - last) > 1e-6 * ms) {
        steps.insert(step);
        last = ms;
      }
    }
    return steps;
  }

  /// When gradients are ready in that step, and what follows their all-reduces.
  void observe(int step) {
    PredictOptions options;
    options.noise_runs = 0;
    options.timeline_of_step = step;
    options.counterfactual = Counterfactual{Change::FreeCommunication, -1};
    const DdpOptions ddp = listed_caps(scenario_.ddp, {Bytes(1)});
    const Prediction free = predict(job_under(ddp), options);
    const StepTimeline& timeline = free.timelines.front();
    // Without no_sync() every micro-batch sends the gradients.
    const double times = ddp.no_sync ? 1 : ddp.accumulation_steps;
    std::vector<double> wire(single_.size() + 1, 0.0);
    std::vector<std::size_t> reduce(single_.size());
    for (std::size_t i = 0; i < timeline.collectives.size(); ++i) {
      const CollectiveUse& use = timeline.collectives[i];
      if (use.bucket >= 0 && use.kind != CollectiveKind::AllGather) {
        wire[at(use.bucket) + 1] += use.bytes / times;
        reduce[at(use.bucket)] = i;
      }
    }
    for (std::size_t i = 1; i < wire.size(); ++i) {
      wire[i] += wire[i - 1];
    }
    wire_before_ = std::move(wire);
    schedules_.push_back(schedule_of_step(timeline, reduce));
  }

  /// The best partition of each observed step, with transfers and latencies times `scale`.
  [[nodiscard]] std::vector<std::vector<std::size_t>> best_ends(double scale) {
    std::vector<std::vector<std::size_t>> found;
    for (const GradientSchedule& schedule : schedules_) {
      if (const auto best = best_partition(schedule, bucket_time(scale))) {
        found.push_back(best->ends);
      }
    }
    return found;
  }

  /// What the observed steps take together with these ends; none where that is not known.
  [[nodiscard]] std::optional<Duration> time_of(const std::vector<std::size_t>& ends,
                                                double scale) {
    Duration sum{0};
    for (const GradientSchedule& schedule : schedules_) {
      const auto step = partition_time(schedule, ends, bucket_time(scale));
      if (!step) {
        return std::nullopt;
      }
      sum += *step;
    }
    return sum;
  }

  /// The lists of buckets over all single caps.
  [[nodiscard]] std::vector<CapList> lists_of_caps() const {
    return cap_lists(parameters_, [&](std::int64_t cap) {
      return steady_buckets(scenario_, one_cap(scenario_.ddp, Bytes(cap)));
    });
  }

  /// The places behind each bucket.
  [[nodiscard]] std::vector<std::size_t> ends_of(const std::vector<Bucket>& buckets) const {
    std::size_t tensors = 0;
    return mapped(buckets, [&](const Bucket& bucket) {
      return place_behind_.at(tensors += bucket.parameters.size());
    });
  }

  /// The limits that end buckets there.
  [[nodiscard]] BucketChoice choice_of(const std::vector<std::size_t>& ends) const {
    const DdpOptions& ddp = scenario_.ddp;
    const bool registered = ddp.find_unused_parameters && !ddp.static_graph;
    const bool backwards = registered || ddp.last_bucket_cap;
    std::vector<Bucket> filled;
    std::size_t first = 0;
    for (const std::size_t end : ends) {
      std::vector<Bucket> group(single_.begin() + static_cast<std::ptrdiff_t>(first),
                                single_.begin() + static_cast<std::ptrdiff_t>(end));
      if (backwards) {
        std::ranges::reverse(group);
      }
      Bucket& bucket = filled.emplace_back();
      for (const Bucket& one : group) {
        bucket.parameters.insert(
            bucket.parameters.end(), one.parameters.begin(), one.parameters.end());
      }
      first = end;
    }
    if (backwards) {
      std::ranges::reverse(filled);
    }
    BucketChoice choice;
    // Every place ends with a tensor that has bytes, so that there are such limits.
    choice.mib = mapped(limit_ranges(parameters_, filled).value(), mib_text);
    choice.ddp = listed_caps(
        ddp, mapped(choice.mib, [](const std::string& mib) { return parse_bytes(mib + " MiB"); }));
    return choice;
  }

  [[nodiscard]] std::vector<std::size_t> ends_of(const DdpOptions& ddp) const {
    return ends_of(steady_buckets(scenario_, ddp));
  }

 private:
  /// The job with other buckets, and where lists ask for it another version of PyTorch.
  [[nodiscard]] Job job_under(const DdpOptions& ddp) const {
    const std::string changed = ddp.torch == scenario_.ddp.torch ? "bucket_caps" : "torch";
    return {std::make_shared<const Scenario>(under_ddp(scenario_, ddp)),
            std::make_shared<const BatchingPolicy>(job_.policy()),
            job_.profile(),
            job_.stages().before(first_stage_of("ddp." + changed))};
  }

  [[nodiscard]] BucketTime bucket_time(double scale) {
    return [this, scale](std::size_t first, std::size_t end) -> std::optional<Duration> {
      const auto seconds = all_reduce_seconds(wire_before_[end] - wire_before_[first]);
      return seconds ? std::optional(bounded_duration(*seconds * scale)) : std::nullopt;
    };
  }

  std::optional<double> all_reduce_seconds(double bytes) {
    const auto whole = static_cast<std::int64_t>(std::ceil(bytes));
    const auto known = seconds_.find(whole);
    if (known != seconds_.end()) {
      return known->second;
    }
    std::optional<double> seconds;
    try {
      const int nodes = scenario_.placement.nodes();
      seconds = pricer_.price(CollectiveKind::AllReduce, Bytes(whole), scenario_.ranks, nodes)
                    .cost.seconds;
    } catch (const InputError&) {
      // It is too far beyond what was measured: no bucket is that large.
    }
    return seconds_[whole] = seconds;
  }

  /// `reduce`: [place] its all-reduce among the collectives of the timeline.
  [[nodiscard]] GradientSchedule schedule_of_step(const StepTimeline& timeline,
                                                  const std::vector<std::size_t>& reduce) const {
    SimTime origin = SimTime::min();
    for (const RankTimeline& rank : timeline.ranks) {
      origin = std::max(origin, rank.start);
    }
    GradientSchedule schedule;
    schedule.ready.assign(single_.size(), Duration(0));
    schedule.tail.assign(single_.size(), Duration(0));
    for (std::size_t r = 0; r < timeline.ranks.size(); ++r) {
      const RankTimeline& rank = timeline.ranks[r];
      schedule.floor = std::max(schedule.floor, rank.end - origin);
      const std::vector<Duration> tail = tail_of(timeline, static_cast<std::int32_t>(r));
      for (std::size_t i = 0; i < single_.size(); ++i) {
        schedule.tail[i] = std::max(schedule.tail[i], tail[i]);
        if (rank.ready_at[reduce[i]] != SimTime::max()) {
          schedule.ready[i] = std::max(schedule.ready[i], rank.ready_at[reduce[i]] - origin);
        }
      }
    }
    return schedule;
  }

  /// [place] what one rank's device does from the copies out of that place on.
  [[nodiscard]] std::vector<Duration> tail_of(const StepTimeline& timeline,
                                              std::int32_t rank) const {
    Duration after{0};
    std::vector<Duration> copies;
    for (const TraceSpan& span : timeline.spans) {
      if (span.rank != rank || span.stream != kComputeStream) {
        continue;
      }
      if (span.phase == Phase::CopyOut) {
        copies.push_back(span.end - span.begin);
      } else if (span.phase == Phase::Optimizer) {
        after += span.end - span.begin;
      }
    }
    std::vector<Duration> tail(single_.size(), after);
    std::size_t copy = copies.size();
    for (std::size_t i = single_.size(); i-- > 0;) {
      // One copy a gradient, or with ZeRO-2 one a bucket.
      const std::size_t own = copies.size() == single_.size() ? 1 : single_[i].parameters.size();
      for (std::size_t n = 0; n < own && copy > 0; ++n) {
        after += copies[--copy];
      }
      tail[i] = after;
    }
    return tail;
  }

  const Scenario& scenario_;
  std::vector<BucketParameter> parameters_;
  CollectivePricer pricer_;
  std::vector<Bucket> single_;  ///< [place] The smallest buckets there can be, in launch order.
  std::map<std::size_t, std::size_t> place_behind_;  ///< The places that so many tensors fill.
  std::vector<double> wire_before_;                  ///< [place] bytes sent for those before it.
  std::vector<GradientSchedule> schedules_;          ///< [observed step]
  std::map<std::int64_t, std::optional<double>> seconds_;
  Job job_;
};

/// The lists of caps to price: the shortest of the observed steps by the recurrence, at each scale.
std::set<std::size_t> best_caps(BucketSearch& search,
                                const std::vector<CapList>& caps,
                                const std::vector<double>& scales) {
  std::set<std::size_t> chosen;
  for (const double scale : scales) {
    std::vector<std::pair<Duration, std::size_t>> ranked;
    for (std::size_t i = 0; i < caps.size(); ++i) {
      if (const auto time = search.time_of(search.ends_of(caps[i].buckets), scale)) {
        ranked.emplace_back(*time, i);
      }
    }
    std::ranges::sort(ranked);
    ranked.resize(std::min(ranked.size(), kPricedCaps / scales.size() + 1));
    for (const auto& [time, place] : ranked) {
      chosen.insert(place);
    }
  }
  return chosen;
}

double mean_ms(const BucketChoice& choice) {
  return choice.prediction.summary.step_time_ms.mean;
}

/// Orders ends by the number of buckets: of equally fast lists, the one with fewest comes first.
struct FewerBuckets {
  bool operator()(const std::vector<std::size_t>& a, const std::vector<std::size_t>& b) const {
    return std::pair(a.size(), a) < std::pair(b.size(), b);
  }
};

/// The fastest over all steps without noise, the first of equals. Those that have no price are left
/// out: an all-reduce is too far beyond what was measured.
BucketChoice fastest(const BucketSearch& search,
                     std::vector<BucketChoice> choices,
                     const std::function<void()>& on_priced) {
  const BucketChoice* best = nullptr;
  for (BucketChoice& choice : choices) {
    try {
      choice.prediction = search.priced(choice.ddp, 0);
      const bool faster = best == nullptr || mean_ms(choice) < mean_ms(*best) * (1 - kSameStep);
      best = faster ? &choice : best;
    } catch (const InputError&) {
      // See above; DDP's default, which comes first, was priced before.
    }
    on_priced();
  }
  return *best;
}

/// Predicts the choice with noise. Where it has the buckets of `simpler`, or is not faster with
/// noise, the prediction and the buckets are those.
void finish(const BucketSearch& search,
            BucketChoice& choice,
            const BucketChoice& simpler,
            bool as_list,
            int noise_runs) {
  const std::vector<std::size_t> ends = search.ends_of(simpler.ddp);
  if (search.ends_of(choice.ddp) != ends) {
    choice.prediction = search.priced(choice.ddp, noise_runs);
    choice.buckets = search.ends_of(choice.ddp).size();
    if (mean_ms(choice) < mean_ms(simpler)) {
      return;
    }
    choice = as_list ? search.choice_of(ends) : simpler;
  }
  choice.prediction = simpler.prediction;
  choice.buckets = simpler.buckets;
}

}  // namespace

BestBuckets best_buckets(const Scenario& scenario,
                         const BatchingPolicy& policy,
                         const Profile& profile,
                         int noise_runs,
                         const ProgressCallback& on_progress) {
  check_caps_matter(scenario, profile);
  BucketSearch search(scenario, policy, profile);
  BestBuckets best;
  best.standard = {{"25"}, default_caps(scenario.ddp), 0, {}};
  best.standard.prediction = search.priced(best.standard.ddp, 0);
  const std::set<int> steps = search.typical_steps(best.standard.prediction);
  for (const int step : steps) {
    search.observe(step);
  }
  best.searched = steps.size();
  best.plain = search.is_plain(best.standard.ddp);

  // Where it is not the recurrence that plays the steps, all-reduces beside compute are slower than
  // alone; by how much differs, so that several answers are priced.
  const std::vector<double> scales =
      best.plain ? std::vector<double>{1} : std::vector<double>{0.8, 1, 1.25, 1.6, 2};
  const std::vector<CapList> caps = search.lists_of_caps();
  best.cap_lists = caps.size();
  std::vector<BucketChoice> of_caps = {best.standard};
  std::set<std::vector<std::size_t>, FewerBuckets> ends;
  const std::set<std::size_t> chosen = best_caps(search, caps, scales);
  for (auto one = chosen.rbegin(); one != chosen.rend(); ++one) {  // Of equals, the largest cap.
    const std::string mib = mib_text(caps[*one].caps);
    of_caps.push_back({{mib}, one_cap(scenario.ddp, parse_bytes(mib + " MiB")), 0, {}});
    ends.insert(search.ends_of(caps[*one].buckets));
  }
  best.priced_caps = of_caps.size() - 1;

  // The lists: the default's, the caps' own, and the best of each step.
  for (const double scale : scales) {
    for (std::vector<std::size_t>& found : search.best_ends(scale)) {
      ends.insert(std::move(found));
    }
  }
  ends.insert(search.ends_of(best.standard.ddp));
  std::vector<BucketChoice> of_lists =
      mapped(ends, [&](const auto& one) { return search.choice_of(one); });
  best.priced_lists = of_lists.size();

  const double all = static_cast<double>(of_caps.size() + of_lists.size());
  double done = 0;
  const auto on_priced = [&] {
    if (on_progress) {
      on_progress(++done / all);
    }
  };
  best.cap = fastest(search, std::move(of_caps), on_priced);
  best.list = fastest(search, std::move(of_lists), on_priced);
  best.standard.prediction = search.priced(best.standard.ddp, noise_runs);
  best.standard.buckets = search.ends_of(best.standard.ddp).size();
  finish(search, best.cap, best.standard, false, noise_runs);
  finish(search, best.list, best.cap, true, noise_runs);
  best.cap_over_standard = paired_gain(best.cap.prediction, best.standard.prediction);
  best.list_over_standard = paired_gain(best.list.prediction, best.standard.prediction);
  best.list_over_cap = paired_gain(best.list.prediction, best.cap.prediction);
  if (const auto ends_of_own = search.ends_of(scenario.ddp);
      ends_of_own != search.ends_of(best.standard.ddp)) {
    best.own =
        BucketChoice{{}, scenario.ddp, ends_of_own.size(), search.priced(scenario.ddp, noise_runs)};
    const BucketChoice& faster = mean_ms(best.list) < mean_ms(best.cap) ? best.list : best.cap;
    best.fastest_over_own = paired_gain(faster.prediction, best.own->prediction);
  }
  return best;
}

const BucketChoice& chosen_buckets(const BestBuckets& best) {
  if (best.own && !best.fastest_over_own.is_certain()) {
    return *best.own;
  }
  if (best.list_over_cap.is_certain() && best.list_over_standard.is_certain()) {
    return best.list;
  }
  return best.cap_over_standard.is_certain() ? best.cap : best.standard;
}

}  // namespace stepsim
