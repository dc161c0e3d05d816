#include <cmath>

#include <doctest/doctest.h>

#include "calibrate/cuda/kernels/kernels.h"
#include "tests/gpu/checks.h"

namespace stepsim::cuda::test {
namespace {

constexpr std::int64_t kTableRows = 5;

/// Rows of a table, some of them several times.
std::vector<std::int32_t> some_rows(std::int64_t rows) {
  std::vector<std::int32_t> index;
  for (std::int64_t row = 0; row < rows; ++row) {
    index.push_back(static_cast<std::int32_t>(row * row % kTableRows));
  }
  return index;
}

/// Three samples in memory, the second without a useful token.
struct Samples {
  std::int64_t length = 9;
  std::vector<std::int32_t> lengths{4, 0, 9};
  std::vector<std::int32_t> offsets{0, 5, 7, 16};  ///< Packed, the first two with spare rows.
};

struct RowPlace {
  std::int64_t first;
  std::int64_t count;
};

/// The rows of a sample that are pooled.
RowPlace pooled(const Samples& samples, bool packed, bool mean, std::size_t sample) {
  const std::int64_t first =
      packed ? samples.offsets[sample] : static_cast<std::int64_t>(sample) * samples.length;
  const std::int64_t useful = samples.lengths[sample];
  return {first, mean ? useful : std::min<std::int64_t>(useful, 1)};
}

void check_pooling(Dtype dtype, std::int64_t width, bool packed, bool mean) {
  CAPTURE(name_of(dtype));
  CAPTURE(width);
  CAPTURE(packed);
  CAPTURE(mean);
  const Samples samples;
  const std::int64_t rows = packed ? samples.offsets.back() : 3 * samples.length;
  const DeviceInts lengths(samples.lengths);
  const DeviceInts offsets(samples.offsets);
  const SequenceRows sequences{
      3, samples.length, packed ? offsets.data() : nullptr, lengths.data()};
  const DeviceArray x(dtype, numbers(rows * width, 1));
  const DeviceArray dout(dtype, numbers(3 * width, 2));
  const DeviceArray out(dtype, 3 * width);
  const DeviceArray dx(dtype, rows * width);
  pool_forward(stream(), out.array(), x.array(), sequences, width, mean);
  pool_backward(stream(), dx.array(), dout.array(), sequences, width, mean);
  std::vector<Expected> of_out(static_cast<std::size_t>(3 * width));
  std::vector<Expected> of_dx(static_cast<std::size_t>(rows * width));
  for (std::size_t sample = 0; sample < 3; ++sample) {
    const RowPlace place = pooled(samples, packed, mean, sample);
    const double weight = place.count > 0 ? 1.0 / static_cast<double>(place.count) : 0.0;
    for (std::int64_t row = place.first; row < place.first + place.count; ++row) {
      for (std::int64_t column = 0; column < width; ++column) {
        const std::size_t to = sample * static_cast<std::size_t>(width) + column;
        const std::int64_t from = row * width + column;
        of_out[to].value += weight * x[from];
        of_out[to].scale += weight * std::abs(x[from]);
        const double gradient = weight * dout[static_cast<std::int64_t>(to)];
        of_dx[static_cast<std::size_t>(from)] = {gradient, std::abs(gradient)};
      }
    }
  }
  check(out, of_out, depth(samples.length) + 2);
  check(dx, of_dx, 2);
}

}  // namespace

TEST_CASE("cuda: rows gathered from a table") {
  for (const Dtype to : kDtypes) {
    for (const Dtype from : kDtypes) {
      for (const Shape& shape : shapes()) {
        if (shape.count() > 100'000) {
          continue;
        }
        CAPTURE(shape.rows);
        CAPTURE(shape.width);
        const DeviceArray table(from, numbers(kTableRows * shape.width, 1));
        const DeviceInts index(some_rows(shape.rows));
        const DeviceArray out(to, shape.count());
        gather_rows(stream(), out.array(), table.array(), index.data(), shape.rows, shape.width);
        std::vector<double> expected;
        for (std::int64_t i = 0; i < shape.count(); ++i) {
          expected.push_back(table[index[i / shape.width] * shape.width + i % shape.width]);
        }
        check_exact(out, expected);
      }
    }
  }
}

TEST_CASE("cuda: rows added to a table, several to one") {
  for (const Dtype to : kDtypes) {
    for (const Dtype from : kDtypes) {
      for (const Shape& shape : {Shape{1, 1}, Shape{3, 768}, Shape{257, 7}, Shape{257, 1000}}) {
        CAPTURE(name_of(from));
        CAPTURE(shape.width);
        const DeviceArray table(to, numbers(kTableRows * shape.width, 1));
        const DeviceArray dout(from, numbers(shape.count(), 2));
        const DeviceInts index(some_rows(shape.rows));
        scatter_add_rows(
            stream(), table.array(), dout.array(), index.data(), shape.rows, shape.width);
        std::vector<Expected> expected;
        for (const double before : table.values()) {
          expected.push_back({before, std::abs(before)});
        }
        for (std::int64_t i = 0; i < shape.count(); ++i) {
          const std::int64_t at = index[i / shape.width] * shape.width + i % shape.width;
          Expected& sum = expected[static_cast<std::size_t>(at)];
          sum.value += dout[i];
          sum.scale += std::abs(dout[i]);
        }
        // Each addition rounds in the table's dtype, its operand before that as well.
        check(table, expected, 0, static_cast<double>(shape.rows) + 1);
      }
    }
  }
}

TEST_CASE("cuda: column sums") {
  for (const Dtype to : kDtypes) {
    for (const Dtype from : kDtypes) {
      for (const Shape& shape : shapes()) {
        if (small() && to != from && shape.width > 64) {
          continue;
        }
        CAPTURE(name_of(from));
        CAPTURE(shape.rows);
        CAPTURE(shape.width);
        const std::int64_t skew = shape.rows == 3 ? 1 : 0;
        const DeviceArray x(from, numbers(shape.count(), 1), skew);
        const DeviceArray total(to, numbers(shape.width, 2), skew);
        const DeviceArray scratch(Dtype::F32, column_sums_scratch(shape.rows, shape.width));
        add_column_sums(
            stream(), total.array(), x.array(), shape.rows, shape.width, scratch.floats());
        std::vector<Expected> expected;
        for (const double before : total.values()) {
          expected.push_back({before, std::abs(before)});
        }
        for (std::int64_t i = 0; i < shape.count(); ++i) {
          Expected& sum = expected[static_cast<std::size_t>(i % shape.width)];
          sum.value += x[i];
          sum.scale += std::abs(x[i]);
        }
        check(total, expected, depth(shape.rows) + 1);
        static_cast<void>(scratch.read());
      }
    }
  }
}

TEST_CASE("cuda: pooling over padded and packed samples, and its gradient") {
  for (const Dtype dtype : kDtypes) {
    for (const std::int64_t width : {1, 7, 768, 1023}) {
      for (const bool packed : {false, true}) {
        for (const bool mean : {false, true}) {
          check_pooling(dtype, width, packed, mean);
        }
      }
    }
  }
}

}  // namespace stepsim::cuda::test
