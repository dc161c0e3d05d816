#include "tests/bench/form_stability.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <vector>

#include <fmt/core.h>

#include "calibrate/fit/collectives.h"
#include "calibrate/fit/find_processors.h"
#include "calibrate/fit/holdout.h"
#include "calibrate/fit/piecewise_linear.h"
#include "costmodel/compute/knots.h"
#include "costmodel/compute/op_cost.h"
#include "costmodel/network/collective_table.h"
#include "tests/bench/groups.h"
#include "tests/bench/layer_forms.h"
#include "tests/costmodel/network/nccl_sweeps.h"

namespace stepsim::bench {
namespace {

constexpr double kMebibyte = 0x1p20;
/// Series whose errors are averaged: every fourth, as where forms are chosen.
constexpr std::size_t kEvery = 4;

/// Mean errors of forms, gathered under what was held out and from which table.
class HeldOutErrors {
 public:
  void add(const std::string& held_out,
           const std::string& form,
           const std::string& table,
           double predicted,
           double measured) {
    errors_[held_out][form][table].add(predicted, measured);
  }
  void print() const {
    for (const auto& [held_out, forms] : errors_) {
      fmt::print("\n{}\n", held_out);
      for (const auto& [form, tables] : forms) {
        print_form(form, tables);
      }
    }
    std::fflush(stdout);
  }

 private:
  using Tables = std::map<std::string, ErrorSum>;

  static void print_form(const std::string& form, const Tables& tables) {
    double sum = 0;
    double worst = 0;
    std::string cells;
    for (const auto& [table, errors] : tables) {
      const double percent = 100 * errors.mean().value_or(0);
      cells += fmt::format("  {} {:.2f}", table, percent);
      sum += percent;
      worst = std::max(worst, percent);
    }
    fmt::print("  {:<46} mean {:>6.2f} worst {:>6.2f} {}\n",
               form,
               sum / static_cast<double>(tables.size()),
               worst,
               cells);
  }

