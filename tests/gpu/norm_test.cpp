#include <cmath>

#include <doctest/doctest.h>

#include "calibrate/cuda/kernels/kernels.h"
#include "tests/gpu/checks.h"

namespace stepsim::cuda::test {
namespace {

constexpr double kEpsilon = 1e-5F;

/// One row of a norm in double.
struct Row {
  double mean = 0;
  double inverse = 0;    ///< 1 / deviation.
  double magnitude = 0;  ///< Mean of |x|.
  double condition = 0;  ///< Mean of squares / (variance + epsilon): what a rounding of x does.
};

Row row_of(const DeviceArray& x, std::int64_t row, std::int64_t width, bool rms) {
  const auto n = static_cast<double>(width);
  Row result;
  double squares = 0;
  for (std::int64_t i = row * width; i < (row + 1) * width; ++i) {
    result.mean += rms ? 0 : x[i] / n;
    result.magnitude += std::abs(x[i]) / n;
    squares += x[i] * x[i] / n;
  }
  double variance = 0;
  for (std::int64_t i = row * width; i < (row + 1) * width; ++i) {
    variance += (x[i] - result.mean) * (x[i] - result.mean) / n;
  }
  result.inverse = 1 / std::sqrt(variance + kEpsilon);
  result.condition = squares / (variance + kEpsilon);
  return result;
}

/// What one check runs.
struct Case {
  Shape shape;
  Dtype dtype;
  Dtype weights;
  bool rms;
  double center;  ///< Of the inputs.
  std::int64_t skew;
};

void check_forward(const Case& the) {
  const auto [rows, width] = the.shape;
  const DeviceArray x(the.dtype, numbers(rows * width, 1, 1, the.center), the.skew);
  const DeviceArray gain(the.weights, numbers(width, 2, 0.5, 1), the.skew);
  const DeviceArray bias(the.weights, numbers(width, 3), the.skew);
  const DeviceArray out(the.dtype, rows * width, the.skew);
  const DeviceArray saved(Dtype::F32, 2 * rows);
  const NormWeights weights{gain.array(), the.rms ? ConstArray{} : ConstArray{bias.array()}};
  norm_forward(stream(), the.rms, out.array(), saved.floats(), x.array(), weights, rows, width);
  std::vector<Expected> of_out;
  std::vector<Expected> of_saved;
  for (std::int64_t row = 0; row < rows; ++row) {
    const Row exact = row_of(x, row, width, the.rms);
    of_saved.push_back({exact.mean, exact.magnitude});
    of_saved.push_back({exact.inverse, exact.inverse * (1 + exact.condition)});
    for (std::int64_t i = 0; i < width; ++i) {
      const double in = x[row * width + i];
      const double b = the.rms ? 0 : bias[i];
      const double scale =
          std::abs(gain[i]) * exact.inverse *
          (std::abs(in) + exact.magnitude + std::abs(in - exact.mean) * (1 + exact.condition));
      of_out.push_back({(in - exact.mean) * exact.inverse * gain[i] + b, scale + std::abs(b)});
    }
  }
  check(saved, of_saved, depth(width) + 16);
  check(out, of_out, depth(width) + 16);
}

void check_backward(const Case& the, Store store) {
  const auto [rows, width] = the.shape;
  const auto n = static_cast<double>(width);
  const DeviceArray x(the.dtype, numbers(rows * width, 1, 1, the.center), the.skew);
  const DeviceArray dout(the.dtype, numbers(rows * width, 4), the.skew);
  const DeviceArray gain(the.weights, numbers(width, 2, 0.5, 1), the.skew);
  const DeviceArray dgain(the.weights, numbers(width, 5), the.skew);
  const DeviceArray dbias(the.weights, numbers(width, 6), the.skew);
  std::vector<double> of_saved;
  for (std::int64_t row = 0; row < rows; ++row) {
    const Row exact = row_of(x, row, width, the.rms);
    of_saved.insert(of_saved.end(), {exact.mean, exact.inverse});
  }
  const DeviceArray saved(Dtype::F32, of_saved);
  const std::vector<double> before = numbers(rows * width, 7);
  const DeviceArray dx(the.dtype, before, the.skew);
  const DeviceArray scratch(Dtype::F32, norm_scratch(rows, width));
  const NormGradients gradients{dgain.array(), the.rms ? Array{} : dbias.array()};
  norm_backward(stream(),
                the.rms,
                dx.array(),
                store,
                gradients,
                dout.array(),
                x.array(),
                saved.floats(),
                {gain.array(), {}},
                rows,
                width,
                scratch.floats());
  std::vector<Expected> of_dx;
  std::vector<Expected> of_dgain;
  std::vector<Expected> of_dbias;
  for (std::int64_t i = 0; i < width; ++i) {
    of_dgain.push_back({dgain[i], std::abs(dgain[i])});
    of_dbias.push_back({dbias[i], std::abs(dbias[i])});
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    const double mean = saved[2 * row];
    const double inverse = saved[2 * row + 1];
    Expected g_mean;
    Expected g_x_mean;
    for (std::int64_t i = 0; i < width; ++i) {
      const double d = dout[row * width + i];
      const double xhat = (x[row * width + i] - mean) * inverse;
      const double g = d * gain[i];
      g_mean.value += the.rms ? 0 : g / n;
      g_mean.scale += the.rms ? 0 : std::abs(g) / n;
      g_x_mean.value += g * xhat / n;
      g_x_mean.scale += std::abs(g * xhat) / n;
      const auto column = static_cast<std::size_t>(i);
      of_dgain[column].value += d * xhat;
      of_dgain[column].scale += std::abs(d * xhat);
      of_dbias[column].value += d;
      of_dbias[column].scale += std::abs(d);
    }
    for (std::int64_t i = 0; i < width; ++i) {
      const std::int64_t at = row * width + i;
      const double xhat = (x[at] - mean) * inverse;
      const double g = dout[at] * gain[i];
      const double kept = store == Store::Add ? dx[at] : 0;
      of_dx.push_back({kept + inverse * (g - g_mean.value - xhat * g_x_mean.value),
                       std::abs(kept) + inverse * (std::abs(g) + g_mean.scale +
                                                   std::abs(xhat) * g_x_mean.scale)});
    }
  }
  check(dx, of_dx, depth(width) + 10);
  check(dgain, of_dgain, depth(rows) + 5);
  if (the.rms) {
    check_exact(dbias, dbias.values());
  } else {
    check(dbias, of_dbias, depth(rows) + 2);
  }
  static_cast<void>(scratch.read());
}

}  // namespace

TEST_CASE("cuda: layer norm and RMS norm") {
  for (const bool rms : {false, true}) {
    for (const Dtype dtype : kDtypes) {
      for (const Shape& shape : shapes(4099)) {
        for (const double center : {0.0, 3.0}) {
          CAPTURE(rms);
          CAPTURE(shape.rows);
          CAPTURE(shape.width);
          CAPTURE(center);
          check_forward({shape, dtype, dtype, rms, center, shape.rows == 3 ? 1 : 0});
        }
      }
    }
  }
}

TEST_CASE("cuda: gradients of layer norm and RMS norm") {
  for (const bool rms : {false, true}) {
    for (const Dtype dtype : kDtypes) {
      for (const Shape& shape : shapes(4099)) {
        for (const Store store : {Store::Assign, Store::Add}) {
          CAPTURE(rms);
          CAPTURE(shape.rows);
          CAPTURE(shape.width);
          check_backward({shape, dtype, dtype, rms, 1, shape.rows == 3 ? 1 : 0}, store);
        }
      }
    }
  }
}

TEST_CASE("cuda: norms whose parameters have another dtype") {
  for (const Dtype dtype : kDtypes) {
    for (const Dtype weights : kDtypes) {
      CAPTURE(name_of(weights));
      check_forward({{3, 768}, dtype, weights, false, 0, 0});
      check_forward({{3, 7}, dtype, weights, true, 0, 0});
      check_backward({{5, 768}, dtype, weights, false, 0, 0}, Store::Assign);
      check_backward({{5, 7}, dtype, weights, true, 0, 0}, Store::Add);
    }
  }
}

TEST_CASE("cuda: norms without parameters") {
  constexpr std::int64_t kWidth = 768;
  const DeviceArray x(Dtype::Bf16, numbers(3 * kWidth, 1));
  const DeviceArray ones(Dtype::Bf16, std::vector<double>(kWidth, 1.0));
  const DeviceArray plain(Dtype::Bf16, 3 * kWidth);
  const DeviceArray with_ones(Dtype::Bf16, 3 * kWidth);
  const DeviceArray saved(Dtype::F32, 6);
  norm_forward(stream(), false, plain.array(), saved.floats(), x.array(), {}, 3, kWidth);
  norm_forward(
      stream(), false, with_ones.array(), saved.floats(), x.array(), {ones.array(), {}}, 3, kWidth);
  CHECK(plain.read() == with_ones.read());
  const DeviceArray dx(Dtype::Bf16, 3 * kWidth);
  const DeviceArray dx_ones(Dtype::Bf16, 3 * kWidth);
  const auto backward = [&](const DeviceArray& to, const NormWeights& weights) {
    norm_backward(stream(),
                  false,
                  to.array(),
                  Store::Assign,
                  {},
                  x.array(),
                  x.array(),
                  saved.floats(),
                  weights,
                  3,
                  kWidth,
                  nullptr);
  };
  backward(dx, {});
  backward(dx_ones, {ones.array(), {}});
  CHECK(dx.read() == dx_ones.read());
}

}  // namespace stepsim::cuda::test
