#include "costmodel/compute/op_cost.h"

#include <cmath>
#include <random>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "costmodel/compute/cost_features.h"
#include "costmodel/compute/tile_feature.h"
#include "tests/approx.h"
#include "tests/costmodel/helpers.h"

using namespace stepsim;
using stepsim::test::Approx;
using stepsim::test::error_of;

namespace {

Op gemm(std::int64_t n, std::int64_t k) {
  Op op;
  op.n = n;
  op.k = k;
  return op;
}

Op attention_op(OpClass op_class, std::int64_t heads, std::int64_t head_dim) {
  Op op;
  op.op_class = op_class;
  op.heads = heads;
  op.kv_heads = heads;
  op.head_dim = head_dim;
  return op;
}

/// Two samples of 100 and 50 tokens: 200 padded, 150 useful, sum of squares 12,500.
BatchShape two_samples() {
  const std::vector<std::int64_t> lengths = {100, 50};
  return batch_shape(lengths);
}

OpCost table(std::vector<std::pair<double, double>> knots) {
  OpCost cost;
  cost.range_lo = knots.front().first;
  cost.range_hi = knots.back().first;
  cost.knots = std::move(knots);
  return cost;
}

}  // namespace

TEST_CASE("the shape of a batch follows from its lengths") {
  const BatchShape shape = two_samples();
  CHECK(shape.samples == 2);
  CHECK(shape.max_length == 100);
  CHECK(shape.useful_tokens == 150);
  CHECK(shape.padded_tokens() == 200);
  CHECK(shape.sum_squares == 12500);
  CHECK(batch_shape({}) == BatchShape{});
}

TEST_CASE("an op's variable is its rows, or its elements") {
  Op op = gemm(8, 4);
  CHECK(variable_of(op, two_samples()) == 200);
  op.varlen = true;
  CHECK(variable_of(op, two_samples()) == 150);
  op.rows = RowUnit::Samples;
  CHECK(variable_of(op, two_samples()) == 2);
  CHECK(variable_of(elements_op(OpClass::Optimizer, 77, Dtype::F32), two_samples()) == 77);
  Op collate = collate_op();
  collate.varlen = true;
  CHECK(variable_of(collate, two_samples()) == 200);
}

TEST_CASE("features are named by what they count") {
  const BatchShape batch = two_samples();
  Op op = attention_op(OpClass::Attention, 4, 12);
  CHECK(feature_value("1", op, batch) == 1);
  CHECK(feature_value("samples", op, batch) == 2);
  CHECK(feature_value("tokens", op, batch) == 200);
  CHECK(feature_value("samples*length", op, batch) == 200);
  CHECK(feature_value("tokens*length", op, batch) == 20000);
  CHECK(feature_value("samples*length^2", op, batch) == 20000);
  op.varlen = true;
  CHECK(feature_value("tokens", op, batch) == 150);
  CHECK(feature_value("tokens*length", op, batch) == 12500);
  CHECK(feature_value("elements", gemm(8, 4), batch) == 1600);
  CHECK(feature_value("elements", elements_op(OpClass::Optimizer, 77, Dtype::F32), batch) == 77);
  CHECK(error_of([&] {
          (void)feature_value("tokns", op, batch);
        }).find("unknown feature 'tokns'; did you mean 'tokens'?") == 0);
}

TEST_CASE("every feature name has a value") {
  CHECK(feature_names().size() == 11);
  for (const auto& name : feature_names()) {
    CAPTURE(name);
    Op op = attention_op(OpClass::Attention, 2, 8);
    op.n = 8;
    op.varlen = true;
    BatchShape batch = two_samples();
    batch.empty_blocks = 3;
    if (name == "padded*length^2") {
      CHECK(feature_value(name, op, batch) == 0);
      op.varlen = false;
      CHECK(feature_value(name, op, batch) == 20000);
      batch.useful_tokens = batch.padded_tokens();
      CHECK(feature_value(name, op, batch) == 0);
      continue;
    }
    CHECK(feature_value(name, op, batch) > 0);
    if (name == "empty_blocks") {
      CHECK(feature_value(name, op, batch) == 2 * 3);
      op.varlen = false;
      CHECK(feature_value(name, op, batch) == 0);
    }
  }
}

TEST_CASE("a GEMM counts two operations a multiply-add, in each of its three passes") {
  Op op = gemm(144, 48);
  CHECK(op_flops(op, two_samples()) == 2.0 * 200 * 144 * 48);
  op.pass = Pass::WeightGradient;
  CHECK(op_flops(op, two_samples()) == 2.0 * 200 * 144 * 48);
  CHECK(op_bytes(op, two_samples()) == 4.0 * (200 * 48 + 144 * 48 + 200 * 144));
  op.dtype = Dtype::Bf16;
  CHECK(op_bytes(op, two_samples()) == 2.0 * (200 * 48 + 144 * 48 + 200 * 144));
}

