#include "calibrate/fit/series.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "calibrate/samples/statistics.h"
#include "costmodel/base/mapped.h"
#include "costmodel/compute/cost_features.h"

namespace stepsim {
namespace {

constexpr double kShortest = 1e-9;

auto entry_key(const Op& op) {
  return std::make_tuple(op.op_class, op.pass, op.dtype, op.n, op.k, op.heads, op.head_dim);
}

void merge_points(Series* series) {
  const double seconds = median(mapped(series->points, &SeriesPoint::seconds));
  series->points = {{series->points.front().batch, seconds}};
}

}  // namespace

bool is_dense_attention(OpClass op_class) {
  return op_class == OpClass::AttentionScores || op_class == OpClass::Softmax ||
         op_class == OpClass::AttentionContext;
}

double order_variable(const Op& op, const BatchShape& batch) {
  return is_dense_attention(op.op_class) ? static_cast<double>(batch.max_length)
                                         : variable_of(op, batch);
}

std::vector<Series> make_series(const std::vector<OpSample>& samples) {
  std::vector<Series> all;
  std::map<decltype(entry_key(Op())), std::size_t> index;
  for (const OpSample& sample : samples) {
    const auto [place, is_new] = index.emplace(entry_key(sample.op), all.size());
    if (is_new) {
      all.push_back({sample.op, {}});
    }
    Op& op = all[place->second].op;
    if (op.rows == RowUnit::Samples && sample.op.rows == RowUnit::Tokens) {
      op = sample.op;
      all[place->second].points.clear();
    } else if (op.rows != sample.op.rows) {
      continue;
    }
    all[place->second].points.push_back({sample.batch, std::max(sample.seconds, kShortest)});
  }
  for (Series& series : all) {
    if (series.op.rows == RowUnit::Elements) {
      merge_points(&series);
    }
    const Op& op = series.op;
    std::ranges::stable_sort(series.points, [&op](const SeriesPoint& a, const SeriesPoint& b) {
      return order_variable(op, a.batch) < order_variable(op, b.batch);
    });
  }
  return all;
}

}  // namespace stepsim
