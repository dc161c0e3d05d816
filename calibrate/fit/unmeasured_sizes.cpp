#include "calibrate/fit/unmeasured_sizes.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "calibrate/fit/gemm_ratio_fit.h"
#include "calibrate/fit/holdout.h"
#include "calibrate/fit/nnls.h"
#include "costmodel/compute/op_cost.h"

namespace stepsim {
namespace {

/// One point with the op it belongs to.
struct Row {
  const Op* op = nullptr;
  SeriesPoint point;
  std::size_t series = 0;
};

using Group = std::vector<Row>;

/// So many series, and points for each weight, let a ratio be fitted.
constexpr std::size_t kRatioSeries = 8;
constexpr std::size_t kRatioPoints = 4;
constexpr std::size_t kMaxBlocks = 12;

std::size_t series_count(const Group& group) {
  std::set<std::size_t> series;
  for (const Row& row : group) {
    series.insert(row.series);
  }
  return series.size();
}

/// The forms of a general entry, simplest first.
std::vector<Candidate> general_forms(const Group& group, std::int64_t processors) {
  const Op& op = *group.front().op;
  if (op.rows != Rows::Elements) {
    const std::vector<std::string> features = {"1", "flops", "bytes"};
    std::vector<Candidate> forms = {{CostForm::Roofline, features}};
    if (op.op_class == OpClass::Gemm && processors > 0 && series_count(group) >= kRatioSeries &&
        group.size() >= kRatioPoints * gemm_ratio_width()) {
      forms.push_back({CostForm::RooflineRatio, features, false, 0, processors});
    }
    return forms;
  }
  if (group.size() < 2) {
    return {{CostForm::Features, {"elements"}}};
  }
  // Copies of a few hundred kilobytes are in a cache, others are not: no line fits both.
  return {{CostForm::Features, {"1", "elements"}}, {CostForm::Table, {}}};
}

GemmPoint gemm_point(const Op& op, const SeriesPoint& point) {
  return {std::max(rows_of(op, point.batch), 1.0),
          static_cast<double>(op.n),
          static_cast<double>(op.k),
          point.seconds};
}

GemmRatio fit_ratio(const Group& rows,
                    const std::vector<std::vector<double>>& features,
                    const std::vector<double>& coefficients,
                    std::int64_t processors) {
  std::vector<GemmPoint> points;
  std::vector<double> first;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    points.push_back(gemm_point(*rows[i].op, rows[i].point));
    first.push_back(dot(coefficients, features[i]));
  }
  return fit_gemm_ratio(points, first, processors);
}

OpCost fit_rows(const Candidate& candidate, const Group& rows) {
  std::vector<std::vector<double>> features;
  std::vector<double> seconds;
  OpCost cost;
  cost.op_class = rows.front().op->op_class;
  cost.pass = rows.front().op->pass;
  cost.dtype = rows.front().op->dtype;
  cost.form = candidate.form;
  cost.features = candidate.features;
  cost.samples = static_cast<int>(rows.size());
  cost.range_lo = cost.range_hi = variable_of(*rows.front().op, rows.front().point.batch);
  for (const Row& row : rows) {
    features.push_back(feature_row(candidate, *row.op, row.point.batch));
    seconds.push_back(row.point.seconds);
    const double x = variable_of(*row.op, row.point.batch);
    cost.range_lo = std::min(cost.range_lo, x);
    cost.range_hi = std::max(cost.range_hi, x);
  }
  if (candidate.form == CostForm::Table) {
    std::vector<std::pair<double, double>> pairs;
    for (const Row& row : rows) {
      pairs.emplace_back(variable_of(*row.op, row.point.batch), row.point.seconds);
    }
    cost.knots = make_knots(std::move(pairs));
  } else {
    cost.coefficients = relative_nnls(features, seconds);
  }
  if (candidate.form == CostForm::RooflineRatio) {
    cost.gemm_ratio = fit_ratio(rows, features, cost.coefficients, candidate.processors);
  }
  return cost;
}

template <typename HeldOut>
void test_rows(const Candidate& candidate,
               const Group& rows,
               const HeldOut& held_out,
               ErrorSum* sum,
               ErrorSum* both) {
  Group kept;
  Group tested;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    (held_out(i) ? tested : kept).push_back(rows[i]);
  }
  if (kept.empty() || tested.empty()) {
    return;
  }
  const OpCost cost = fit_rows(candidate, kept);
  for (const Row& row : tested) {
    const double predicted = evaluate(cost, *row.op, row.point.batch).seconds;
    sum->add(predicted, row.point.seconds);
    both->add(predicted, row.point.seconds);
  }
}

FitErrors general_errors(const Candidate& candidate, const Group& rows) {
  ErrorSum random;
  ErrorSum block;
  ErrorSum both;
  if (rows.size() >= 5) {
    for (std::size_t fold = 0; fold < 5; ++fold) {
      test_rows(
          candidate, rows, [fold](std::size_t i) { return i % 5 == fold; }, &random, &both);
    }
  }
  std::vector<std::size_t> order;  // [row] Its series, counted from 0.
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool next = i > 0 && rows[i].series != rows[i - 1].series;
    order.push_back(i == 0 ? 0 : order.back() + (next ? 1 : 0));
  }
  const std::size_t blocks = std::min(order.back() + 1, kMaxBlocks);
  for (std::size_t left_out = 0; blocks > 1 && left_out < blocks; ++left_out) {
    test_rows(
        candidate,
        rows,
        [&](std::size_t i) { return order[i] % blocks == left_out; },
        &block,
        &both);
  }
  return {random.mean(), block.mean(), std::nullopt, both.bias()};
}

/// The form with the smallest error on a size left out.
OpCost best_general(const Group& rows, std::int64_t processors) {
  OpCost best;
  double lowest = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : general_forms(rows, processors)) {
    OpCost cost = fit_rows(candidate, rows);
    cost.errors = general_errors(candidate, rows);
    const double error = cost.errors.block.value_or(0);
    // The allowance lets the simpler form win when both are exact to rounding.
    if (error + 1e-9 < lowest * 0.98) {
      lowest = error;
      best = std::move(cost);
    }
  }
  return best;
}

bool has_no_sizes(const Op& op) {
  return op.n == 0 && op.k == 0 && op.heads == 0 && op.head_dim == 0;
}

}  // namespace

std::int64_t find_processors(const std::vector<Series>& all) {
  std::vector<GemmPoint> points;
  for (const Series& series : all) {
    for (const SeriesPoint& point : series.points) {
      if (series.op.op_class == OpClass::Gemm && series.op.n > 0) {
        points.push_back(gemm_point(series.op, point));
      }
    }
  }
  return find_processors(points);
}

std::vector<OpCost> fit_unmeasured_sizes(const std::vector<Series>& all, std::int64_t processors) {
  std::map<std::tuple<OpClass, Pass, Dtype>, Group> groups;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Op& op = all[i].op;
    if (has_no_sizes(op)) {
      continue;  // Its own entry is the general one (collate).
    }
    for (const SeriesPoint& point : all[i].points) {
      groups[{op.op_class, op.pass, op.dtype}].push_back({&op, point, i});
    }
  }
  std::vector<OpCost> costs;
  for (const auto& [key, rows] : groups) {
    const bool several = rows.front().series != rows.back().series;
    if (rows.front().op->rows != Rows::Elements && !several && rows.size() < 8) {
      continue;
    }
    costs.push_back(best_general(rows, processors));
  }
  return costs;
}

}  // namespace stepsim
