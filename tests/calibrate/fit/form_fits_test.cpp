#include "calibrate/fit/form_fits.h"

#include <algorithm>
#include <map>

#include <doctest/doctest.h>

#include "calibrate/fit/holdout.h"
#include "costmodel/model/op_flops.h"
#include "costmodel/records/profile.h"
#include "tests/approx.h"
#include "tests/costmodel/helpers.h"

using stepsim::test::Approx;

namespace stepsim {
namespace {

constexpr std::int64_t kProcessors = 84;

Op op_of(OpClass op_class, std::int64_t n, std::int64_t k) {
  Op op;
  op.op_class = op_class;
  op.n = n;
  op.k = k;
  return op;
}

Op attention_of(OpClass op_class) {
  Op op;
  op.op_class = op_class;
  op.heads = op.kv_heads = 4;
  op.head_dim = 16;
  return op;
}

/// Every combination of 1, 2 and 4 samples with lengths from 64 to 1024, in time proportional to
/// operations and bytes, which every form can express.
Series series_of(const Op& op) {
  Series series{op, {}};
  for (std::int64_t length = 64; length <= 1024; length += 40) {
    for (const std::int64_t samples : {1, 2, 4}) {
      const std::vector<std::int64_t> lengths(static_cast<std::size_t>(samples), length);
      const BatchShape batch = batch_shape(lengths);
      series.points.push_back({batch, 1e-12 * op_flops(op, batch) + 1e-10 * op_bytes(op, batch)});
    }
  }
  return series;
}

struct Fitted {
  OpCost cost;
  Op op;
  SeriesPoint point;  ///< One of those that were fitted.
};

using FittedForms = std::map<CostForm, Fitted>;

void fit_measured(const Op& op, FittedForms& fitted) {
  const Series series = series_of(op);
  for (const FormCandidate& candidate : candidates_for(op, kProcessors)) {
    fitted[candidate.form] = {
        fit_form(candidate, op, series.points), op, series.points[series.points.size() / 2]};
  }
}

void fit_unmeasured(const std::vector<Op>& ops, FittedForms& fitted) {
  std::vector<OpPoint> points;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    for (const SeriesPoint& point : series_of(ops[i]).points) {
      points.push_back({&ops[i], point, i});
    }
  }
  for (const FormCandidate& candidate : unmeasured_candidates(points, kProcessors)) {
    const OpPoint& middle = points[points.size() / 2];
    fitted[candidate.form] = {fit_form(candidate, points), *middle.op, middle.point};
  }
}

}  // namespace

TEST_CASE("fused attention has a term for padding where batches with and without were measured") {
  const Op op = attention_of(OpClass::Attention);
  // A mask that is a tensor doubles what goes with the square of the length.
  const auto seconds_of = [](const BatchShape& batch) {
    const auto length = static_cast<double>(batch.max_length);
    const auto tokens = static_cast<double>(batch.padded_tokens());
    return 1e-5 + 1e-9 * tokens + (batch.has_padding() ? 2e-11 : 1e-11) * tokens * length;
  };
  const auto batch_of = [](std::int64_t samples, std::int64_t length, bool padded) {
    std::vector<std::int64_t> lengths(static_cast<std::size_t>(samples), length);
    lengths.back() -= padded ? length / 4 : 0;
    return batch_shape(lengths);
  };
  Series series{op, {}};
  for (std::int64_t length = 64; length <= 1024; length += 40) {
    for (const std::int64_t samples : {1, 2, 4}) {
      const BatchShape batch = batch_of(samples, length, samples > 1);
      series.points.push_back({batch, seconds_of(batch)});
    }
  }
  const OpCost cost = fit_best(series, kProcessors);
  CHECK(since_version(cost) == kPaddingVersion);
  for (const bool padded : {false, true}) {
    const BatchShape batch = batch_of(4, 500, padded);
    CHECK(evaluate(cost, op, batch).seconds == Approx(seconds_of(batch)).epsilon(0.02));
  }
  // Where all have padding there is nothing to tell apart, and padding has no term of its own.
  std::erase_if(series.points, [](const SeriesPoint& point) { return !point.batch.has_padding(); });
  const OpCost same = fit_best(series, kProcessors);
  CHECK(std::ranges::count(same.features, "padded*length^2") == 0);
  CHECK(evaluate(same, op, batch_of(4, 500, false)).seconds ==
        Approx(seconds_of(batch_of(4, 500, true))).epsilon(0.02));
}

TEST_CASE("every form of cost is offered by some fit, prices, and reads back as it was written") {
  FittedForms fitted;
  fit_measured(op_of(OpClass::Gemm, 512, 256), fitted);
  fit_measured(attention_of(OpClass::AttentionScores), fitted);
  fit_measured(attention_of(OpClass::Attention), fitted);
  std::vector<Op> gemms;
  for (const std::int64_t n : {512, 768, 1024, 2048}) {
    for (const std::int64_t k : {256, 512, 1024}) {
      gemms.push_back(op_of(OpClass::Gemm, n, k));
    }
  }
  fit_unmeasured(gemms, fitted);
  const std::string path = test::fresh_folder() + "/profile.json";
  for (const CostFormRow& row : cost_form_rows()) {
    CAPTURE(row.name);
    CHECK(parse_cost_form(row.name) == row.form);
    CHECK_FALSE(row.title.empty());
    REQUIRE(fitted.contains(row.form));
    const auto& [cost, op, point] = fitted.at(row.form);
    CHECK(evaluate(cost, op, point.batch).seconds == Approx(point.seconds).epsilon(0.05));
    Profile profile;
    profile.name = profile.device = profile.backend = "x";
    profile.ops = {cost};
    write_profile(path, profile);
    CHECK(read_profile(path) == profile);
    const std::string text = test::content(path);
    CHECK(text.find("\"form\":\"" + std::string(row.name) + "\"") != std::string::npos);
    CHECK(text.find("stepsim-profile/" + std::to_string(since_version(cost))) != std::string::npos);
    CHECK(since_version(cost) >= row.since_version);
  }
}

}  // namespace stepsim
