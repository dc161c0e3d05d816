#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "calibrate/cpu/activation.h"
#include "calibrate/cpu/adamw.h"
#include "calibrate/cpu/attention.h"
#include "calibrate/cpu/gemm.h"
#include "calibrate/cpu/loss.h"
#include "calibrate/cpu/norm.h"

namespace stepsim::cpu {
namespace {

/// Repeatable numbers in [-1, 1).
std::vector<float> numbers(std::size_t count, std::uint32_t seed) {
  std::vector<float> result(count);
  std::uint32_t state = seed;
  for (float& x : result) {
    state = state * 1664525U + 1013904223U;
    x = static_cast<float>(state >> 8U) / 8388608.0F - 1.0F;
  }
  return result;
}

using Doubles = std::vector<std::vector<double>>;

double difference(const Doubles& expected, const std::vector<float>& got, std::int64_t stride) {
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    for (std::size_t j = 0; j < expected[i].size(); ++j) {
      const float value = got[i * static_cast<std::size_t>(stride) + j];
      worst = std::max(worst, std::abs(expected[i][j] - static_cast<double>(value)));
    }
  }
  return worst;
}

/// Attention of one sample and head by its definition.
Doubles attention_by_definition(const std::vector<float>& q,
                                const std::vector<float>& k,
                                const std::vector<float>& v,
                                std::int64_t length,
                                std::int64_t dim,
                                std::int64_t useful,
                                bool causal,
                                std::int64_t window) {
  const auto at = [dim](const std::vector<float>& m, std::int64_t i, std::int64_t d) {
    return static_cast<double>(m[static_cast<std::size_t>(i * dim + d)]);
  };
  Doubles out(static_cast<std::size_t>(length),
              std::vector<double>(static_cast<std::size_t>(dim), 0.0));
  for (std::int64_t query = 0; query < length; ++query) {
    double total = 0;
    for (std::int64_t key = 0; key < useful; ++key) {
      const bool late = causal && key > query;
      const bool far = window > 0 && (query - key >= window || key - query >= window);
      if (late || far) {
        continue;
      }
      double score = 0;
      for (std::int64_t d = 0; d < dim; ++d) {
        score += at(q, query, d) * at(k, key, d);
      }
      const double weight = std::exp(score / std::sqrt(static_cast<double>(dim)));
      total += weight;
      for (std::int64_t d = 0; d < dim; ++d) {
        out[static_cast<std::size_t>(query)][static_cast<std::size_t>(d)] += weight * at(v, key, d);
      }
    }
    for (double& x : out[static_cast<std::size_t>(query)]) {
      x = total > 0 ? x / total : std::numeric_limits<double>::quiet_NaN();
    }
  }
  return out;
}

}  // namespace

TEST_CASE(
    "products equal their definition, for sizes that do not fill vectors, added or assigned") {
  for (const std::int64_t m : {1, 5, 33}) {
    for (const std::int64_t n : {1, 7, 48}) {
      for (const std::int64_t k : {1, 12, 50}) {
        CAPTURE(m);
        CAPTURE(n);
        CAPTURE(k);
        const auto a = numbers(static_cast<std::size_t>(m * k), 1);
        const auto b = numbers(static_cast<std::size_t>(k * n), 2);
        const auto start = numbers(static_cast<std::size_t>(m * n), 3);
        std::vector<float> a_transposed(a.size());
        std::vector<float> b_transposed(b.size());
        Doubles expected(static_cast<std::size_t>(m),
                         std::vector<double>(static_cast<std::size_t>(n), 0.0));
        for (std::int64_t i = 0; i < m; ++i) {
          for (std::int64_t j = 0; j < n; ++j) {
            double& sum = expected[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)];
            for (std::int64_t l = 0; l < k; ++l) {
              const auto al = static_cast<std::size_t>(i * k + l);
              const auto bl = static_cast<std::size_t>(l * n + j);
              a_transposed[static_cast<std::size_t>(l * m + i)] = a[al];
              b_transposed[static_cast<std::size_t>(j * k + l)] = b[bl];
              sum += 0.5 * static_cast<double>(a[al]) * static_cast<double>(b[bl]);
            }
            sum += static_cast<double>(start[static_cast<std::size_t>(i * n + j)]);
          }
        }
        std::vector<float> c = start;
        gemm_nn({c.data(), m, n, n}, {a.data(), m, k, k}, {b.data(), k, n, n}, 0.5F, Store::Add);
        CHECK(difference(expected, c, n) < 1e-5);
        c = start;
        gemm_nt({c.data(), m, n, n},
                {a.data(), m, k, k},
                {b_transposed.data(), n, k, k},
                0.5F,
                Store::Add);
        CHECK(difference(expected, c, n) < 1e-5);
        gemm_tn({c.data(), m, n, n},
                {a_transposed.data(), k, m, m},
                {b.data(), k, n, n},
                0.5F,
                Store::Assign);
        for (std::size_t i = 0; i < c.size(); ++i) {
          c[i] += start[i];
        }
        CHECK(difference(expected, c, n) < 1e-5);
      }
    }
  }
}

