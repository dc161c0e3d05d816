#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "calibrate/cuda/kernels/kernels.h"
#include "tests/gpu/checks.h"

namespace stepsim::cuda::test {
namespace {

/// Scores of some samples and heads, and which keys they may see.
struct Scores {
  std::int64_t samples;
  std::int64_t heads;
  std::int64_t length;
  bool masked;
  bool causal;
  std::int64_t window;
};

bool sees(const Scores& the, std::int64_t useful, std::int64_t query, std::int64_t key) {
  const bool near = the.window == 0 || std::abs(query - key) < the.window;
  return key < useful && (!the.causal || key <= query) && near;
}

void check_softmax(const Scores& the, Dtype dtype) {
  CAPTURE(the.length);
  CAPTURE(the.masked);
  CAPTURE(the.causal);
  CAPTURE(the.window);
  constexpr float kScale = 0.125F;
  const std::int64_t count = the.samples * the.heads * the.length * the.length;
  std::vector<std::int32_t> useful;
  for (std::int64_t sample = 0; sample < the.samples; ++sample) {
    // The first sample whole, the second empty, the third about half.
    const std::int64_t of[] = {the.length, 0, (the.length + 1) / 2};
    useful.push_back(static_cast<std::int32_t>(the.masked ? of[sample % 3] : the.length));
  }
  const DeviceInts lengths(useful);
  const DeviceArray scores(dtype, numbers(count, 1, 20));
  const ScoreMask mask{the.masked ? lengths.data() : nullptr, the.causal, the.window};
  softmax_forward(stream(), scores.array(), kScale, mask, the.samples, the.heads, the.length);
  std::vector<Expected> expected;
  for (std::int64_t row = 0; row < count / the.length; ++row) {
    const std::int64_t sample = row / the.length / the.heads;
    const std::int64_t query = row % the.length;
    const auto score = [&](std::int64_t key) {
      return sees(the, useful[static_cast<std::size_t>(sample)], query, key)
                 ? static_cast<double>(kScale) * scores[row * the.length + key]
                 : -INFINITY;
    };
    double top = -INFINITY;
    for (std::int64_t key = 0; key < the.length; ++key) {
      top = std::max(top, score(key));
    }
    double sum = 0;
    for (std::int64_t key = 0; key < the.length; ++key) {
      sum += top == -INFINITY ? 0 : std::exp(score(key) - top);
    }
    for (std::int64_t key = 0; key < the.length; ++key) {
      const double s = score(key);
      const double p = s == -INFINITY ? 0 : std::exp(s - top) / sum;
      // A rounding of the score or of the largest changes e^x by that much, relatively.
      expected.push_back({p, p == 0 ? 0 : p * (1 + std::abs(s) + std::abs(top))});
    }
  }
  check(scores, expected, depth(the.length) + 40);
}

/// Row by row: the largest logit, and the logarithm of the sum of e^(x - largest).
std::vector<double> log_sums(const DeviceArray& logits, const Shape& shape) {
  std::vector<double> result;
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    double top = -INFINITY;
    double sum = 0;
    for (std::int64_t i = row * shape.width; i < (row + 1) * shape.width; ++i) {
      top = std::max(top, logits[i]);
    }
    for (std::int64_t i = row * shape.width; i < (row + 1) * shape.width; ++i) {
      sum += std::exp(logits[i] - top);
    }
    result.insert(result.end(), {top, std::log(sum)});
  }
  return result;
}

/// A class a row; the second of three rows has none.
std::vector<std::int32_t> some_targets(const Shape& shape) {
  std::vector<std::int32_t> targets;
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    targets.push_back(row % 3 == 1
                          ? kNoTarget
                          : static_cast<std::int32_t>((row * 7 + shape.width - 1) % shape.width));
  }
  return targets;
}

void check_loss(const Shape& shape, Dtype dtype) {
  const DeviceArray logits(dtype, numbers(shape.count(), 1, 10));
  const DeviceInts targets(some_targets(shape));
  const DeviceArray losses(Dtype::F32, shape.rows);
  const DeviceArray saved(Dtype::F32, 2 * shape.rows);
  cross_entropy_forward(stream(),
                        losses.floats(),
                        saved.floats(),
                        logits.array(),
                        targets.data(),
                        shape.rows,
                        shape.width);
  const std::vector<double> exact = log_sums(logits, shape);
  std::vector<Expected> of_losses;
  std::vector<Expected> of_saved;
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    const double top = exact[static_cast<std::size_t>(2 * row)];
    const double log_sum = exact[static_cast<std::size_t>(2 * row) + 1];
    const bool has_target = targets[row] != kNoTarget;
    const double at_target = has_target ? logits[row * shape.width + targets[row]] : 0;
    of_saved.push_back({top, 0});
    // The sum's relative error is the logarithm's absolute one; 20: what e^x does to arguments.
    of_saved.push_back({log_sum, 20 + std::abs(log_sum)});
    of_losses.push_back({has_target ? top - at_target + log_sum : 0,
                         has_target ? 20 + std::abs(top) + std::abs(at_target) : 0});
  }
  check(saved, of_saved, depth(shape.width) + 40);
  check(losses, of_losses, depth(shape.width) + 40);
}

