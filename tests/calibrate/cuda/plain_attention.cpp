#include "tests/calibrate/cuda/plain_attention.h"

#include <algorithm>
#include <cmath>

#include "tests/gpu/checks.h"

namespace stepsim::cuda {
namespace {

std::vector<double> random_features(std::int64_t count, Dtype dtype, std::uint64_t seed) {
  std::vector<double> features = test::numbers(count, seed);
  for (double& feature : features) {
    feature = test::rounded(dtype, feature);
  }
  return features;
}

/// One query head of one sequence: offsets of its first row.
struct Head {
  std::int64_t first_q, first_kv, first_o, first_statistic;
};

/// Sum of products, or of their magnitudes.
double dot(const double* a, const double* b, std::int64_t count, bool magnitudes = false) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    sum += magnitudes ? std::abs(a[i] * b[i]) : a[i] * b[i];
  }
  return sum;
}

/// to += factor x, and size += |size_factor x|.
void add_scaled(double* to,
                double* size,
                double factor,
                double size_factor,
                const double* x,
                std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] += factor * x[i];
    size[i] += std::abs(size_factor * x[i]);
  }
}

bool visible(const SdpaShape& shape, std::int64_t query, std::int64_t key) {
  const bool future = shape.causal && key > query;
  const bool far = shape.window > 0 && std::abs(query - key) >= shape.window;
  return !future && !far;
}

/// softmax(scale q k^T) of one row; its statistic and the largest score.
std::vector<double> probabilities(const PlainAttention& problem,
                                  const Head& head,
                                  std::int64_t query,
                                  std::int64_t length,
                                  PlainResults& results) {
  const SdpaShape& shape = problem.shape;
  const double scale = 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
  std::vector<double> p(static_cast<std::size_t>(length));
  double total = 0;
  for (std::int64_t key = 0; key < length; ++key) {
    if (visible(shape, query, key)) {
      const double score = scale * dot(&problem.q[head.first_q + query * shape.q_stride],
                                       &problem.k[head.first_kv + key * shape.kv_stride],
                                       shape.head_dim);
      results.largest_score = std::max(results.largest_score, std::abs(score));
      p[key] = std::exp(score);
      total += p[key];
    }
  }
  results.statistics[head.first_statistic + query * shape.heads] = std::log(total);
  for (double& weight : p) {
    weight /= total;
  }
  return p;
}

void attend_row(const PlainAttention& problem,
                const Head& head,
                std::int64_t query,
                std::int64_t length,
                PlainResults& results) {
  const SdpaShape& shape = problem.shape;
  const std::int64_t dim = shape.head_dim;
  const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
  const std::int64_t q = head.first_q + query * shape.q_stride;
  const std::int64_t o = head.first_o + query * shape.o_stride;
  const double* const d_o = &problem.d_o[o];
  const std::vector<double> p = probabilities(problem, head, query, length, results);
  std::vector<double> dp(p.size());
  double mean = 0;
  double mean_size = 0;
  for (std::int64_t key = 0; key < length; ++key) {
    const double* const v = &problem.v[head.first_kv + key * shape.kv_stride];
    dp[key] = dot(d_o, v, dim);
    mean += p[key] * dp[key];
    mean_size += p[key] * std::abs(dp[key]);
    add_scaled(&results.o[o], &results.sizes.o[o], p[key], p[key], v, dim);
  }
  mean_size += dot(d_o, &results.o[o], dim, true);
  for (std::int64_t key = 0; key < length; ++key) {
    const std::int64_t kv = head.first_kv + key * shape.kv_stride;
    const double ds = p[key] * (dp[key] - mean) * scale;
    const double ds_size = std::abs(ds) + p[key] * scale * (std::abs(dp[key]) + mean_size);
    add_scaled(&results.dv[kv], &results.sizes.dv[kv], p[key], p[key], d_o, dim);
    add_scaled(&results.dq[q], &results.sizes.dq[q], ds, ds_size, &problem.k[kv], dim);
    add_scaled(&results.dk[kv], &results.sizes.dk[kv], ds, ds_size, &problem.q[q], dim);
  }
}

}  // namespace

