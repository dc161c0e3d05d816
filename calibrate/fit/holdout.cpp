#include "calibrate/fit/holdout.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "costmodel/base/mapped.h"
#include "costmodel/compute/op_cost.h"

namespace stepsim {
namespace {

/// [point] Rank of its order variable among the distinct values, and those values.
struct Order {
  std::vector<std::size_t> rank;
  std::vector<double> values;
};

Order order_of(const Series& series) {
  Order order;
  for (const SeriesPoint& point : series.points) {
    const double x = order_variable(series.op, point.batch);
    if (order.values.empty() || order.values.back() < x) {
      order.values.push_back(x);
    }
    order.rank.push_back(order.values.size() - 1);
  }
  return order;
}

/// Fits on the points whose rank is not held out and adds the errors of the others.
void test_held_out(const FormCandidate& candidate,
                   const Series& series,
                   const Order& order,
                   const std::function<bool(std::size_t)>& held_out,
                   std::initializer_list<ErrorSum*> sums) {
  std::vector<SeriesPoint> kept;
  std::vector<SeriesPoint> tested;
  for (std::size_t i = 0; i < series.points.size(); ++i) {
    (held_out(order.rank[i]) ? tested : kept).push_back(series.points[i]);
  }
  if (kept.empty() || tested.empty()) {
    return;
  }
  const OpCost cost = fit_form(candidate, series.op, kept);
  for (const SeriesPoint& point : tested) {
    const double predicted = evaluate(cost, series.op, point.batch).seconds;
    for (ErrorSum* sum : sums) {
      sum->add(predicted, point.seconds);
    }
  }
}

}  // namespace

void ErrorSum::add(double predicted, double measured) {
  ++count_;
  relative_ += std::abs(predicted / measured - 1);
  predicted_ += predicted;
  measured_ += measured;
}

std::optional<double> ErrorSum::mean() const {
  return count_ > 0 ? std::optional(relative_ / count_) : std::nullopt;
}

std::optional<double> ErrorSum::bias() const {
  return count_ > 0 ? std::optional(predicted_ / measured_ - 1) : std::nullopt;
}

FitErrors held_out_errors(const FormCandidate& candidate, const Series& series) {
  const Order order = order_of(series);
  const std::size_t count = order.values.size();
  if (count < 4) {
    return {};
  }
  ErrorSum random;
  ErrorSum block;
  ErrorSum beyond;
  ErrorSum both;
  const auto inner = [count](std::size_t rank) { return rank > 0 && rank + 1 < count; };
  for (std::size_t fold = 0; fold < 5; ++fold) {
    test_held_out(candidate,
                  series,
                  order,
                  [&](std::size_t rank) { return inner(rank) && rank % 5 == fold; },
                  {&random, &both});
  }
  const std::size_t size = std::max<std::size_t>(1, (count - 2 + 7) / 8);
  for (std::size_t start = 1; start + 1 < count; start += size) {
    test_held_out(
        candidate,
        series,
        order,
        [&](std::size_t rank) { return inner(rank) && rank >= start && rank < start + size; },
        {&block, &both});
  }
  const double half = order.values.back() / 2;
  if (order.values[2] <= half) {  // Three values at least to extend a line from.
    test_held_out(candidate,
                  series,
                  order,
                  [&](std::size_t rank) { return order.values[rank] > half; },
                  {&beyond});
  }
  return {random.mean(), block.mean(), beyond.mean(), both.bias()};
}

double choice_score(const FormCandidate& candidate, const Series& series, const FitErrors& errors) {
  if (errors.random && errors.block) {
    return (*errors.random + *errors.block) / 2;
  }
  const OpCost cost = fit_form(candidate, series.op, series.points);
  ErrorSum sum;
  for (const SeriesPoint& point : series.points) {
    sum.add(evaluate(cost, series.op, point.batch).seconds, point.seconds);
  }
  return sum.mean().value_or(0);
}

std::size_t choose_form(const std::vector<FormCandidate>& candidates, std::span<const Series> all) {
  std::vector<double> scores;
  for (const FormCandidate& candidate : candidates) {
    const double sum = sum_of(all, [&](const Series& series) {
      return choice_score(candidate, series, held_out_errors(candidate, series));
    });
    scores.push_back(sum / static_cast<double>(all.size()));
  }
  const double lowest = *std::ranges::min_element(scores);
  std::size_t best = 0;
  // The tiny allowance lets the simpler form win when both are exact to rounding.
  while (scores[best] > lowest * 1.02 + 1e-9) {
    ++best;
  }
  return best;
}

OpCost fit_best(const Series& series, std::int64_t processors, bool monotone) {
  std::vector<FormCandidate> candidates = candidates_for(series.op, processors);
  offer_padding(series.op, series.points, candidates);
  if (monotone) {
    candidates = monotone_only(std::move(candidates));
  }
  const FormCandidate& best = candidates[choose_form(candidates, std::span(&series, 1))];
  OpCost cost = fit_form(best, series.op, series.points);
  cost.errors = held_out_errors(best, series);
  return cost;
}

}  // namespace stepsim
