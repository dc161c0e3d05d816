#include "sim/report/sweep/sweep_report.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/base/shell_word.h"
#include "costmodel/terminal/table.h"
#include "sim/report/columns.h"
#include "sim/report/csv.h"
#include "sim/report/notes.h"
#include "sim/report/number_text.h"
#include "sim/report/setting_json.h"
#include "sim/report/sweep/sweep_shards.h"
#include "sim/report/sweep/sweep_training.h"
#include "sim/report/sweep/sweep_warnings.h"
#include "sim/study/swept_effect.h"
#include "sim/study/training/training_cost.h"

namespace stepsim {

namespace {

constexpr const char* kBucketCap = "ddp.bucket_cap";
constexpr const char* kTooClose = "too close to tell";
/// This is said of a gain that would be large, from costs that nobody measured there.
constexpr const char* kTooUnsure = "too unsure to tell: measure what the warnings name";
constexpr double kLarge = 0.1;

double throughput(const SweepPoint& point) {
  return point.prediction.summary.useful_tokens_per_s();
}

bool fits(const SweepPoint& point) {
  return !point.prediction.out_of_memory;
}

/// What a point that does not fit needs beyond what there is.
double missing_gib(const SweepPoint& point) {
  const OutOfMemory& memory = *point.prediction.out_of_memory;
  return static_cast<double>(memory.needed.value() - memory.capacity.value()) / 0x1p30;
}

/// Why a point is not the best: the part of the step that takes most more time.
std::string largest_part(const SweepPoint& point, const SweepPoint& best) {
  const PredictionSummary& here = point.prediction.summary;
  const PredictionSummary& there = best.prediction.summary;
  const std::pair<const char*, double> parts[] = {
      {"data", here.data_ms - there.data_ms},
      {"forward", here.forward_ms - there.forward_ms},
      {"backward", here.backward_ms - there.backward_ms},
      {"exposed communication", here.exposed_transfer_ms() - there.exposed_transfer_ms()},
      {"waiting for ranks", here.waiting_for_ranks_ms - there.waiting_for_ranks_ms},
      {"optimizer and copies", here.optimizer_ms - there.optimizer_ms}};
  const auto* largest =
      std::max_element(std::begin(parts), std::end(parts), [](const auto& a, const auto& b) {
        return a.second < b.second;
      });
  return largest->second > 0.002 * there.step_time_ms.mean ? largest->first : "";
}

/// Why a bucket size is not the best: what its exposed communication is made of.
std::string bucket_cap_reason(const SweepPoint& point, const SweepPoint& best) {
  const PredictionSummary& here = point.prediction.summary;
  const PredictionSummary& there = best.prediction.summary;
  const double excess = here.exposed_communication_ms + here.optimizer_ms -
                        there.exposed_communication_ms - there.optimizer_ms;
  if (excess <= 0.002 * there.step_time_ms.mean) {
    return "";
  }
  // More time on the wire than at the best point: many messages, each below full bandwidth.
  const double wire = here.communication_ms - there.communication_ms;
  const double tail = point.last_bucket_ms - best.last_bucket_ms;
  if (wire >= tail) {
    return "latency-bound";
  }
  return here.overlap_fraction < 0.05 ? "no overlap" : "less overlap";
}

/// A point that was refused.
bool is_refused(const SweepPoint& point) {
  return !point.not_priced.empty();
}

std::string remark_of(const SweepRow& row, const SweepPoint& best, bool over_caps) {
  if (row.is_blank()) {
    return "refused";
  }
  if (!fits(row.point)) {
    return fmt::format("out of memory by {:.1f} GiB", missing_gib(row.point));
  }
  if (!row.of_best.is_certain()) {
    return kTooClose;
  }
  return over_caps ? bucket_cap_reason(row.point, best) : largest_part(row.point, best);
}

/// What the scenario has, where bucket caps are swept. In the newest version a row of 25 MiB is
/// something else than the default.
std::string own_cap_name(const DdpOptions& ddp) {
  const bool is_default = ddp.bucket_rule == BucketRule::PyTorch &&
                          ddp.bucket_cap.value() == kDefaultBucketCapBytes &&
                          ddp.first_bucket_cap.value() == kDefaultFirstBucketBytes;
  if (!is_default) {
    return fmt::format("the scenario's {}", format_bytes(ddp.bucket_cap));
  }
  const bool has_own_first = ddp.torch == DdpRules::Newest && !ddp.first_bucket_cap_stated;
  return has_own_first ? "DDP's default of 25 MiB after a first bucket of 1 MiB"
                       : "DDP's default of 25 MiB";
}

bool can_be_told(const SweepRow& row) {
  return row.is_blank() || row.of_best.is_certain() || !fits(row.point);
}

/// A step time above the shortest, of the largest that is; the shortest one shows as a mark, too.
double bar_share(double value, double low, double high) {
  constexpr double kMark = 1.0 / 21;
  const double share = high > low ? (value - low) / (high - low) : 0;
  return kMark + (1 - kMark) * std::clamp(share, 0.0, 1.0);
}

/// True: the points do not have the same work in a step, so that times alone do not compare.
bool changes_work(const SweepReport& report) {
  constexpr double kSame = 1e-6;
  const double tokens = report.rows[report.best].point.prediction.summary.useful_tokens_per_step;
  return std::ranges::any_of(report.rows, [&](const SweepRow& other) {
    const double others = other.point.prediction.summary.useful_tokens_per_step;
    return !other.is_blank() && std::abs(others - tokens) > kSame * tokens;
  });
}

/// "113.803 ms", with the tokens where points do not have the same work in a step.
std::string time_of(const SweepPoint& point, const SweepReport& report) {
  const PredictionSummary& s = point.prediction.summary;
  const std::string ms = mean_text(s.step_time_ms.mean, s.step_time_ms.width90());
  return changes_work(report) ? fmt::format("{} ms for {:.0f} {}",
                                            ms,
                                            s.useful_tokens_per_step,
                                            report.counts_samples ? "samples" : "useful tokens")
                              : ms + " ms";
}

/// What to sweep in place of a policy that does not fit into memory; empty where nothing fits.
std::string fitting_policies_text(const SweepReport& report) {
  return report.fitting_policies.empty()
             ? ""
             : fmt::format(" As the scenario stands, it fits with --policy {}.",
                           fmt::join(mapped(report.fitting_policies, shell_word), " or "));
}

/// Which points cannot be told from the best; empty when all can.
std::string close_points(const std::vector<SweepAxis>& axes, const SweepReport& report) {
  std::vector<std::size_t> close;
  for (std::size_t i = 0; i < report.rows.size(); ++i) {
    if (i != report.best && !can_be_told(report.rows[i])) {
      close.push_back(i);
    }
  }
  return close.empty()
             ? ""
             : fmt::format(" Too close to the best to tell: {}.", places_text(axes, report, close));
}

/// The largest cluster against the smallest from which published jobs grew as far. Of the points
/// that fit into memory; no two of them may have as many ranks, since these differ in
/// something else, too.
ScalingComparison scaling_comparison(const Scenario& scenario,
                                     const std::string& device,
                                     const std::vector<TrainingCost>& costs) {
  std::vector<const TrainingCost*> grown;
  for (const TrainingCost& cost : costs) {
    if (cost.per_rank > 0) {
      grown.push_back(&cost);
    }
  }
  std::ranges::sort(grown, {}, &TrainingCost::ranks);
  const bool differ_elsewhere =
      std::ranges::adjacent_find(grown, {}, &TrainingCost::ranks) != grown.end();
  ScalingComparison scaling;
  if (grown.size() < 2 || differ_elsewhere) {
    return scaling;
  }
  const TrainingCost& to = *grown.back();
  const std::vector<PublishedScaling> all = published_scaling();
  for (const TrainingCost* from : grown) {
    if (from == &to || !scaling.published.empty()) {
      break;  // Else from the next cluster on: nobody may have grown as far as from this one.
    }
    scaling.job = {
        static_cast<double>(parameter_count(scenario.model)), device, from->ranks, to.ranks};
    scaling.efficiency = to.per_rank / from->per_rank;
    scaling.low90 = to.samples_per_s_low90 / to.ranks / from->per_rank;
    scaling.high90 = to.samples_per_s_high90 / to.ranks / from->per_rank;
    scaling.published = nearest_published(all, scaling.job);
  }
  return scaling;
}

Json reference_json(const SweepReport& report) {
  Json json = {{"name", report.reference_name}};
  if (report.reference_cap) {
    json["bucket_cap"] = report.reference_cap->value();
  }
  if (is_refused(report.reference)) {
    json["refused"] = report.reference.not_priced;
    return json;
  }
  const PredictionSummary& summary = report.reference.prediction.summary;
  json["step_ms"] = summary.step_time_ms.mean;
  json["useful_tokens_per_step"] = summary.useful_tokens_per_step;
  json["gap"] = report.gain.gain;
  json["gap_interval90"] = {report.gain.interval.first, report.gain.interval.second};
  return json;
}

Json axis_json(const SweepAxis& axis) {
  return {{"key", axis.key},
          {"unit", unit_text(axis.key)},
          {"values", mapped(axis.values, setting_json)},
          {"labels", mapped(axis.values, &Setting::value_text)}};
}

/// What the points that could be predicted come to.
std::string verdict_of(const std::vector<SweepAxis>& axes, const SweepReport& report) {
  const SweepPoint& best = report.rows[report.best].point;
  const char* const value = std::ranges::any_of(report.rows, &SweepRow::is_blank)
                                ? "value that could be predicted"
                                : "value";
  if (!any_fits(report)) {
    const OutOfMemory& memory = *best.prediction.out_of_memory;
    return fmt::format(
        "No {} fits into memory. {} lacks least: {:.1f} GiB beside the {:.1f} GiB of a rank.{}",
        value,
        place_of(axes, best),
        missing_gib(best),
        static_cast<double>(memory.capacity.value()) / 0x1p30,
        fitting_policies_text(report));
  }
  const bool is_reference = !is_refused(report.reference) && report.gain.gain == 0;
  if (is_reference && report.keys_without_effect.size() == axes.size()) {
    return fmt::format("Nothing to gain here: {} {} no difference, and a step takes {}.",
                       fmt::join(report.keys_without_effect, " and "),
                       axes.size() == 1 ? "makes" : "make",
                       time_of(best, report));
  }
  if (is_refused(report.reference)) {
    return fmt::format("Best: {}, {} a step; {} cannot be predicted: {}{}",
                       place_of(axes, best),
                       time_of(best, report),
                       report.reference_name,
                       report.reference.not_priced,
                       close_points(axes, report));
  }
  const bool reference_fits = fits(report.reference);
  if (reference_fits && !report.gain.is_certain()) {
    const std::string keep = fmt::format("{}: keep {} ({} a step)",
                                         nothing_to_gain_text(report.gain),
                                         report.reference_name,
                                         time_of(report.reference, report));
    if (report.gain.gain <= 0) {
      return fmt::format("{}; no {} is faster.", keep, value);
    }
    const std::string gain = report.gain.gain < kSmallestGain
                                 ? ""
                                 : fmt::format(" ({}, {}: {})",
                                               signed_percent(report.gain.gain),
                                               certainty_text(report.gain),
                                               report.gain.gain < kLarge ? kTooClose : kTooUnsure);
    return fmt::format("{}. The fastest value is {}{}.", keep, place_of(axes, best), gain);
  }
  const std::string over = reference_fits
                               ? fmt::format("{} takes {}, {:.1f} % slower{} ({})",
                                             report.reference_name,
                                             time_of(report.reference, report),
                                             report.gain.gain * 100,
                                             !changes_work(report)   ? ""
                                             : report.counts_samples ? " for each sample"
                                                                     : " for each token",
                                             certainty_text(report.gain, "slower"))
                               : fmt::format("{} does not fit into memory", report.reference_name);
  return fmt::format("Best: {}, {} a step; {}.{}",
                     place_of(axes, best),
                     time_of(best, report),
                     over,
                     close_points(axes, report));
}

}  // namespace

bool sweeps_only_caps(const std::vector<SweepAxis>& axes) {
  return axes.size() == 1 && axes.front().key == kBucketCap;
}

bool any_fits(const SweepReport& report) {
  return fits(report.rows[report.best].point);
}

std::string sweep_headline(const std::vector<SweepAxis>& axes, const SweepReport& report) {
  const auto refused = std::ranges::count_if(report.rows, &SweepRow::is_blank);
  return refused == 0 ? verdict_of(axes, report)
                      : fmt::format("{} {} of {} {} {} refused: the warnings say why.",
                                    verdict_of(axes, report),
                                    refused,
                                    report.rows.size(),
                                    axes.size() == 1 ? "values" : "points",
                                    refused == 1 ? "was" : "were");
}

SweepReport sweep_report(Jobs& jobs,
                         const std::vector<SweepAxis>& axes,
                         const SweepOptions& options,
                         PointRunner& runner,
                         const TrainingGoal& goal) {
  const Scenario& scenario = jobs.base();
  SweepReport report;
  SweepOptions of_points = options;
  of_points.skips_unpriced = true;
  ReferencedSweep swept = sweep_with_reference(jobs, axes, of_points, runner);
  if (!options.no_reference.empty()) {
    swept.reference = {};
    swept.reference.not_priced = options.no_reference;
  }
  if (std::ranges::all_of(swept.points, is_refused)) {
    fail_all_refused(jobs, axes, options, swept.points);
  }
  report.keys_without_effect = keys_without_effect(axes, swept.points);
  for (SweepPoint& point : swept.points) {
    report.rows.push_back(
        {std::move(point), {}, "", true, sweeps_only_caps(axes), sweeps_shards(axes)});
  }
  const auto rank = [](const SweepRow& row) {
    const bool runs = row.is_blank() || fits(row.point);
    return std::tuple(row.is_blank(),
                      !fits(row.point),
                      runs ? 0.0 : missing_gib(row.point),
                      -throughput(row.point));
  };
  report.best = static_cast<std::size_t>(std::ranges::min_element(report.rows, {}, rank) -
                                         report.rows.begin());
  const SweepPoint& best = report.rows[report.best].point;
  const bool caps = sweeps_only_caps(axes);
  for (SweepRow& row : report.rows) {
    row.compares = fits(best);
    row.of_best = row.is_blank() ? Gain() : paired_gain(best.prediction, row.point.prediction);
    row.remark = remark_of(row, best, caps);
  }
  report.counts_samples =
      scenario.lengths.kind == LengthSource::Kind::Constant && scenario.lengths.constant == 1;
  report.reference_name = caps ? own_cap_name(scenario.ddp) : "the scenario as it stands";
  report.reference_cap = caps ? std::optional(scenario.ddp.bucket_cap) : std::nullopt;
  report.memory_capacity = jobs.profile(scenario)->memory_capacity;
  report.reference = std::move(swept.reference);
  const bool has_reference = !is_refused(report.reference);
  report.gain = has_reference ? paired_gain(best.prediction, report.reference.prediction) : Gain();
  const bool chosen = !has_reference || !fits(report.reference) || report.gain.is_certain();
  std::string& of_best = report.rows[report.best].remark;
  of_best = !fits(best) ? of_best : chosen ? "best" : "fastest";
  const auto other_ranks = [&](const SweepRow& row) {
    return !row.is_blank() && row.point.ranks != best.ranks;
  };
  report.goal = goal;
  if (goal.samples || goal.tokens || std::ranges::any_of(report.rows, other_ranks)) {
    const auto points = mapped(report.rows, [](const SweepRow& row) {
      return ClusterPoint{&row.point.prediction, row.point.ranks};
    });
    report.training = training_costs(points, goal);
    report.scaling = scaling_comparison(scenario, jobs.profile(scenario)->device, report.training);
  }
  return report;
}

std::string sweep_text(const Scenario& scenario,
                       const std::vector<SweepAxis>& axes,
                       const SweepReport& report,
                       const Screen& screen) {
  const std::vector<SweepRow> rows = shown_rows(axes, report.rows);
  const std::vector<double> times = mapped(
      rows, [](const SweepRow& row) { return row.point.prediction.summary.step_time_ms.mean; });
  // Bars compare what can run; where nothing can, all.
  std::vector<double> scale;
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (!rows[i].is_blank() && (fits(rows[i].point) || !any_fits(report))) {
      scale.push_back(times[i]);
    }
  }
  const auto [low, high] = std::ranges::minmax(scale);
  std::vector<double> shares;
  std::vector<std::string> plain;
  std::vector<Paint> paints;
  std::vector<std::vector<std::string>> labels;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const SweepRow& row = rows[i];
    labels.push_back(labels_of(axes, row.point));
    const bool best = row.remark == "best";
    const bool runs = !row.is_blank() && fits(row.point);
    paints.push_back(best ? Paint::Good : runs ? Paint::Plain : Paint::Bad);
    shares.push_back(row.is_blank() ? 0 : bar_share(times[i], low, high));
    plain.push_back(bar_text(shares.back(), 21, {}));
  }
  Table table = table_of<SweepRow>(
      sweep_columns(), rows, screen, paints, mapped(axes, &SweepAxis::key), labels);
  if (screen.is_terminal() || screen.wide) {
    table.add_bars(
        screen.is_terminal() ? "step ms above the shortest" : "", shares, std::move(plain));
  }
  const Prediction& best = report.rows[report.best].point.prediction;
  std::string text = fmt::format("{}: policy {}, {} ranks, profile {}\n\n{}\n{}\n",
                                 scenario.name,
                                 best.policy,
                                 scenario.ranks,
                                 best.profile,
                                 table.text(screen),
                                 painted(sweep_headline(axes, report), Paint::Strong, screen));
  if (any_fits(report)) {
    text += next_of_shards(scenario, axes, report.rows[report.best].point);
  }
  if (const std::string training = training_text(axes, report, screen); !training.empty()) {
    text += "\n" + training;
  }
  for (const std::string& warning : sweep_warnings(axes, report)) {
    text += "warning: " + warning + "\n";
  }
  return text;
}