PlainAttention plain_attention(SdpaShape shape,
                               const std::vector<std::int32_t>& lengths,
                               std::uint64_t seed) {
  const std::int64_t row = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
  shape.q_stride = shape.q_stride == 0 ? row : shape.q_stride;
  shape.kv_stride = shape.kv_stride == 0 ? row : shape.kv_stride;
  shape.o_stride = shape.o_stride == 0 ? shape.heads * shape.head_dim : shape.o_stride;
  PlainAttention problem;
  problem.shape = shape;
  problem.offsets.push_back(0);
  for (std::int64_t sample = 0; sample < shape.samples; ++sample) {
    const auto padded = static_cast<std::int32_t>(shape.length);
    const std::int32_t useful =
        shape.masked || shape.packed ? lengths[static_cast<std::size_t>(sample)] : padded;
    problem.lengths.push_back(useful);
    problem.offsets.push_back(problem.offsets.back() + (shape.packed ? useful : padded));
  }
  problem.q = random_features(problem.rows() * shape.q_stride, shape.dtype, 4 * seed + 0);
  problem.k = random_features(problem.rows() * shape.kv_stride, shape.dtype, 4 * seed + 1);
  problem.v = random_features(problem.rows() * shape.kv_stride, shape.dtype, 4 * seed + 2);
  problem.d_o = random_features(problem.rows() * shape.o_stride, shape.dtype, 4 * seed + 3);
  return problem;
}

PlainResults attend(const PlainAttention& problem) {
  const SdpaShape& shape = problem.shape;
  const auto size = [&](std::int64_t stride) {
    return static_cast<std::size_t>(problem.rows() * stride);
  };
  PlainResults results;
  results.o = results.sizes.o = std::vector<double>(size(shape.o_stride));
  results.dq = results.sizes.dq = std::vector<double>(size(shape.q_stride));
  results.dk = results.sizes.dk = std::vector<double>(size(shape.kv_stride));
  results.dv = results.sizes.dv = std::vector<double>(size(shape.kv_stride));
  results.statistics.resize(size(shape.heads));
  for (std::size_t sample = 0; sample < problem.lengths.size(); ++sample) {
    const std::int64_t first = problem.offsets[sample];
    for (std::int64_t index = 0; index < shape.heads; ++index) {
      const std::int64_t kv_index = index * shape.kv_heads / shape.heads;
      const Head head{.first_q = first * shape.q_stride + index * shape.head_dim,
                      .first_kv = first * shape.kv_stride + kv_index * shape.head_dim,
                      .first_o = first * shape.o_stride + index * shape.head_dim,
                      .first_statistic = first * shape.heads + index};
      for (std::int64_t query = 0; query < problem.lengths[sample]; ++query) {
        attend_row(problem, head, query, problem.lengths[sample], results);
      }
    }
  }
  return results;
}

SdpaShape biased(SdpaShape shape) {
  shape.biased = true;
  shape.masked = false;
  shape.causal = false;
  shape.window = 0;
  return shape;
}

std::vector<double> mask_of(const PlainAttention& problem) {
  constexpr double kHidden = -65504;
  const SdpaShape& shape = problem.shape;
  std::vector<double> mask;
  for (const std::int32_t useful : problem.lengths) {
    for (std::int64_t query = 0; query < shape.length; ++query) {
      for (std::int64_t key = 0; key < mask_stride(shape.length); ++key) {
        mask.push_back(key < useful && visible(shape, query, key) ? 0 : kHidden);
      }
    }
  }
  return mask;
}

void clear_padding_gradient(PlainAttention& problem) {
  for (std::size_t sample = 0; sample < problem.lengths.size(); ++sample) {
    const auto row = [&](std::int64_t token) {
      return problem.d_o.begin() + (problem.offsets[sample] + token) * problem.shape.o_stride;
    };
    std::fill(row(problem.lengths[sample]), row(problem.shape.length), 0.0);
  }
}

}  // namespace stepsim::cuda
