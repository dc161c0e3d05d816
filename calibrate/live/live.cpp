#include "calibrate/live/live.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <tuple>

#include <nlohmann/json.hpp>

#include "calibrate/live/live_rank.h"
#include "calibrate/live/schedule.h"
#include "calibrate/live/step_line.h"
#include "calibrate/ranks/rank_processes.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/utc_time.h"

namespace stepsim {
namespace {

RunRecord header_of(const Plan& plan, const LiveOptions& options) {
  RunRecord record;
  record.scenario = plan.scenario;
  record.policy = plan.policy;
  record.plan_profile = plan.profile;
  record.plan_profile_id = plan.profile_id;
  record.world_size = plan.ranks;
  record.started_at = utc_now();
  record.warmup_steps = plan.warmup_steps;
  record.repeats = options.repeats;
  return record;
}

/// The records so far are kept this often, or more seldom where keeping takes over 1 % of the time.
constexpr std::chrono::seconds kKeepEvery(10);

/// Puts the lines of all ranks together.
class Collector {
 public:
  Collector(const std::vector<Plan>& plans, const LiveOptions& options)
      : ranks_(plans[0].ranks),
        is_emulated_(options.emulated_transfer != nullptr),
        emulation_(options.emulation) {
    for (const Plan& plan : plans) {
      records_.push_back(header_of(plan, options));
      progress_.steps_total += plan.steps * options.repeats;
    }
  }

  void add(const std::string& text, const std::function<void(const LiveProgress&)>& on_progress) {
    if (text.starts_with(kDescriptionMark)) {
      describe(parse_json(text.substr(kDescriptionMark.size()), "a rank's description"));
      return;
    }
    LiveLine line = parse_line(text);
    if (line.is_sentinel) {
      sentinels_[line.plan].push_back(line.sentinel_ms);
      return;
    }
    const bool is_first = line.step.rank == 0;
    records_.at(static_cast<std::size_t>(line.plan)).steps.push_back(std::move(line.step));
    if (is_first) {
      ++progress_.steps_done;
      on_progress(progress_);
    }
  }

  /// Hands the records so far to `keep` when it is time to. The ranks pause where they send lines.
  void keep_now_and_then(const std::function<void(const std::vector<RunRecord>&)>& keep) {
    const auto begin = std::chrono::steady_clock::now();
    if (keep == nullptr || begin < keep_at_) {
      return;
    }
    keep(Collector(*this).take());
    const auto end = std::chrono::steady_clock::now();
    keep_at_ = end + std::max<std::chrono::steady_clock::duration>(kKeepEvery, 99 * (end - begin));
  }

  /// By (repeat, step, rank), without the steps and sentinels that some rank has not reported.
  std::vector<RunRecord> take() {
    const std::vector<double> sentinels = mean_sentinels();
    for (RunRecord& record : records_) {
      drop_incomplete(record.steps);
      record.sentinel_ms = sentinels;
    }
    return std::move(records_);
  }

 private:
  void describe(const Json& description) {
    for (RunRecord& record : records_) {
      record.backend = is_emulated_ ? "emulated" : description.value("collectives", std::string());
      record.device = description.value("device", std::string("unknown device"));
      record.versions = description;
      if (is_emulated_) {
        (*record.versions)["emulation"] = *emulation_;
      }
    }
  }

  [[nodiscard]] std::vector<double> mean_sentinels() const {
    std::vector<double> means;  // By round.
    for (const auto& [round, times] : sentinels_) {
      if (times.size() == static_cast<std::size_t>(processes())) {
        means.push_back(std::accumulate(times.begin(), times.end(), 0.0) / processes());
      }
    }
    return means;
  }

  void drop_incomplete(std::vector<StepRecord>& steps) const {
    std::ranges::sort(steps, [](const StepRecord& a, const StepRecord& b) {
      return std::tie(a.repeat, a.step, a.rank) < std::tie(b.repeat, b.step, b.rank);
    });
    std::map<std::pair<int, int>, int> reported;
    for (const StepRecord& step : steps) {
      ++reported[{step.repeat, step.step}];
    }
    std::erase_if(steps, [&](const StepRecord& step) {
      return reported[{step.repeat, step.step}] < ranks_;
    });
  }

  [[nodiscard]] int processes() const { return is_emulated_ ? 1 : ranks_; }

  int ranks_;
  bool is_emulated_;
  JsonValue emulation_;
  std::vector<RunRecord> records_;
  std::map<int, std::vector<double>> sentinels_;  ///< [round] of the ranks, ms.
  LiveProgress progress_;
  std::chrono::steady_clock::time_point keep_at_ = std::chrono::steady_clock::now() + kKeepEvery;
};

}  // namespace

void run_live(const std::vector<Plan>& plans,
              const BackendFactory& factory,
              const LiveOptions& options,
              const std::function<void(const LiveProgress&)>& on_progress,
              std::vector<RunRecord>& records) {
  check_live_plans(plans, options.plans);
  if (options.block < 1 || options.repeats < 1) {
    throw InputError("block {} and repeats {} must be at least 1", options.block, options.repeats);
  }
  Collector collector(plans, options);
  try {
    run_ranks(
        options.emulated_transfer ? 1 : plans[0].ranks,
        [&](const RankContext& context) { run_live_rank(context, factory, plans, options); },
        [&](int /*rank*/, const std::string& line) {
          collector.add(line, on_progress);
          collector.keep_now_and_then(options.keep);
        },
        options.launched);
  } catch (...) {
    records = collector.take();
    throw;
  }
  records = collector.take();
}

}  // namespace stepsim
