#include "calibrate/measure/measure.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "calibrate/measure/clock.h"
#include "calibrate/measure/measure_probe.h"
#include "calibrate/measure/measure_rank.h"
#include "calibrate/measure/stopping.h"
#include "calibrate/ranks/launched_group.h"
#include "calibrate/samples/sample_log.h"
#include "calibrate/samples/sample_writer.h"
#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

/// Everything of one call of measure().
class Measurement {
 public:
  Measurement(const MeasureRequest& request,
              const BackendFactory& factory,
              const MeasureHooks& hooks)
      : request_(request), factory_(factory), hooks_(hooks) {}

  int run() {
    if (request_.launched != nullptr && !request_.launched->leads()) {
      follow();
      return 0;
    }
    open();
    clock_offset_ = log_.last_at_seconds() - clock_seconds();
    if (hooks_.on_plan) {
      const double left = plan_.passes * pass_seconds(plan_, estimate_) - elapsed();
      hooks_.on_plan(plan_, std::max(0.0, left), resumed_);
    }
    for (int pass = 0; pass < plan_.passes; ++pass) {
      if (!log_.pass_ended(pass) && !run_pass(pass)) {
        break;
      }
    }
    return log_.measurements();
  }

 private:
  /// A launched rank above 0: it takes part in every run that rank 0 starts.
  void follow() {
    static_cast<void>(probe(request_, factory_));
    while (request_.launched->more()) {
      run_ranks(
          request_.ranks,
          [&](const RankContext& context) { run_rank(context, nullptr); },
          nullptr,
          request_.launched);
    }
  }

  void open() {
    const Probe answer = probe(request_, factory_);
    estimate_ = answer.estimate;
    plan_ = choose_plan(request_, estimate_);
    plan_.nodes = request_.launched != nullptr ? request_.launched->nodes() : 1;
    if (plan_.points.empty() && estimate_.times_ops) {
      throw InputError("no batch shape lies in the range to measure");
    }
    if (plan_.points.empty() && plan_.collective_bytes.empty()) {
      throw InputError("one rank has no collectives to measure; use --ranks 2 or more");
    }
    const Json header = samples_header(request_, plan_, answer);
    std::error_code ignored;
    const bool is_file = std::filesystem::is_regular_file(request_.out, ignored);
    if (!is_file || std::filesystem::file_size(request_.out, ignored) == 0) {
      writer_.emplace(request_.out, 0);
      writer_->write(header.dump());
      return;
    }
    std::vector<std::string> warnings;
    SampleFile file = read_sample_file(request_.out, &warnings);
    require_same_request(file, request_, header);
    plan_ = file.plan;
    log_ = std::move(file.log);
    resumed_ = true;
    writer_.emplace(request_.out, file.whole_bytes);
    for (const std::string& warning : warnings) {
      if (hooks_.on_warning) {
        hooks_.on_warning(warning);
      }
    }
  }

  [[nodiscard]] double elapsed() const { return clock_seconds() + clock_offset_; }

  /// Nothing more is to be measured of a point: it is precise, or cannot run here.
  [[nodiscard]] bool is_enough(const GridPoint& point) const {
    return log_.is_refused(point) || is_precise(point);
  }

  [[nodiscard]] bool is_precise(const GridPoint& point) const {
    const PointLog* measured = log_.find(point);
    if (measured == nullptr) {
      return false;
    }
    StoppingRule rule;
    rule.target = plan_.target;
    rule.min_repetitions = kFewestPasses * plan_.repetitions * plan_.ranks;
    Stopping stopping(rule);
    for (const double seconds : measured->step_seconds) {
      stopping.add(seconds);
    }
    return stopping.done();
  }

  /// What is left to do of a pass.
  [[nodiscard]] RankPass remaining(int pass) const {
    RankPass task;
    task.pass = pass;
    task.ranks = plan_.ranks;
    task.repetitions = plan_.repetitions;
    task.padded = plan_.box.padded;
    task.sentinel = sentinel_lengths(plan_.model);
    task.bucket_bytes = bucket_bytes(plan_.model, plan_.buckets);
    for (const GridPoint& point : order_of_pass(plan_, pass)) {
      const bool enough = pass >= kFewestPasses && is_precise(point);
      if (!enough && !log_.is_refused(point) && !log_.has_all_ranks(point, pass, plan_.ranks)) {
        task.points.push_back(point);
      }
    }
    if (pass == 0) {
      task.overlaps_kept = log_.overlaps().size();
    }
    for (const CollectiveTask& collective : collectives_of_pass(plan_, pass)) {
      if (!log_.has_collective(collective, pass)) {
        task.collectives.push_back(collective);
      }
    }
    return task;
  }

