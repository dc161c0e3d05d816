#include "calibrate/cuda/eager/eager.h"

#include <cmath>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "tests/gpu/adamw_problem.h"
#include "tests/gpu/checks.h"

namespace stepsim::cuda::test {
namespace {

/// The dtypes of x and y of gelu_new, and of what PyTorch computes in them.
struct GeluTypes {
  Dtype x;
  Dtype y;
};
constexpr GeluTypes kGeluTypes[] = {{Dtype::F32, Dtype::F32},
                                    {Dtype::Bf16, Dtype::F32},
                                    {Dtype::F16, Dtype::F32},
                                    {Dtype::Bf16, Dtype::Bf16},
                                    {Dtype::F16, Dtype::F16}};

void check_gelu_new(const GeluTypes& types, std::int64_t count) {
  CAPTURE(name_of(types.x));
  CAPTURE(name_of(types.y));
  CAPTURE(count);
  const DeviceArray x(types.x, numbers(count, 1, 4));
  const DeviceArray dy(types.y, numbers(count, 2));
  const DeviceArray y(types.y, count);
  const DeviceArray dx(types.x, count);
  const DeviceArray saved(Dtype::F32, gelu_new_saved(types.x, types.y, count));
  const DeviceArray scratch(Dtype::F32, gelu_new_scratch(count));
  gelu_new_forward(stream(), y.array(), saved.floats(), scratch.floats(), x.array(), count);
  gelu_new_backward(
      stream(), dx.array(), dy.array(), x.array(), saved.floats(), scratch.floats(), count);
  std::vector<Expected> of_y;
  std::vector<Expected> of_dx;
  for (std::int64_t i = 0; i < count; ++i) {
    const double in = x[i];
    const double root = std::sqrt(2 / std::acos(-1.0));
    const double u = root * (in + 0.044715 * in * in * in);
    const double t = std::tanh(u);
    const double du = root * (1 + 3 * 0.044715 * in * in);
    const double bent = (1 - t * t) * std::abs(u);  // What a relative error of u does to tanh.
    of_y.push_back({0.5 * in * (1 + t), std::abs(in) * (1 + bent)});
    const double slope = 0.5 * (1 + t) + 0.5 * in * (1 - t * t) * du;
    of_dx.push_back({dy[i] * slope, std::abs(dy[i]) * (1 + std::abs(in) * du) * (1 + bent)});
  }
  // Every operation rounds: to the dtype of y, and on the way back to that of x where they differ.
  const double stored = types.y == Dtype::F32 ? 0 : 5;
  const double narrowed = types.x == Dtype::F32 ? 0 : 6;
  check(y, of_y, 16, stored);
  check(dx, of_dx, 32, stored + narrowed);
  (void)scratch.read();  // Checks that nothing around it was overwritten.
  (void)saved.read();
}

std::vector<std::int32_t> targets_of(const Shape& shape) {
  std::vector<std::int32_t> targets;
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    const bool padding = row % 4 == 3;
    targets.push_back(padding ? kNoTarget : static_cast<std::int32_t>((7 * row) % shape.width));
  }
  return targets;
}

void check_log_softmax_loss(const Shape& shape, Dtype dtype) {
  constexpr float kScale = 0.25F;
  CAPTURE(name_of(dtype));
  CAPTURE(shape.rows);
  CAPTURE(shape.width);
  const DeviceArray logits(dtype, numbers(shape.count(), 1, 10));
  const DeviceInts targets(targets_of(shape));
  const DeviceArray total(Dtype::F32, 1);
  const DeviceArray logs(Dtype::F32, shape.count());
  const DeviceArray dlogits(dtype, shape.count());
  const DeviceArray scratch(Dtype::F32, log_softmax_scratch(shape.rows, shape.width));
  log_softmax_loss_forward(stream(),
                           total.floats(),
                           logs.floats(),
                           scratch.floats(),
                           logits.array(),
                           targets.data(),
                           shape.rows,
                           shape.width);
  log_softmax_loss_backward(stream(),
                            dlogits.array(),
                            logs.floats(),
                            scratch.floats(),
                            targets.data(),
                            kScale,
                            shape.rows,
                            shape.width);
  Expected of_total;
  std::vector<Expected> of_logs;
  std::vector<Expected> of_gradient;
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    const std::int64_t first = row * shape.width;
    double sum = 0;
    for (std::int64_t i = 0; i < shape.width; ++i) {
      sum += std::exp(logits[first + i]);
    }
    const double log_sum = std::log(sum);
    for (std::int64_t i = 0; i < shape.width; ++i) {
      const double log = logits[first + i] - log_sum;
      const double p = std::exp(log);
      const double one = targets[row] == i ? 1 : 0;
      const double scale = 20 + std::abs(logits[first + i]) + std::abs(log_sum);
      of_logs.push_back({log, scale});
      const bool has_target = targets[row] != kNoTarget;
      of_gradient.push_back({has_target ? kScale * (p - one) : 0, kScale * (p * scale + one)});
      of_total.value -= one * log;
      of_total.scale += one * scale;
    }
  }
  check(logs, of_logs, depth(shape.width) + 40);
  check(total, {of_total}, depth(shape.width) + depth(shape.rows) + 40);
  check(dlogits, of_gradient, depth(shape.width) + 40);
  (void)scratch.read();
}