TEST_CASE("attention counts 4 h d operations a pair of positions, 2.5 times that backward") {
  Op op = attention_op(OpClass::Attention, 4, 12);
  CHECK(op_flops(op, two_samples()) == 4.0 * 20000 * 48);
  op.causal = true;
  CHECK(op_flops(op, two_samples()) == 4.0 * (20000 + 200) / 2 * 48);
  op.varlen = true;
  CHECK(op_flops(op, two_samples()) == 4.0 * (12500 + 150) / 2 * 48);
  op.pass = Pass::Backward;
  CHECK(op_flops(op, two_samples()) == 10.0 * (12500 + 150) / 2 * 48);
}

TEST_CASE("a window as long as the batch changes nothing, a short one saves") {
  Op op = attention_op(OpClass::Attention, 1, 1);
  op.causal = true;
  const double all = op_flops(op, two_samples());
  op.window = 100;
  CHECK(op_flops(op, two_samples()) == all);
  op.window = 10;
  // 2 samples of 100 rows: 10 pairs each, less 9 + 8 + ... + 1 at the start.
  CHECK(op_flops(op, two_samples()) == 4 * 2 * (100 * 10 - 45));
}

namespace {

/// Pairs that the masks leave, one by one.
double pairs_by_hand(const std::vector<std::int64_t>& lengths, std::int64_t window, bool causal) {
  double pairs = 0;
  for (const std::int64_t length : lengths) {
    for (std::int64_t query = 0; query < length; ++query) {
      for (std::int64_t key = 0; key < length; ++key) {
        const bool seen = causal ? key <= query : true;
        const bool near = window == 0 || std::abs(query - key) < window;
        pairs += seen && near ? 1 : 0;
      }
    }
  }
  return pairs;
}

}  // namespace

TEST_CASE("pairs of a varlen or padded batch are those counted one by one") {
  std::mt19937_64 random(1);
  for (int seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    std::vector<std::int64_t> lengths(1 + random() % 6);
    for (auto& length : lengths) {
      length = 1 + static_cast<std::int64_t>(random() % 40);
    }
    Op op = attention_op(OpClass::Attention, 1, 1);
    op.window = static_cast<std::int64_t>(random() % 50);
    op.causal = random() % 2 == 0;
    const BatchShape shape = batch_shape(lengths, op.window);
    const std::vector<std::int64_t> padded(lengths.size(), shape.max_length);
    CHECK(op_flops(op, shape) == Approx(4 * pairs_by_hand(padded, op.window, op.causal)));
    op.varlen = true;
    CHECK(op_flops(op, shape) == 4 * pairs_by_hand(lengths, op.window, op.causal));
    // Sums alone say as much of documents of one length.
    CHECK(op_flops(op, batch_shape(padded)) ==
          Approx(4 * pairs_by_hand(padded, op.window, op.causal)));
  }
}

TEST_CASE("dense scores and context together count as much as the fused kernel") {
  const double scores = op_flops(attention_op(OpClass::AttentionScores, 4, 12), two_samples());
  const double context = op_flops(attention_op(OpClass::AttentionContext, 4, 12), two_samples());
  CHECK(scores + context == op_flops(attention_op(OpClass::Attention, 4, 12), two_samples()));
}

TEST_CASE("AdamW moves seven tensors and a gradient copy two") {
  const BatchShape none;
  CHECK(op_bytes(elements_op(OpClass::Optimizer, 10, Dtype::F32), none) == 280);
  CHECK(op_bytes(elements_op(OpClass::GradientCopyIn, 10, Dtype::F32), none) == 80);
  CHECK(op_bytes(elements_op(OpClass::ZeroGradient, 10, Dtype::Bf16), none) == 20);
}

TEST_CASE("between knots a cost is on the line, below the first it is the first") {
  const std::vector<std::pair<double, double>> knots = {{10, 1}, {20, 3}, {40, 4}};
  CHECK(interpolate(knots, 5) == 1);
  CHECK(interpolate(knots, 10) == 1);
  CHECK(interpolate(knots, 15) == 2);
  CHECK(interpolate(knots, 20) == 3);
  CHECK(interpolate(knots, 30) == Approx(3.5));
  CHECK(interpolate(knots, 40) == 4);
  CHECK(interpolate(knots, 60) == Approx(5));
  CHECK(interpolate({{10, 7}}, 99) == 7);
}