void check_loss_gradient(const Shape& shape, Dtype dtype, bool in_place) {
  constexpr float kScale = 0.25F;
  const DeviceArray logits(dtype, numbers(shape.count(), 1, 10));
  const DeviceInts targets(some_targets(shape));
  const DeviceArray saved(Dtype::F32, log_sums(logits, shape));
  const DeviceArray apart(dtype, shape.count());
  const DeviceArray& dlogits = in_place ? logits : apart;
  cross_entropy_backward(stream(),
                         dlogits.array(),
                         logits.array(),
                         saved.floats(),
                         targets.data(),
                         kScale,
                         shape.rows,
                         shape.width);
  std::vector<Expected> expected;
  for (std::int64_t i = 0; i < shape.count(); ++i) {
    const std::int64_t row = i / shape.width;
    const double top = saved[2 * row];
    const double log_sum = saved[2 * row + 1];
    const double p = std::exp(logits[i] - top - log_sum);
    const double one = targets[row] == i % shape.width ? 1 : 0;
    const double value = targets[row] == kNoTarget ? 0 : kScale * (p - one);
    expected.push_back(
        {value, kScale * (p * (1 + std::abs(logits[i]) + std::abs(top) + log_sum) + one)});
  }
  check(dlogits, expected, 10);
}

}  // namespace

TEST_CASE("cuda: softmax of masked scores") {
  for (const Dtype dtype : kDtypes) {
    for (const std::int64_t length : {1, 7, 24}) {
      for (const bool masked : {false, true}) {
        for (const bool causal : {false, true}) {
          for (const std::int64_t window : {0, 1, 5}) {
            check_softmax({3, 2, length, masked, causal, window}, dtype);
          }
        }
      }
    }
    check_softmax({3, 1, 129, true, true, 0}, dtype);
    check_softmax({1, 2, 136, false, false, 20}, dtype);
    if (!small()) {
      check_softmax({1, 1, 4100, true, true, 0}, dtype);
      check_softmax({2, 3, 1024, true, false, 100}, dtype);
    }
  }
}

TEST_CASE("cuda: gradient of softmax") {
  constexpr float kScale = 0.125F;
  for (const Dtype dtype : kDtypes) {
    for (const Shape& shape : shapes()) {
      CAPTURE(shape.rows);
      CAPTURE(shape.width);
      // Probabilities of about 1/width, so that the sum of g p is about 1.
      const double p_size = 1.0 / static_cast<double>(shape.width);
      const DeviceArray p(dtype, numbers(shape.count(), 1, p_size, p_size));
      const std::vector<double> before = numbers(shape.count(), 2);
      const DeviceArray gradient(dtype, before);
      softmax_backward(stream(), gradient.array(), p.array(), kScale, shape.rows, shape.width);
      std::vector<Expected> expected;
      for (std::int64_t row = 0; row < shape.rows; ++row) {
        Expected dot;
        for (std::int64_t i = row * shape.width; i < (row + 1) * shape.width; ++i) {
          dot.value += gradient[i] * p[i];
          dot.scale += std::abs(gradient[i] * p[i]);
        }
        for (std::int64_t i = row * shape.width; i < (row + 1) * shape.width; ++i) {
          expected.push_back({kScale * p[i] * (gradient[i] - dot.value),
                              kScale * p[i] * (std::abs(gradient[i]) + dot.scale)});
        }
      }
      check(gradient, expected, depth(shape.width) + 4);
    }
  }
}

TEST_CASE("cuda: cross entropy") {
  for (const Dtype dtype : kDtypes) {
    for (const Shape& shape : shapes()) {
      CAPTURE(shape.rows);
      CAPTURE(shape.width);
      check_loss(shape, dtype);
      check_loss_gradient(shape, dtype, false);
      check_loss_gradient(shape, dtype, true);
    }
    if (!small()) {
      check_loss({3, 150'001}, dtype);
      check_loss_gradient({3, 150'001}, dtype, true);
    }
  }
}

TEST_CASE("cuda: sum of the losses") {
  for (const std::int64_t count : {1, 7, 1024, 50257}) {
    CAPTURE(count);
    const DeviceArray values(Dtype::F32, numbers(count, 1));
    const DeviceArray total(Dtype::F32, 1);
    sum_floats(stream(), total.floats(), values.floats(), count);
    Expected sum;
    for (const double value : values.values()) {
      sum.value += value;
      sum.scale += std::abs(value);
    }
    check(total, {sum}, depth(count));
  }
}

}  // namespace stepsim::cuda::test