/// A row of the RMS norm in double, and what its gradient needs.
struct RmsRow {
  double inverse = 0;
  double dot = 0;        ///< Sum of g x, g = dout * gain.
  double magnitude = 0;  ///< Sum of |g x|.
};

void check_rms_norm(const Shape& shape, Dtype dtype, Store store) {
  const std::int64_t rows = shape.rows;
  const std::int64_t width = shape.width;
  CAPTURE(name_of(dtype));
  CAPTURE(rows);
  CAPTURE(width);
  const DeviceArray x(dtype, numbers(shape.count(), 1));
  const DeviceArray gain(dtype, numbers(width, 2, 0.5, 1));
  const DeviceArray dout(dtype, numbers(shape.count(), 3));
  const DeviceArray before(dtype, numbers(width, 4));
  const DeviceArray dgain(dtype, before.values());
  const DeviceArray dx(dtype, numbers(shape.count(), 5));
  const DeviceArray out(dtype, shape.count());
  const DeviceArray saved(Dtype::F32, rows * rms_norm_saved(dtype, width));
  const DeviceArray scratch(Dtype::F32, rms_norm_scratch(rows, width));
  rms_norm_forward(stream(),
                   out.array(),
                   saved.floats(),
                   scratch.floats(),
                   x.array(),
                   gain.array(),
                   rows,
                   width);
  rms_norm_backward(stream(),
                    dx.array(),
                    store,
                    dgain.array(),
                    dout.array(),
                    x.array(),
                    saved.floats(),
                    gain.array(),
                    scratch.floats(),
                    rows,
                    width);
  std::vector<Expected> of_out;
  std::vector<Expected> of_dx;
  std::vector<Expected> of_dgain;
  for (std::int64_t i = 0; i < width; ++i) {
    of_dgain.push_back({before[i], std::abs(before[i])});
  }
  const auto n = static_cast<double>(width);
  for (std::int64_t row = 0; row < rows; ++row) {
    RmsRow the;
    double squares = 0;
    for (std::int64_t i = 0; i < width; ++i) {
      const std::int64_t at = row * width + i;
      squares += x[at] * x[at];
      the.dot += dout[at] * gain[i] * x[at];
      the.magnitude += std::abs(dout[at] * gain[i] * x[at]);
    }
    the.inverse = 1 / std::sqrt(squares / n + static_cast<double>(1e-5F));
    const double cube = the.inverse * the.inverse * the.inverse;
    for (std::int64_t i = 0; i < width; ++i) {
      const std::int64_t at = row * width + i;
      const double normed = x[at] * the.inverse;
      of_out.push_back({normed * gain[i], std::abs(normed * gain[i])});
      const double g = dout[at] * gain[i];
      const double old = store == Store::Add ? dx[at] : 0;
      of_dx.push_back(
          {old + the.inverse * g - cube * the.dot * x[at] / n,
           std::abs(old) + the.inverse * std::abs(g) + cube * the.magnitude * std::abs(x[at]) / n});
      of_dgain[static_cast<std::size_t>(i)].value += dout[at] * normed;
      of_dgain[static_cast<std::size_t>(i)].scale += std::abs(dout[at] * normed);
    }
  }
  const double stored = dtype == Dtype::F32 ? 0 : 2;
  check(out, of_out, depth(width) + 12, stored);
  check(dx, of_dx, 2 * depth(width) + 24, stored);
  check(dgain, of_dgain, depth(width) + depth(rows) + 12, stored);
  (void)scratch.read();
  (void)saved.read();
}