  std::map<std::string, std::map<std::string, Tables>> errors_;
};

// ---- Series of one op

/// What is held out of a series, and the rows that stay.
struct RangeHeldOut {
  std::string name;
  std::vector<Part> parts;
};

Part part_of(const std::vector<std::int64_t>& tokens,
             const std::function<bool(std::int64_t)>& fitted,
             std::int64_t fewest_tested = 0) {
  Part part;
  for (const std::int64_t count : tokens) {
    part.train.push_back(fitted(count));
    part.test.push_back(!part.train.back() && count >= fewest_tested);
  }
  return part;
}

std::vector<RangeHeldOut> ranges_held_out(const std::vector<std::int64_t>& tokens) {
  constexpr std::size_t kEighths = 8;
  constexpr std::int64_t kFewestTokens = 256;
  std::vector<RangeHeldOut> list = {{"an eighth of neighbours", {}}};
  const std::size_t inner = tokens.size() - 2;
  for (std::size_t eighth = 0; eighth < kEighths; ++eighth) {
    const auto first = tokens.begin() + 1 + static_cast<std::ptrdiff_t>(inner * eighth / kEighths);
    const auto last =
        tokens.begin() + 1 + static_cast<std::ptrdiff_t>(inner * (eighth + 1) / kEighths);
    const std::set<std::int64_t> out(first, last);
    list[0].parts.push_back(
        part_of(tokens, [&](std::int64_t count) { return out.count(count) == 0; }));
  }
  for (const std::int64_t times : {2, 4}) {
    list.push_back({fmt::format("beyond {} times", times),
                    {part_of(tokens, [&](auto count) { return count * times <= tokens.back(); })}});
  }
  for (const std::int64_t grid : {128, 256, 512}) {
    list.push_back({fmt::format("all but 64 and multiples of {}", grid),
                    {part_of(
                        tokens,
                        [grid](auto count) { return count == 64 || count % grid == 0; },
                        kFewestTokens)}});
  }
  return list;
}

/// The rows of a series that both the first fold of "scattered" and "beyond-2x" leave for fitting.
Series training_rows(const Series& series) {
  std::vector<bool> rows;
  const std::vector<std::int64_t> tokens = tokens_of(series);
  for (const std::int64_t count : tokens) {
    rows.push_back(fold(count) != 0 && 2 * count <= tokens.back());
  }
  return kept(series, rows);
}

void hold_out_ranges(const std::string& group,
                     const std::string& table,
                     const std::vector<Series>& all,
                     std::int64_t processors,
                     HeldOutErrors* errors) {
  for (std::size_t i = 0; i < all.size(); i += kEvery) {
    const Series& series = all[i];
    for (const RangeHeldOut& range : ranges_held_out(tokens_of(series))) {
      for (const Part& part : range.parts) {
        const Series train = kept(series, part.train);
        const Series test = kept(series, part.test);
        if (train.points.size() < 3 || test.points.empty()) {
          continue;
        }
        for (const FormCandidate& candidate : candidates_for(series.op, processors)) {
          const OpCost cost = fit_form(candidate, train.op, train.points);
          for (const SeriesPoint& point : test.points) {
            errors->add(group + ": " + range.name,
                        described(candidate),
                        table,
                        evaluate(cost, test.op, point.batch).seconds,
                        point.seconds);
          }
        }
      }
    }
  }
}

void hold_out_series(const std::vector<MlpSeries>& all, HeldOutErrors* errors) {
  std::map<std::int64_t, std::map<bool, std::vector<Series>>> grids;
  for (const MlpSeries& one : all) {
    if (one.name != "emb") {
      const bool gemm = one.series.op.op_class == OpClass::Gemm;
      grids[one.series.points.back().batch.max_length][gemm].push_back(training_rows(one.series));
    }
  }
  for (const auto& [largest, classes] : grids) {
    const std::string table = fmt::format("{}k", largest / 1024);
    for (const auto& [gemm, series] : classes) {
      const std::int64_t processors = std::max<std::int64_t>(1, gemm ? find_processors(series) : 1);
      hold_out_ranges(gemm ? "GEMM" : "elementwise", table, series, processors, errors);
    }
  }
}

// ---- Sizes that were never measured

/// This holds every third row of a table's series, from 64 tokens on, and says whose it is.
struct SizedRow {
  std::string model;
  OpPoint point;
};

std::map<std::string, std::vector<SizedRow>> sized_rows(const std::vector<MlpSeries>& all) {
  constexpr std::size_t kEveryRow = 3;
  std::map<std::string, std::vector<SizedRow>> tables;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [model, sharding, name, series] = all[i];
    const std::int64_t largest = series.points.back().batch.max_length;
    // The first model of the 4 k grid is the first that is left out and tested.
    if (series.op.op_class != OpClass::Gemm || (largest == 4096 && model == all.front().model)) {
      continue;
    }
    std::vector<SizedRow>& rows = tables[fmt::format("{}k", largest / 1024)];
    for (std::size_t j = 0; j < series.points.size(); j += kEveryRow) {
      const std::int64_t tokens = series.points[j].batch.max_length;
      if (tokens >= 64 && tokens % 8 == 0) {
        rows.push_back({model, {&series.op, series.points[j], i}});
      }
    }
  }
  return tables;
}

std::map<std::string, FormCandidate> named_forms(std::span<const OpPoint> points,
                                                 std::int64_t processors) {
  std::map<std::string, FormCandidate> forms;
  for (FormCandidate& candidate : unmeasured_candidates(points, processors)) {
    const std::string name(form_row(candidate.form).name);
    if (candidate.form == CostForm::RooflineRatio) {
      FormCandidate one = candidate;
      one.wave_counts = {candidate.wave_counts.front()};
      forms[name + ", the best number of processors"] = one;
      one.wave_counts = {processors};
      forms[name + ", the number with the least residuals"] = one;
    }
    forms[name] = std::move(candidate);
  }
  return forms;
}

/// Leaves out the rows of each key in turn, where their sizes are in no other.
void leave_out(const std::string& held_out,
               const std::string& table,
               const std::vector<SizedRow>& rows,
               std::int64_t processors,
               const std::function<std::string(const SizedRow&)>& key_of,
               HeldOutErrors* errors) {
  std::map<std::string, std::vector<OpPoint>> tested;
  for (const SizedRow& row : rows) {
    tested[key_of(row)].push_back(row.point);
  }
  for (const auto& [key, points] : tested) {
    std::vector<OpPoint> train;
    std::set<std::pair<std::int64_t, std::int64_t>> sizes;
    for (const SizedRow& row : rows) {
      if (key_of(row) != key) {
        train.push_back(row.point);
        sizes.emplace(row.point.op->n, row.point.op->k);
      }
    }
    for (const auto& [name, candidate] : named_forms(train, processors)) {
      const OpCost cost = fit_form(candidate, train);
      for (const auto& [op, point, series] : points) {
        if (sizes.count({op->n, op->k}) == 0) {
          errors->add(
              held_out, name, table, evaluate(cost, *op, point.batch).seconds, point.seconds);
        }
      }
    }
  }
}

void hold_out_sizes(const std::vector<MlpSeries>& all, HeldOutErrors* errors) {
  for (const auto& [table, rows] : sized_rows(all)) {
    std::vector<Series> series;
    for (const SizedRow& row : rows) {
      series.push_back({*row.point.op, {row.point.point}});
    }
    const std::int64_t processors = find_processors(series);
    leave_out("GEMM sizes: whole models", table, rows, processors, &SizedRow::model, errors);
    leave_out(
        "GEMM sizes: a fifth of the sizes",
        table,
        rows,
        processors,
        [](const SizedRow& row) {
          return std::to_string(fold(row.point.op->n + 31 * row.point.op->k));
        },
        errors);
  }
}

// ---- All-reduces

using TailRule = std::function<double(const CollectiveCost&)>;
using Sweep = std::vector<std::pair<double, double>>;  ///< (bytes, seconds), ascending.

double segment_slope(const CollectiveCost& table) {
  const auto segment = std::span(table.knots).subspan(last_segment_start(table.knots));
  return tail_slope({segment.begin(), segment.end()}, 1e300);
}

double fitted_slope(const CollectiveCost& table) {
  std::vector<CollectiveSample> samples;
  for (const auto& [bytes, seconds] : table.knots) {
    CollectiveSample sample;
    sample.ranks = 2;
    sample.bytes = static_cast<std::int64_t>(bytes);
    sample.seconds = seconds;
    samples.push_back(sample);
  }
  return *fit_collectives(samples).front().cost.tail_seconds_per_byte;
}

std::map<std::string, TailRule> tail_rules() {
  return {{"the last octave", default_tail},
          {"the last two octaves", [](const auto& table) { return tail_slope(table.knots, 4, 3); }},
          {"the last straight piece", segment_slope},
          {"the mean of octave and piece",
           [](const auto& table) { return (default_tail(table) + segment_slope(table)) / 2; }},
          {"the lower of octave and piece",
           [](const auto& table) { return std::min(default_tail(table), segment_slope(table)); }},
          {"as fitted: the lower counts twice", fitted_slope}};
}

/// Cuts a sweep off at this size, and predicts the sizes up to eight times beyond.
void cut_off(const Sweep& sweep, double limit, const std::string& table, HeldOutErrors* errors) {
  CollectiveCost cost;
  for (const auto& knot : sweep) {
    if (knot.first <= limit) {
      cost.knots.push_back(knot);
    }
  }
  if (cost.knots.size() < 3) {
    return;
  }
  const auto [last, seconds] = cost.knots.back();
  for (const auto& [name, rule] : tail_rules()) {
    const double slope = rule(cost);
    for (const auto& [bytes, measured] : sweep) {
      for (const double times : {2, 8}) {
        if (bytes > limit && bytes <= times * limit) {
          errors->add(fmt::format("all-reduce: up to {} times beyond", times),
                      name,
                      table,
                      seconds + slope * (bytes - last),
                      measured);
        }
      }
    }
  }
}

void hold_out_all_reduces(const std::string& path, HeldOutErrors* errors) {
  constexpr double kLargest = 8 * kMebibyte;  // Larger ones are tested.
  std::map<int, Sweep> groups;
  for (const AllReduceRow& row : read_all_reduce(path)) {
    if (static_cast<double>(row.bytes) <= kLargest) {
      groups[row.ranks].emplace_back(static_cast<double>(row.bytes), row.seconds);
    }
  }
  for (const auto& [ranks, sweep] : groups) {
    for (double limit = kMebibyte / 2; limit <= kLargest / 2; limit += kMebibyte / 8) {
      cut_off(sweep, limit, fmt::format("{} ranks", ranks), errors);
    }
  }
}

void hold_out_published_sweeps(const std::string& path, HeldOutErrors* errors) {
  constexpr std::size_t kFewestSizes = 20;
  for (const auto& [name, sweep] : test::read_sweeps(path)) {
    for (const auto& [bytes, us] : sweep) {
      if (sweep.size() >= kFewestSizes && bytes >= kMebibyte) {
        cut_off({sweep.begin(), sweep.end()}, bytes, "sweeps", errors);
      }
    }
  }
}

// ---- Layers

void hold_out_layers(const std::string& path, HeldOutErrors* errors) {
  const std::vector<LayerRow> train = layer_parts(scored_layers(path)).front().train;
  const auto add = [&](bool models,
                       const std::string& form,
                       const std::string& table,
                       LayerPass pass,
                       const auto& fit,
                       std::span<const LayerRow> tested) {
    for (const LayerRow& row : tested) {
      errors->add(fmt::format("layers, {}: whole {}",
                              pass == LayerPass::Forward ? "forward" : "backward",
                              models ? "models" : "runs"),
                  form,
                  table,
                  fit.seconds(row),
                  seconds_of(row, pass));
    }
  };
  for (const bool models : {false, true}) {
    for (const LayerPart& part : layer_parts(train, models)) {
      const std::int64_t processors = layer_processors(part.train);
      for (const std::string kind : {"linear", "bmm"}) {
        const std::vector<LayerRow> rows = of_kind(part.train, kind);
        const std::vector<LayerRow> tested = of_kind(part.test, kind);
        for (const LayerPass pass : {LayerPass::Forward, LayerPass::Backward}) {
          for (const LayerForm& form : layer_forms(pass)) {
            add(models, form.name, kind, pass, LayerFit(form, pass, processors, rows), tested);
          }
          add(models, "as fitted", kind, pass, MeanLayerFit(pass, processors, rows), tested);
        }
      }
    }
  }
}

}  // namespace

int print_form_stability(const std::string& folder) {
  fmt::print("errors in % on what was held out inside training rows\n");
  HeldOutErrors errors;
  int tables = 0;
  if (const auto path = find_table(folder, "_mlp.csv")) {
    const std::vector<MlpSeries> all = read_mlp(*path);
    hold_out_series(all, &errors);
    hold_out_sizes(all, &errors);
    ++tables;
  }
  if (const auto path = find_table(folder, "_attention_prefill.csv")) {
    const Series series = training_rows(whole_prefill(read_prefill(*path)));
    hold_out_ranges("attention", "prefill", {series}, 1, &errors);
    ++tables;
  }
  if (const auto path = find_table(folder, "_all_reduce.csv")) {
    hold_out_all_reduces(*path, &errors);
    ++tables;
  }
  const std::string sweeps = folder + "/../nccl_logs/figures.csv";
  if (std::filesystem::exists(sweeps)) {
    hold_out_published_sweeps(sweeps, &errors);
    ++tables;
  }
  if (const auto path = find_table(folder, "_layers_fwd_bwd.csv")) {
    hold_out_layers(*path, &errors);
    ++tables;
  }
  errors.print();
  return tables;
}

}  // namespace stepsim::bench
