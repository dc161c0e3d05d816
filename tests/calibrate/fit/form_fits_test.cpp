#include "calibrate/fit/form_fits.h"

#include <map>

#include <doctest/doctest.h>

#include "costmodel/model/op_flops.h"
#include "costmodel/records/profile.h"
#include "tests/costmodel/helpers.h"

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
  for (const Candidate& candidate : candidates_for(op, kProcessors)) {
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
  for (const Candidate& candidate : unmeasured_candidates(points, kProcessors)) {
    const OpPoint& middle = points[points.size() / 2];
    fitted[candidate.form] = {fit_form(candidate, points), *middle.op, middle.point};
  }
}

}  // namespace

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
    CHECK(evaluate(cost, op, point.batch).seconds == doctest::Approx(point.seconds).epsilon(0.05));
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

TEST_CASE("every form of cost has one row that fits it") {
  REQUIRE(form_fits().size() == cost_form_rows().size());
  for (std::size_t i = 0; i < form_fits().size(); ++i) {
    CAPTURE(i);
    CHECK(form_fits()[i].form == cost_form_rows()[i].form);
    const bool has_fit = form_fits()[i].fit != nullptr;
    CHECK(has_fit);
  }
}

}  // namespace stepsim