TEST_CASE("attention equals its definition under padding, causal and window masks") {
  for (const std::int64_t length : {1, 9, 40}) {
    for (const bool causal : {false, true}) {
      for (const std::int64_t window : {0, 4}) {
        constexpr std::int64_t kDim = 12;
        const std::int64_t useful = (length + 1) / 2;
        const auto count = static_cast<std::size_t>(length * kDim);
        const auto q = numbers(count, 4);
        const auto k = numbers(count, 5);
        const auto v = numbers(count, 6);
        const auto useful_tokens = static_cast<std::int32_t>(useful);
        const DenseAttention shape{1, length, 1, 1, kDim, {&useful_tokens, causal, window}, false};
        HeadViews views;
        std::vector<float> scores(static_cast<std::size_t>(length * length));
        std::vector<float> out(count);
        dense_scores_forward(
            {}, {}, shape, scores.data(), views, {q.data(), kDim}, {k.data(), kDim});
        dense_softmax_forward({}, shape, scores.data());
        dense_context_forward(
            {}, {}, shape, {out.data(), kDim}, views, scores.data(), {v.data(), kDim});
        const Doubles expected =
            attention_by_definition(q, k, v, length, kDim, useful, causal, window);
        for (std::int64_t query = 0; query < useful; ++query) {
          const auto row = static_cast<std::size_t>(query);
          const std::vector<float> got(out.begin() + query * kDim,
                                       out.begin() + (query + 1) * kDim);
          CHECK(difference({expected[row]}, got, kDim) < 2e-6);
        }
      }
    }
  }
}

TEST_CASE("activations agree with the C library to single precision") {
  const std::vector<std::pair<ActivationKind, std::function<double(double)>>> functions = {
      {ActivationKind::GeluErf,
       [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }},
      {ActivationKind::GeluTanh,
       [](double x) {
         return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
       }},
      {ActivationKind::ReluSquared, [](double x) { return x > 0 ? x * x : 0; }},
      {ActivationKind::Tanh, [](double x) { return std::tanh(x); }},
      {ActivationKind::Relu, [](double x) { return x > 0 ? x : 0; }}};
  std::vector<float> x;
  for (int i = -1200; i <= 1200; ++i) {
    x.push_back(static_cast<float>(i) * 0.01F + 0.003F);
  }
  const std::vector<float> ones(x.size(), 1.0F);
  const auto count = static_cast<std::int64_t>(x.size());
  for (const auto& function : functions) {
    std::vector<float> y(x.size());
    std::vector<float> slope(x.size());
    activation_forward({}, function.first, y.data(), x.data(), count);
    activation_backward({}, function.first, slope.data(), ones.data(), x.data(), count);
    double worst = 0;
    double worst_slope = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto at = static_cast<double>(x[i]);
      const double expected = function.second(at);
      const double expected_slope =
          (function.second(at + 1e-4) - function.second(at - 1e-4)) / 2e-4;
      const double size = std::max(1.0, std::abs(expected));
      worst = std::max(worst, std::abs(static_cast<double>(y[i]) - expected) / size);
      worst_slope =
          std::max(worst_slope, std::abs(static_cast<double>(slope[i]) - expected_slope) / size);
    }
    CHECK(worst < 1e-6);
    CHECK(worst_slope < 1e-5);
  }
}

