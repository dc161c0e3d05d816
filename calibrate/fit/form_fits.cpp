#include "calibrate/fit/form_fits.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <set>

#include "calibrate/fit/features_ratio_fit.h"
#include "calibrate/fit/gemm_ratio_fit.h"
#include "calibrate/fit/knot_fit.h"
#include "calibrate/fit/nnls.h"
#include "costmodel/base/mapped.h"
#include "costmodel/compute/cost_features.h"

namespace stepsim {
namespace {

using Candidates = std::vector<FormCandidate>;
using OpPoints = std::span<const OpPoint>;

/// How one form of cost is fitted. How a form is named, priced, read and written stands in
/// costmodel/compute/cost_form.cpp.
struct FormFit {
  CostForm form;
  bool can_be_monotone;  ///< Whether its fit can be kept from falling when the batch grows.
  /// Appends what is worth trying for an op measured at its own sizes; null: nothing ever is.
  void (*offer_measured)(const Op& op,
                         std::int64_t processors,
                         std::vector<FormCandidate>& candidates);
  /// Appends what is worth trying for the sizes of a class that were never measured, given the
  /// points of those that were (at least one); null: nothing ever is.
  void (*offer_unmeasured)(std::span<const OpPoint> points,
                           std::int64_t processors,
                           std::vector<FormCandidate>& candidates);
  /// Fills in the form's members of a cost whose class and form are set. There is at least one
  /// point.
  void (*fit)(const FormCandidate& candidate, std::span<const OpPoint> points, OpCost& cost);
};

const std::vector<std::string> kRoofline = {"1", "flops", "bytes"};

bool is_attention(const Op& op) {
  return op.op_class == OpClass::Attention || is_dense_attention(op.op_class);
}

// ---- Table

void offer_table(const Op& op, std::int64_t processors, Candidates& candidates) {
  if (is_attention(op)) {
    return;
  }
  // A device works in tiles: sizes next to each other stand on either side of a step, and their
  // mean on neither. On a CPU they differ by noise.
  const bool every_point = op.rows != RowUnit::Elements && processors > 0;
  candidates.push_back({CostForm::Table, {}, every_point});
}

/// Copies of a few hundred kilobytes fit into a cache, larger ones do not: no line fits both.
void offer_table_of_elements(OpPoints points, std::int64_t /*processors*/, Candidates& candidates) {
  if (points.front().op->rows == RowUnit::Elements && points.size() > 1) {
    candidates.push_back({CostForm::Table, {}});
  }
}

Knots fitted_knots(const FormCandidate& candidate, Knots pairs) {
  Knots knots =
      candidate.every_point ? median_knots(std::move(pairs)) : make_knots(std::move(pairs));
  if (candidate.monotone) {
    make_monotone(&knots);
  }
  return knots;
}

void fit_table(const FormCandidate& candidate, OpPoints points, OpCost& cost) {
  cost.knots =
      fitted_knots(candidate, mapped(points, [](const OpPoint& one) {
                     return std::pair(variable_of(*one.op, one.point.batch), one.point.seconds);
                   }));
}

// ---- PerSampleTable

void offer_per_sample_table(const Op& op, std::int64_t /*processors*/, Candidates& candidates) {
  if (is_dense_attention(op.op_class)) {
    candidates.push_back({CostForm::PerSampleTable, {}});
  }
}

void fit_per_sample_table(const FormCandidate& candidate, OpPoints points, OpCost& cost) {
  cost.knots =
      fitted_knots(candidate, mapped(points, [](const OpPoint& one) {
                     const BatchShape& batch = one.point.batch;
                     return std::pair(static_cast<double>(batch.max_length),
                                      one.point.seconds / static_cast<double>(batch.samples));
                   }));
}

// ---- Features, Roofline

std::vector<std::string> attention_features() {
  return {"1", "tokens", "tokens*length", "length_tiles:128", "length_tiles*length:128"};
}

void offer_features(const Op& op, std::int64_t processors, Candidates& candidates) {
  if (op.rows == RowUnit::Elements) {
    return;
  }
  if (is_attention(op)) {
    candidates.push_back({CostForm::Features, {"1", "tokens", "tokens*length"}});
    if (processors > 0 && !is_dense_attention(op.op_class)) {
      candidates.push_back({CostForm::Features, attention_features()});
    }
  } else if (op.rows == RowUnit::Samples) {
    candidates.push_back({CostForm::Features, {"1", "samples"}});
  } else {
    candidates.push_back({CostForm::Features, {"1", "tokens"}});
    candidates.push_back({CostForm::Features, {"1", "tokens", "samples"}});
  }
}

void offer_features_of_elements(OpPoints points,
                                std::int64_t /*processors*/,
                                Candidates& candidates) {
  if (points.front().op->rows != RowUnit::Elements) {
    return;
  }
  if (points.size() < 2) {
    candidates.push_back({CostForm::Features, {"elements"}});
  } else {
    candidates.push_back({CostForm::Features, {"1", "elements"}});
  }
}

void offer_roofline(OpPoints points, std::int64_t /*processors*/, Candidates& candidates) {
  if (points.front().op->rows != RowUnit::Elements) {
    candidates.push_back({CostForm::Roofline, kRoofline});
  }
}

void fit_sum(const FormCandidate& candidate, OpPoints points, OpCost& cost) {
  std::vector<std::vector<double>> rows;
  std::vector<double> seconds;
  for (const auto& [op, point, series] : points) {
    rows.push_back(feature_row(candidate, *op, point.batch));
    seconds.push_back(point.seconds);
  }
  cost.features = candidate.features;
  cost.coefficients = relative_nnls(rows, seconds);
}

// ---- FeaturesRatio

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

void offer_features_ratio(const Op& op, std::int64_t processors, Candidates& candidates) {
  constexpr std::array<std::int64_t, 2> kSteps = {64, 128};
  const bool tiled = op.op_class == OpClass::Attention || op.op_class == OpClass::Gemm;
  if (processors <= 0 || !tiled || op.rows == RowUnit::Elements || op.rows == RowUnit::Samples) {
    return;
  }
  const bool waves = op.op_class == OpClass::Gemm;
  for (const std::int64_t step : kSteps) {
    candidates.push_back({CostForm::FeaturesRatio,
                          waves ? wave_features() : attention_features(),
                          false,
                          step,
                          waves ? processors : 0});
  }
}

// ---- RooflineRatio

/// The GEMM of each point, and the first estimate of its time.
struct FirstEstimates {
  std::vector<GemmPoint> gemms;
  std::vector<double> seconds;
};

FirstEstimates first_estimates(const FormCandidate& candidate,
                               OpPoints points,
                               const OpCost& cost) {
  FirstEstimates first;
  for (const auto& [op, point, series] : points) {
    first.gemms.push_back(gemm_point(*op, point));
    first.seconds.push_back(dot(cost.coefficients, feature_row(candidate, *op, point.batch)));
  }
  return first;
}

void offer_roofline_ratio(OpPoints points, std::int64_t processors, Candidates& candidates) {
  constexpr std::size_t kFewestSizes = 8;
  constexpr std::size_t kPointsPerWeight = 4;
  std::set<std::size_t> sizes;
  for (const OpPoint& point : points) {
    sizes.insert(point.series);
  }
  if (points.front().op->op_class == OpClass::Gemm && processors > 0 &&
      sizes.size() >= kFewestSizes && points.size() >= kPointsPerWeight * gemm_ratio_width()) {
    FormCandidate candidate{CostForm::RooflineRatio, kRoofline};
    OpCost sum;
    fit_sum(candidate, points, sum);
    const FirstEstimates first = first_estimates(candidate, points, sum);
    candidate.wave_counts = wave_counts(first.gemms, first.seconds);
    candidates.push_back(std::move(candidate));
  }
}

void fit_roofline_ratio(const FormCandidate& candidate, OpPoints points, OpCost& cost) {
  fit_sum(candidate, points, cost);
  const FirstEstimates first = first_estimates(candidate, points, cost);
  cost.gemm_ratio = fit_gemm_ratio(first.gemms, first.seconds, candidate.wave_counts);
}

// clang-format off
/// form, can be kept monotone?, offered for measured sizes, for sizes never measured, fit
constexpr std::array<FormFit, 6> kFits = {{
    {CostForm::Table, true, offer_table, offer_table_of_elements, fit_table},
    {CostForm::PerSampleTable, true, offer_per_sample_table, nullptr, fit_per_sample_table},
    {CostForm::Features, true, offer_features, offer_features_of_elements, fit_sum},
    {CostForm::Roofline, true, nullptr, offer_roofline, fit_sum},
    {CostForm::FeaturesRatio, false, offer_features_ratio, nullptr, fit_features_ratio},
    {CostForm::RooflineRatio, false, nullptr, offer_roofline_ratio, fit_roofline_ratio},
}};
// clang-format on

const FormFit& fit_of(CostForm form) {
  return *std::ranges::find_if(kFits, [form](const FormFit& fit) { return fit.form == form; });
}

}  // namespace

std::vector<FormCandidate> candidates_for(const Op& op, std::int64_t processors) {
  Candidates candidates;
  for (const FormFit& fit : kFits) {
    if (fit.offer_measured != nullptr) {
      fit.offer_measured(op, processors, candidates);
    }
  }
  return candidates;
}

void offer_padding(const Op& op,
                   std::span<const SeriesPoint> points,
                   std::vector<FormCandidate>& candidates) {
  const auto padded = std::ranges::count_if(
      points, [](const SeriesPoint& point) { return point.batch.has_padding(); });
  if (op.op_class != OpClass::Attention || op.varlen || padded == 0 ||
      padded == std::ssize(points)) {
    return;
  }
  const std::size_t without = candidates.size();
  for (std::size_t i = 0; i < without; ++i) {
    candidates.push_back(candidates[i]);
    candidates.back().features.emplace_back("padded*length^2");
  }
}

std::vector<FormCandidate> unmeasured_candidates(OpPoints points, std::int64_t processors) {
  Candidates candidates;
  for (const FormFit& fit : kFits) {
    if (fit.offer_unmeasured != nullptr) {
      fit.offer_unmeasured(points, processors, candidates);
    }
  }
  // Where sizes are to be bridged, a formula is simpler than a table.
  std::stable_partition(candidates.begin(), candidates.end(), [](const FormCandidate& candidate) {
    return !candidate.features.empty();
  });
  return candidates;
}

std::vector<FormCandidate> monotone_only(std::vector<FormCandidate> candidates) {
  std::erase_if(candidates, [](const FormCandidate& candidate) {
    return !fit_of(candidate.form).can_be_monotone;
  });
  for (FormCandidate& candidate : candidates) {
    candidate.monotone = true;
  }
  return candidates;
}

std::vector<double> feature_row(const FormCandidate& candidate,
                                const Op& op,
                                const BatchShape& batch) {
  return mapped(candidate.features, [&](const std::string& feature) {
    return feature_value(feature, op, batch, candidate.processors);
  });
}

OpCost fit_form(const FormCandidate& candidate, OpPoints points) {
  assert(!points.empty());
  const Op& op = *points.front().op;
  OpCost cost;
  cost.op_class = op.op_class;
  cost.pass = op.pass;
  cost.dtype = op.dtype;
  cost.form = candidate.form;
  cost.samples = static_cast<int>(points.size());
  fit_of(candidate.form).fit(candidate, points, cost);
  cost.range_lo = cost.range_hi = range_variable(cost.form, op, points.front().point.batch);
  for (const OpPoint& point : points) {
    const double x = range_variable(cost.form, *point.op, point.point.batch);
    cost.range_lo = std::min(cost.range_lo, x);
    cost.range_hi = std::max(cost.range_hi, x);
  }
  return cost;
}

OpCost fit_form(const FormCandidate& candidate, const Op& op, std::span<const SeriesPoint> points) {
  const std::vector<OpPoint> of_op = mapped(points, [&](const SeriesPoint& point) {
    return OpPoint{&op, point};
  });
  OpCost cost = fit_form(candidate, of_op);
  cost.n = op.n;
  cost.k = op.k;
  cost.heads = op.heads;
  cost.head_dim = op.head_dim;
  return cost;
}

}  // namespace stepsim