Json sweep_json(const std::vector<SweepAxis>& axes, const SweepReport& report) {
  Json points = Json::array();
  for (const SweepRow& row : report.rows) {
    Json values = Json::object();
    for (std::size_t i = 0; i < axes.size(); ++i) {
      values[axes[i].key] = setting_json(axes[i].values[row.point.place[i]]);
    }
    Json point = {{"values", std::move(values)}, {"place", row.point.place}};
    point.update(row_json(sweep_columns(), row));
    point["warnings"] = note_texts(row.point.prediction);
    points.push_back(std::move(point));
  }
  Json json = {{"format", "stepsim-sweep/2"},
               {"headline", sweep_headline(axes, report)},
               {"axes", mapped(axes, axis_json)},
               {"points", std::move(points)},
               {"best", report.best},
               {"is_better", report.rows[report.best].remark == "best"},
               {"reference", reference_json(report)},
               {"warnings", sweep_warnings(axes, report)}};
  if (report.memory_capacity.value() > 0) {
    json["memory_capacity_mib"] = static_cast<double>(report.memory_capacity.value()) / 0x1p20;
  }
  if (!report.training.empty()) {
    json["training"] = training_json(axes, report);
  }
  return json;
}

std::string sweep_csv(const std::vector<SweepAxis>& axes, const SweepReport& report) {
  const auto keys = mapped(axes, [](const SweepAxis& axis) { return csv_field(axis.key); });
  std::string text = csv_header(sweep_columns(), fmt::format("{}", fmt::join(keys, ",")));
  for (const SweepRow& row : report.rows) {
    std::vector<std::string> cells;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const Json value = setting_json(axes[i].values[row.point.place[i]]);
      cells.push_back(csv_field(value.is_string() ? value.get<std::string>() : value.dump()));
    }
    text += csv_line(sweep_columns(), row, fmt::format("{}", fmt::join(cells, ",")));
  }
  return text;
}

}  // namespace stepsim