TEST_CASE("a normalised row has mean zero and mean square one") {
  for (const std::int64_t width : {1, 15, 48, 100}) {
    CAPTURE(width);
    auto x = numbers(static_cast<std::size_t>(width), 7);
    for (float& v : x) {
      v = 3.0F * v + 5.0F;
    }
    std::vector<float> y(x.size());
    std::vector<float> saved(2);
    const auto moments = [&y, width] {
      double mean = 0;
      double square = 0;
      for (const float v : y) {
        mean += static_cast<double>(v) / static_cast<double>(width);
        square += static_cast<double>(v) * static_cast<double>(v) / static_cast<double>(width);
      }
      return std::pair{mean, square};
    };
    norm_forward({}, false, y.data(), saved.data(), x.data(), {}, 1, width);
    CHECK(std::abs(moments().first) < 1e-5);
    CHECK(moments().second == doctest::Approx(width > 1 ? 1.0 : 0.0).epsilon(1e-4));
    norm_forward({}, true, y.data(), saved.data(), x.data(), {}, 1, width);
    CHECK(moments().second == doctest::Approx(1.0).epsilon(1e-4));
  }
}

TEST_CASE("the cross entropy of equal logits is the logarithm of the classes") {
  const std::vector<float> logits(3 * 20, 4.0F);
  std::vector<float> probabilities(logits.size());
  const std::vector<std::int32_t> targets = {3, kNoTarget, 19};
  std::vector<float> losses(3);
  cross_entropy_forward(
      {}, losses.data(), probabilities.data(), logits.data(), targets.data(), 3, 20);
  float loss = 0;
  sum_floats({}, &loss, losses.data(), 3);
  CHECK(loss / 2 == doctest::Approx(std::log(20.0)));
  CHECK(losses[1] == 0);
  std::vector<float> gradient(logits.size());
  cross_entropy_backward(
      {}, gradient.data(), logits.data(), probabilities.data(), targets.data(), 1.0F, 3, 20);
  CHECK(gradient[3] == doctest::Approx(0.05 - 1.0));
  CHECK(gradient[4] == doctest::Approx(0.05));
  CHECK(gradient[20 + 5] == 0.0F);
}

TEST_CASE("the first update of AdamW moves every weight by the learning rate, after the decay") {
  // With zero moments m / sqrt(v) after the bias corrections is the sign of the gradient.
  std::vector<float> weights = {1.0F, -2.0F, 0.5F};
  const std::vector<float> gradient = {0.3F, -7.0F, 0.0F};
  std::vector<float> m(3, 0.0F);
  std::vector<float> v(3, 0.0F);
  const AdamW options{.learning_rate = 2e-3F};
  adamw_update({}, options, weights.data(), m.data(), v.data(), gradient.data(), nullptr, 3, 1);
  CHECK(weights[0] == doctest::Approx(1.0 * (1 - 2e-5) - 2e-3).epsilon(1e-6));
  CHECK(weights[1] == doctest::Approx(-2.0 * (1 - 2e-5) + 2e-3).epsilon(1e-6));
  CHECK(weights[2] == doctest::Approx(0.5 * (1 - 2e-5)).epsilon(1e-6));
}

TEST_CASE("rotating forth and back restores the heads, and position zero is left alone") {
  constexpr std::int64_t kLength = 5;
  const auto x = numbers(static_cast<std::size_t>(2 * kLength * 16), 8);
  std::vector<float> cosine;
  std::vector<float> sine;
  for (int i = 0; i < kLength * 4; ++i) {
    cosine.push_back(std::cos(static_cast<float>(i / 4) * 0.3F));
    sine.push_back(std::sin(static_cast<float>(i / 4) * 0.3F));
  }
  const std::vector<std::int32_t> positions = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4};
  auto y = x;
  rotate(
      {}, {y.data(), 16}, 2, 8, positions.data(), 2 * kLength, cosine.data(), sine.data(), false);
  CHECK(std::equal(y.begin(), y.begin() + 16, x.begin()));
  CHECK(std::abs(y[16] - x[16]) > 1e-3F);
  rotate({}, {y.data(), 16}, 2, 8, positions.data(), 2 * kLength, cosine.data(), sine.data(), true);
  for (std::size_t i = 0; i < x.size(); ++i) {
    REQUIRE(y[i] == doctest::Approx(x[i]).epsilon(1e-5));
  }
}

}  // namespace stepsim::cpu
