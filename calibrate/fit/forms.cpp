#include "calibrate/fit/forms.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "calibrate/fit/nnls.h"
#include "calibrate/fit/ratio_form.h"
#include "calibrate/samples/statistics.h"
#include "costmodel/compute/op_cost.h"

namespace stepsim {
namespace {

using Knots = std::vector<std::pair<double, double>>;

constexpr std::size_t kMaxKnots = 40;
constexpr double kClose = 1.03;

/// The median y for each distinct x, ascending.
Knots medians(Knots pairs) {
  std::sort(pairs.begin(), pairs.end());
  Knots knots;
  for (std::size_t i = 0; i < pairs.size();) {
    std::vector<double> same;
    const double x = pairs[i].first;
    for (; i < pairs.size() && pairs[i].first == x; ++i) {
      same.push_back(pairs[i].second);
    }
    knots.emplace_back(x, median(same));
  }
  return knots;
}

/// Replaces inner neighbours within a factor `close` by their mean: a mean of both coordinates lies
/// on the line wherever the cost is one.
Knots merge_close(const Knots& knots, double close) {
  if (knots.size() < 4) {
    return knots;
  }
  Knots merged = {knots.front()};
  for (std::size_t i = 1; i + 1 < knots.size();) {
    const double first = knots[i].first;
    double x = 0;
    double y = 0;
    double count = 0;
    for (; i + 1 < knots.size() && knots[i].first <= first * close; ++i) {
      x += knots[i].first;
      y += knots[i].second;
      ++count;
    }
    merged.emplace_back(x / count, y / count);
  }
  merged.push_back(knots.back());
  return merged;
}

void fit_coefficients(const Candidate& candidate,
                      const Op& op,
                      std::span<const SeriesPoint> points,
                      OpCost* cost) {
  std::vector<std::vector<double>> rows;
  std::vector<double> seconds;
  for (const SeriesPoint& point : points) {
    rows.push_back(feature_row(candidate, op, point.batch));
    seconds.push_back(point.seconds);
  }
  cost->features = candidate.features;
  cost->coefficients = relative_nnls(rows, seconds);
}

void fit_knots(const Candidate& candidate,
               const Op& op,
               std::span<const SeriesPoint> points,
               OpCost* cost) {
  Knots pairs;
  for (const SeriesPoint& point : points) {
    if (cost->form == CostForm::PerSampleTable) {
      pairs.emplace_back(static_cast<double>(point.batch.max_length),
                         point.seconds / static_cast<double>(point.batch.samples));
    } else {
      pairs.emplace_back(variable_of(op, point.batch), point.seconds);
    }
  }
  cost->knots = candidate.every_point ? medians(std::move(pairs)) : make_knots(std::move(pairs));
  if (candidate.monotone) {
    make_monotone(&cost->knots);
  }
}

/// What a GEMM could go with: its tokens, their blocks, and the waves of every usual tile at once.
/// Libraries switch tiles along the way, so that no single one fits a series from end to end.
std::vector<std::string> wave_features() {
  return {"1",
          "tokens",
          "row_tiles:64",
          "row_tiles:128",
          "row_tiles:256",
          "waves:64x64",
          "waves:64x128",
          "waves:128x64",
          "waves:128x128",
          "waves:128x256",
          "waves:256x128",
          "waves:64x256",
          "waves:256x64",
          "waves:128x192",
          "waves:192x128"};
}

/// Forms for a device that works in blocks and waves, where one line or one table is not enough.
void add_device_forms(const Op& op, std::int64_t processors, std::vector<Candidate>* candidates) {
  constexpr std::int64_t kSteps[] = {64, 128};
  if (op.op_class == OpClass::Attention) {
    const std::vector<std::string> features = {
        "1", "tokens", "tokens*length", "length_tiles:128", "length_tiles*length:128"};
    candidates->push_back({CostForm::Features, features});
    for (const std::int64_t step : kSteps) {
      candidates->push_back({CostForm::FeaturesRatio, features, false, step, 0});
    }
    return;
  }
  if (op.op_class != OpClass::Gemm) {
    candidates->push_back({CostForm::FeaturesRatio, {"1", "tokens"}, false, 0, 0});
    return;
  }
  for (const std::int64_t step : kSteps) {
    candidates->push_back({CostForm::FeaturesRatio, wave_features(), false, step, processors});
  }
}

}  // namespace

std::vector<double> feature_row(const Candidate& candidate, const Op& op, const BatchShape& batch) {
  std::vector<double> row;
  for (const std::string& feature : candidate.features) {
    row.push_back(feature_value(feature, op, batch));
  }
  return row;
}

std::vector<Candidate> candidates_for(const Op& op, std::int64_t processors) {
  std::vector<Candidate> candidates;
  if (op.rows == Rows::Elements) {
    return {{CostForm::Table, {}}};
  }
  if (is_dense_attention(op.op_class)) {
    candidates.push_back({CostForm::PerSampleTable, {}});
    candidates.push_back({CostForm::Features, {"1", "tokens", "tokens*length"}});
    return candidates;
  }
  if (op.op_class == OpClass::Attention) {
    candidates.push_back({CostForm::Features, {"1", "tokens", "tokens*length"}});
    if (processors > 0) {
      add_device_forms(op, processors, &candidates);
    }
    return candidates;
  }
  // A device works in tiles: sizes next to each other stand on either side of a step, and their
  // mean on neither. On a CPU they differ by noise.
  candidates.push_back({CostForm::Table, {}, processors > 0});
  if (op.rows == Rows::Samples) {
    candidates.push_back({CostForm::Features, {"1", "samples"}});
    return candidates;
  }
  candidates.push_back({CostForm::Features, {"1", "tokens"}});
  candidates.push_back({CostForm::Features, {"1", "tokens", "samples"}});
  if (processors > 0) {
    add_device_forms(op, processors, &candidates);
  }
  return candidates;
}

std::vector<Candidate> monotone_only(std::vector<Candidate> candidates) {
  std::erase_if(candidates, [](const Candidate& candidate) {
    return candidate.form == CostForm::FeaturesRatio || candidate.form == CostForm::RooflineRatio;
  });
  for (Candidate& candidate : candidates) {
    candidate.monotone = true;
  }
  return candidates;
}

void make_monotone(std::vector<std::pair<double, double>>* knots) {
  // Relative changes weigh as 1 / t^2, so that a run's value is sum(w t) / sum(w).
  struct Run {
    double weights;
    double weighted;
    std::size_t count;
    [[nodiscard]] double value() const { return weighted / weights; }
  };
  std::vector<Run> runs;
  for (const auto& [x, seconds] : *knots) {
    const double weight = seconds > 0 ? 1 / (seconds * seconds) : 1;
    runs.push_back({weight, weight * seconds, 1});
    while (runs.size() > 1 && runs[runs.size() - 2].value() > runs.back().value()) {
      const Run last = runs.back();
      runs.pop_back();
      runs.back() = {runs.back().weights + last.weights,
                     runs.back().weighted + last.weighted,
                     runs.back().count + last.count};
    }
  }
  auto knot = knots->begin();
  for (const Run& run : runs) {
    for (std::size_t i = 0; i < run.count; ++i, ++knot) {
      knot->second = run.value();
    }
  }
}

std::vector<std::pair<double, double>> make_knots(std::vector<std::pair<double, double>> pairs) {
  const Knots distinct = medians(std::move(pairs));
  Knots knots = merge_close(distinct, kClose);
  for (double close = kClose; knots.size() > kMaxKnots;) {
    close *= 1.02;
    knots = merge_close(distinct, close);
  }
  return knots;
}

std::vector<std::pair<double, double>> prune_knots(
    const std::vector<std::pair<double, double>>& knots, double tolerance) {
  Knots kept = {knots.front()};
  std::size_t start = 0;
  for (std::size_t end = 2; end < knots.size(); ++end) {
    const Knots line = {knots[start], knots[end]};
    const bool straight =
        std::all_of(knots.begin() + static_cast<std::ptrdiff_t>(start) + 1,
                    knots.begin() + static_cast<std::ptrdiff_t>(end),
                    [&](const auto& knot) {
                      return std::abs(interpolate(line, knot.first) / knot.second - 1) < tolerance;
                    });
    if (!straight) {
      start = end - 1;
      kept.push_back(knots[start]);
    }
  }
  if (knots.size() > 1) {
    kept.push_back(knots.back());
  }
  return kept;
}

OpCost fit_form(const Candidate& candidate, const Op& op, std::span<const SeriesPoint> points) {
  assert(!points.empty());
  OpCost cost;
  cost.op_class = op.op_class;
  cost.pass = op.pass;
  cost.dtype = op.dtype;
  cost.n = op.n;
  cost.k = op.k;
  cost.heads = op.heads;
  cost.head_dim = op.head_dim;
  cost.form = candidate.form;
  cost.samples = static_cast<int>(points.size());
  const bool table = cost.form == CostForm::Table || cost.form == CostForm::PerSampleTable;
  if (table) {
    fit_knots(candidate, op, points, &cost);
  } else if (cost.form == CostForm::FeaturesRatio) {
    fit_ratio_form(candidate.features, candidate.step, candidate.processors, op, points, &cost);
  } else {
    fit_coefficients(candidate, op, points, &cost);
  }
  cost.range_lo = cost.range_hi = variable_of(op, points.front().batch);
  for (const SeriesPoint& point : points) {
    const double x = cost.form == CostForm::PerSampleTable
                         ? static_cast<double>(point.batch.max_length)
                         : variable_of(op, point.batch);
    const bool first = &point == &points.front();
    cost.range_lo = first ? x : std::min(cost.range_lo, x);
    cost.range_hi = first ? x : std::max(cost.range_hi, x);
  }
  return cost;
}

}  // namespace stepsim