TEST_CASE("the slope of the tail is that of the line the tail was drawn from") {
  // 2 + 3 x from 25 on; the knots below a quarter of the last must not count.
  std::vector<std::pair<double, double>> knots = {{1, 900}, {20, 800}};
  for (const double x : {25.0, 50.0, 75.0, 100.0}) {
    knots.emplace_back(x, 2 + 3 * x);
  }
  CHECK(tail_slope(knots) == Approx(3));
  // Just inside and just outside of a quarter.
  const std::vector<std::pair<double, double>> bent = {{24, 60}, {25, 20}, {60, 30}, {100, 40}};
  CHECK(tail_slope(bent) == relative_slope(std::span(bent).subspan(1)));
  CHECK(tail_slope(bent) != Approx(relative_slope(bent)));
  CHECK(tail_slope(bent) != Approx(relative_slope(std::span(bent).subspan(2))));
  CHECK(tail_slope({{10, 5}}) == Approx(0.5));
  CHECK(tail_slope({{10, 5}, {100, 4}}) == 0);
  CHECK(tail_slope({{1, 5}, {100, 203}}) == Approx(2));
  CHECK(tail_slope(bent, 100, 1) == relative_slope(bent));
  CHECK(tail_slope(bent, 1, 3) == tail_slope(bent));
}

TEST_CASE("the slope of the tail weighs relative errors and starts at zero or above") {
  // Brute force over a >= 0 and b >= 0; the best line through the second knots starts below zero.
  for (const Knots& knots :
       {Knots{{50, 10}, {75, 16}, {100, 15}}, Knots{{50, 10}, {75, 20}, {100, 22}}}) {
    const auto loss = [&knots](double a, double b) {
      double sum = 0;
      for (const auto& [x, t] : knots) {
        sum += ((a + b * x) / t - 1) * ((a + b * x) / t - 1);
      }
      return sum;
    };
    double best = 1e9;
    double slope = 0;
    for (int i = 0; i <= 1000; ++i) {
      for (int j = 0; j <= 1000; ++j) {
        const double a = 0.02 * i;
        const double b = 0.0006 * j;
        if (loss(a, b) < best) {
          best = loss(a, b);
          slope = b;
        }
      }
    }
    CAPTURE(slope);
    CHECK(tail_slope(knots) == Approx(slope).epsilon(0.02));
  }
  CHECK(tail_slope({{50, 10}, {75, 16}, {100, 15}}) ==
        relative_slope(Knots{{50, 10}, {75, 16}, {100, 15}}));
  CHECK(tail_slope({{50, 10}, {75, 20}, {100, 22}}) <
        relative_slope(Knots{{50, 10}, {75, 20}, {100, 22}}));
}

TEST_CASE("a table goes on from its last knot and says how far outside it is") {
  OpCost cost = table({{50, 1}, {100, 2}});
  cost.errors.random = 0.01;
  cost.errors.beyond = 0.04;
  const BatchShape inside{1, 100, 100, 1e4};
  const BatchShape outside{1, 200, 200, 4e4};
  const BatchShape small{1, 10, 10, 1e2};
  CHECK(evaluate(cost, gemm(1, 1), inside).seconds == 2);
  CHECK(evaluate(cost, gemm(1, 1), inside).relative_error == 0.01);
  CHECK(evaluate(cost, gemm(1, 1), inside).extrapolation == 1);
  CHECK(evaluate(cost, gemm(1, 1), small).seconds == 1);
  cost.range_lo = 50;
  CHECK(evaluate(cost, gemm(1, 1), small).extrapolation == 5);
  CHECK(evaluate(cost, gemm(1, 1), small).smaller);
  CHECK(evaluate(cost, gemm(1, 1), small).relative_error == 0.01);
  const Cost beyond = evaluate(cost, gemm(1, 1), outside);
  CHECK(beyond.seconds == Approx(4));
  CHECK(beyond.extrapolation == 2);
  CHECK(beyond.relative_error == Approx(0.08));
}

TEST_CASE("a table per sample is over the padded length") {
  OpCost cost = table({{50, 1}, {100, 4}});
  cost.form = CostForm::PerSampleTable;
  Op op = attention_op(OpClass::AttentionScores, 4, 12);
  CHECK(evaluate(cost, op, BatchShape{3, 75, 225, 0}).seconds == Approx(7.5));
  // Many samples are not outside the range, long ones are.
  CHECK(evaluate(cost, op, BatchShape{1000, 75, 75000, 0}).extrapolation == 1);
  CHECK(evaluate(cost, op, BatchShape{1, 150, 150, 0}).extrapolation == 1.5);
  op.varlen = true;
  CHECK(error_of([&] { (void)evaluate(cost, op, two_samples()); }) ==
        "attention_scores forward: a table over the padded length cannot price attention without "
        "padding; it needs a fit on features");
}