void check_foreach(Dtype dtype, std::int64_t count, std::int64_t step) {
  CAPTURE(name_of(dtype));
  CAPTURE(count);
  CAPTURE(step);
  const auto [skew, w, m, v, g] = adamw_problem(dtype, count);
  const DeviceArray root(dtype, count, skew);
  const AdamW options{.learning_rate = 2e-3F};
  foreach_adamw(
      stream(), options, w.array(), m.array(), v.array(), g.array(), root.array(), count, step);
  const double rate = options.learning_rate;
  const double b1 = options.beta1;
  const double b2 = options.beta2;
  const auto steps = static_cast<double>(step);
  std::vector<Expected> of_w;
  std::vector<Expected> of_m;
  std::vector<Expected> of_v;
  std::vector<Expected> of_root;
  for (std::int64_t i = 0; i < count; ++i) {
    const double first = m[i] + (1 - b1) * (g[i] - m[i]);
    const double first_scale = std::abs(m[i]) + std::abs(g[i]);
    const double second = b2 * v[i] + (1 - b2) * g[i] * g[i];
    const double deviation = std::sqrt(second / (1 - std::pow(b2, steps))) + options.epsilon;
    const double slope = rate / (1 - std::pow(b1, steps)) / deviation;
    const double kept = w[i] - rate * options.weight_decay * w[i];
    of_m.push_back({first, first_scale});
    of_v.push_back({second, second});
    of_root.push_back({deviation, deviation});
    of_w.push_back({kept - slope * first, std::abs(kept) + slope * first_scale});
  }
  // Between its operations everything is rounded to the dtype of the parameters.
  const double stored = dtype == Dtype::F32 ? 0 : 1;
  check(m, of_m, 4);
  check(v, of_v, 4, stored);
  check(root, of_root, 12, 5 * stored);
  check(w, of_w, 20, 6 * stored);
}

}  // namespace

TEST_CASE("cuda: gelu_new operation by operation, with and without autocast's casts") {
  for (const GeluTypes& types : kGeluTypes) {
    for (const std::int64_t count : {1, 7, 768, 4099}) {
      check_gelu_new(types, count);
    }
  }
  const DeviceArray x(Dtype::Bf16, 8);
  const DeviceArray y(Dtype::F16, 8);
  const DeviceArray memory(Dtype::F32, 128);
  CHECK_THROWS_AS(
      gelu_new_forward(stream(), y.array(), memory.floats(), memory.floats(), x.array(), 8),
      InputError);
}

TEST_CASE("cuda: the loss by log_softmax and nll_loss, in F32") {
  for (const Dtype dtype : kDtypes) {
    for (const Shape& shape : shapes()) {
      check_log_softmax_loss(shape, dtype);
    }
  }
}

TEST_CASE("cuda: the RMS norm operation by operation") {
  for (const Dtype dtype : kDtypes) {
    for (const Shape& shape : shapes(4099)) {
      check_rms_norm(shape, dtype, Store::Assign);
      check_rms_norm(shape, dtype, Store::Add);
    }
  }
}

TEST_CASE("cuda: AdamW as foreach updates weights and moments in chunks") {
  for (const Dtype dtype : kDtypes) {
    for (const std::int64_t count : {1, 7, 4099, 2 * 65536 + 2051}) {
      check_foreach(dtype, count, 1);
      check_foreach(dtype, count, 1000);
    }
  }
}

TEST_CASE("cuda: a residual sum in F32 of a branch in 16 bit") {
  for (const Dtype dtype : kDtypes) {
    for (const std::int64_t count : {1, 7, 4099}) {
      const DeviceArray branch(dtype, numbers(count, 1));
      const DeviceArray residual(Dtype::F32, numbers(count, 2));
      const DeviceArray out(Dtype::F32, count);
      add_elements(stream(), out.array(), branch.array(), residual.array(), {}, count);
      std::vector<Expected> expected;
      for (std::int64_t i = 0; i < count; ++i) {
        expected.push_back({branch[i] + residual[i], std::abs(branch[i]) + std::abs(residual[i])});
      }
      check(out, expected, 1);
    }
  }
}

}  // namespace stepsim::cuda::test