  /// False when it is enough: every point is precise, or the budget is spent.
  bool run_pass(int pass) {
    RankPass task = remaining(pass);
    MeasurePlan rest = plan_;
    rest.points = task.points;
    double expected = pass_seconds(rest, estimate_);
    if (pass > 0) {
      const bool enough = pass >= kFewestPasses && !plan_.points.empty() &&
                          std::ranges::all_of(plan_.points, [this](const GridPoint& point) {
                            return is_enough(point);
                          });
      // A pass that takes too long takes fewer repetitions, or is the one too many.
      while (elapsed() + pace_ * expected > most_seconds(pass) && rest.repetitions > 1) {
        --rest.repetitions;
        expected = pass_seconds(rest, estimate_);
      }
      if (enough || elapsed() + pace_ * expected > most_seconds(pass)) {
        return false;
      }
      task.repetitions = rest.repetitions;
    }
    const double start = elapsed();
    pass_ = pass;
    done_ = 0;
    total_ = static_cast<int>(task.points.size() * static_cast<std::size_t>(task.repetitions) +
                              task.collectives.size());
    early_.emplace();
    collectives_.clear();
    task.buckets = buckets_of_pass(plan_, pass);
    run_ranks(
        plan_.ranks,
        [&](const RankContext& context) { run_rank(context, &task); },
        [&](int /*rank*/, const std::string& line) { take(line); },
        request_.launched);
    keep(pass_end_line(pass, elapsed()));
    pace_ = (elapsed() - start) / expected;
    return true;
  }

  /// The measuring time at which a pass must end: a tenth past the budget. Where the fewest passes
  /// were estimated to take longer than the budget, which was said then, a tenth past that.
  [[nodiscard]] double most_seconds(int pass) const {
    const double fewest = pass < kFewestPasses ? kFewestPasses * pass_seconds(plan_, estimate_) : 0;
    return 1.1 * std::max(plan_.budget_seconds, fewest);
  }

  /// One rank's share of a pass, in its process. Rank 0 (with a `task`) tells it to the others,
  /// which may be forked from other processes.
  void run_rank(const RankContext& context, const RankPass* task) const {
    Json told;
    if (task != nullptr) {
      told = {{"elapsed_seconds", elapsed()}, {"pass", rank_pass_json(*task)}};
    }
    const Json heard = parse_json(context.broadcast(told.dump()), "rank 0's pass");
    RankPass mine = rank_pass_from_json(heard.at("pass"));
    mine.rank = context.rank();
    mine.clock_offset = heard.at("elapsed_seconds").get<double>() - clock_seconds();
    const std::unique_ptr<Backend> backend = factory_(context, request_.model, mine.buckets);
    measure_rank_pass(*backend, mine, [&context](const std::string& line) { context.send(line); });
  }

  /// Takes in one line of a rank.
  void take(const std::string& line) {
    const Json json = parse_json(line, "a rank's measurement");
    const std::string kind = json.at("kind").get<std::string>();
    if (kind == "rank_times") {
      take_collective(rank_times_from_json(json));
      return;
    }
    if (kind == "step" && early_.has_value()) {
      early_->push_back(line);  // Rank 0's list of ops is still in its pipe.
      return;
    }
    keep(line);
    if (kind == "pass") {
      std::vector<std::string> waiting = std::move(*early_);
      early_.reset();
      for (const std::string& step : waiting) {
        take(step);
      }
    } else if (kind == "step" && json.at("rank").get<int>() == 0) {
      progress();
    }
  }

  void take_collective(RankCollectiveTimes times) {
    std::vector<RankCollectiveTimes>& ranks = collectives_[times.task];
    ranks.push_back(std::move(times));
    if (ranks.size() == static_cast<std::size_t>(plan_.ranks)) {
      const std::vector<double> seconds = combine_ranks(ranks);
      if (!seconds.empty()) {
        keep(collective_line(pass_, plan_.ranks, plan_.nodes, ranks.front().task, seconds));
      }
      ranks.clear();
      progress();
    }
  }

  void keep(const std::string& line) {
    log_.add(parse_json(line, request_.out), request_.out, 0);
    writer_->write(line);
  }

  void progress() {
    ++done_;
    if (!hooks_.on_progress) {
      return;
    }
    MeasureProgress now;
    now.pass = pass_;
    now.passes = plan_.passes;
    now.done = done_;
    now.total = total_;
    now.elapsed_seconds = elapsed();
    const double one = pass_seconds(plan_, estimate_);
    const double left = plan_.passes - pass_ - static_cast<double>(done_) / std::max(1, total_);
    now.remaining_seconds = std::max(0.0, left) * one * pace_;
    now.measurements = log_.measurements();
    hooks_.on_progress(now);
  }

  const MeasureRequest& request_;
  const BackendFactory& factory_;
  const MeasureHooks& hooks_;
  MeasurePlan plan_;
  StepEstimate estimate_;
  SampleLog log_;
  std::optional<SampleWriter> writer_;
  std::optional<std::vector<std::string>> early_;  ///< Steps that came before the list of ops.
  std::map<CollectiveTask, std::vector<RankCollectiveTimes>> collectives_;  ///< Ranks heard so far.
  bool resumed_ = false;
  double clock_offset_ = 0;
  double pace_ = 1;  ///< Time of the last pass over its estimate.
  int pass_ = 0;
  int done_ = 0;
  int total_ = 0;
};

}  // namespace

int measure(const MeasureRequest& request,
            const BackendFactory& factory,
            const MeasureHooks& hooks) {
  return Measurement(request, factory, hooks).run();
}

}  // namespace stepsim