TEST_CASE("waves and row tiles are rounded up") {
  // 129 rows are three blocks of 64 or two of 128; 2 x 4 tiles of 128 x 256 on 7 processors: two
  // waves, on 8 one.
  const Op op = gemm(1000, 8);
  const BatchShape batch{1, 129, 129, 129.0 * 129};
  CHECK(feature_value("row_tiles:64", op, batch) == 3);
  CHECK(feature_value("row_tiles:128", op, batch) == 2);
  CHECK(feature_value("waves:128x256", op, batch, 7) == 2);
  CHECK(feature_value("waves:128x256", op, batch, 8) == 1);
  CHECK(error_of([&] { (void)feature_value("waves:128x256", op, batch); }) ==
        "the feature 'waves:128x256' needs a number of processors");
  for (const char* name : {"waves:0x1", "waves:1", "waves:1x", "row_tiles:", "row_tiles:-1"}) {
    CHECK_FALSE(parse_tile_feature(name));
  }
}

TEST_CASE("a ratio multiplies the features and is constant outside its knots") {
  OpCost cost;
  cost.form = CostForm::FeaturesRatio;
  cost.features = {"tokens"};
  cost.coefficients = {2};
  cost.knots = {{100, 1.0}, {200, 2.0}};
  cost.range_hi = 200;
  const auto seconds = [&cost](std::int64_t tokens) {
    const auto length = static_cast<double>(tokens);
    return evaluate(cost, gemm(1, 1), {1, tokens, tokens, length * length}).seconds;
  };
  CHECK(seconds(50) == 100);
  CHECK(seconds(150) == 450);
  CHECK(seconds(200) == 800);
  CHECK(seconds(400) == 1600);
  CHECK(evaluate(cost, gemm(1, 1), {1, 400, 400, 160000}).extrapolation == 2);
}

TEST_CASE("the ratio of fused attention is over the mean length") {
  OpCost cost;
  cost.form = CostForm::FeaturesRatio;
  cost.features = {"1"};
  cost.coefficients = {1};
  cost.knots = {{100, 1}, {200, 3}};
  Op op = attention_op(OpClass::Attention, 4, 12);
  CHECK(evaluate(cost, op, BatchShape{7, 150, 1050, 157500}).seconds == 2);
  // Lengths 100 and 50 without padding: 12,500 / 150.
  op.varlen = true;
  CHECK(ratio_variable(op, two_samples()) == Approx(12500.0 / 150));
}

TEST_CASE("tiles of a length are rounded up for every sequence") {
  const Op op = attention_op(OpClass::Attention, 4, 12);
  const BatchShape batch{3, 130, 390, 3 * 130.0 * 130};
  CHECK(feature_value("length_tiles:128", op, batch) == Approx(3 * 2));
  CHECK(feature_value("length_tiles*length:128", op, batch) == Approx(3 * 2 * 130));
  CHECK(feature_value("length_tiles:128", op, BatchShape{}) == 0);
}

TEST_CASE("the ratio of a GEMM to its roofline is clamped, and taken inside the measured box") {
  GemmRatio ratio{
      {108}, std::vector<double>(gemm_ratio_width(), 0.0), {64, 4096}, {64, 8192}, {64, 8192}};
  CHECK(gemm_ratio(ratio, 1000, 1000, 1000) == 1);
  ratio.weights[1] = 1;  // log(m / 1024)
  CHECK(gemm_ratio(ratio, 2048, 1000, 1000) == Approx(2));
  CHECK(gemm_ratio(ratio, 1e9, 1000, 1000) == Approx(4));  // As 4096 rows.
  CHECK(gemm_ratio(ratio, 64, 1000, 1000) == Approx(std::exp(-1.5)));
  // With two numbers of processors, of which one says nothing, the geometric mean.
  ratio.processors.push_back(54);
  ratio.weights.resize(2 * gemm_ratio_width());
  CHECK(gemm_ratio(ratio, 2048, 1000, 1000) == Approx(std::sqrt(2)));
}

TEST_CASE("features add up and never to less than nothing") {
  OpCost cost;
  cost.form = CostForm::Features;
  cost.features = {"1", "tokens"};
  cost.coefficients = {5, 0.5};
  cost.range_hi = 1000;
  CHECK(evaluate(cost, gemm(1, 1), two_samples()).seconds == 105);
  cost.coefficients = {5, -0.5};
  CHECK(evaluate(cost, gemm(1, 1), two_samples()).seconds == 0);
}
