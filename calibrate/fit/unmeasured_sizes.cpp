#include "calibrate/fit/unmeasured_sizes.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "calibrate/fit/form_fits.h"
#include "calibrate/fit/holdout.h"
#include "costmodel/compute/op_cost.h"

namespace stepsim {
namespace {

using PointGroup = std::vector<OpPoint>;

constexpr std::size_t kMaxBlocks = 12;

template <typename HeldOut>
void test_rows(const FormCandidate& candidate,
               const PointGroup& rows,
               const HeldOut& held_out,
               ErrorSum* sum,
               ErrorSum* both) {
  PointGroup kept;
  PointGroup tested;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    (held_out(i) ? tested : kept).push_back(rows[i]);
  }
  if (kept.empty() || tested.empty()) {
    return;
  }
  const OpCost cost = fit_form(candidate, kept);
  for (const OpPoint& row : tested) {
    const double predicted = evaluate(cost, *row.op, row.point.batch).seconds;
    sum->add(predicted, row.point.seconds);
    both->add(predicted, row.point.seconds);
  }
}

FitErrors unmeasured_errors(const FormCandidate& candidate, const PointGroup& rows) {
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
OpCost best_for_unmeasured(const PointGroup& rows, std::int64_t processors) {
  OpCost best;
  double lowest = std::numeric_limits<double>::infinity();
  for (const FormCandidate& candidate : unmeasured_candidates(rows, processors)) {
    OpCost cost = fit_form(candidate, rows);
    cost.errors = unmeasured_errors(candidate, rows);
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

std::vector<OpCost> fit_unmeasured_sizes(const std::vector<Series>& all, std::int64_t processors) {
  std::map<std::tuple<OpClass, Pass, Dtype>, PointGroup> groups;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Op& op = all[i].op;
    if (has_no_sizes(op)) {
      continue;  // Its own entry prices every size (collate).
    }
    for (const SeriesPoint& point : all[i].points) {
      groups[{op.op_class, op.pass, op.dtype}].push_back({&op, point, i});
    }
  }
  std::vector<OpCost> costs;
  for (const auto& [key, rows] : groups) {
    const bool several = rows.front().series != rows.back().series;
    if (rows.front().op->rows != RowUnit::Elements && !several && rows.size() < 8) {
      continue;
    }
    costs.push_back(best_for_unmeasured(rows, processors));
  }
  return costs;
}

}  // namespace stepsim
