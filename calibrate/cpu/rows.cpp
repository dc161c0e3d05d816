#include "calibrate/cpu/rows.h"

#include <algorithm>

namespace stepsim::cpu {
namespace {

/// out += a.
void accumulate(float* __restrict out, const float* __restrict a, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] += a[i];
  }
}

/// What each position of a sample weighs in its pooled row: 1/useful on useful tokens and 0 on
/// padding for the mean, or 1 on the first token.
struct PoolWeights {
  float weight;
  std::int64_t count;  ///< Positions that have this weight.

  PoolWeights(const SequenceRows& sequences, std::int64_t sample, bool mean)
      : weight(mean ? 1.0F / static_cast<float>(sequences.lengths[sample]) : 1.0F),
        count(mean ? sequences.lengths[sample] : 1) {}
  [[nodiscard]] float at(std::int64_t position) const { return position < count ? weight : 0.0F; }
};

}  // namespace

void gather_rows(const Stream& /*stream*/,
                 float* out,
                 const float* table,
                 const std::int32_t* index,
                 std::int64_t rows,
                 std::int64_t width) {
  for (std::int64_t row = 0; row < rows; ++row) {
    std::copy_n(table + index[row] * width, width, out + row * width);
  }
}

void scatter_add_rows(const Stream& /*stream*/,
                      float* dtable,
                      const float* dout,
                      const std::int32_t* index,
                      std::int64_t rows,
                      std::int64_t width) {
  for (std::int64_t row = 0; row < rows; ++row) {
    accumulate(dtable + index[row] * width, dout + row * width, width);
  }
}

void add_column_sums(const Stream& /*stream*/,
                     float* total,
                     const float* x,
                     std::int64_t rows,
                     std::int64_t width,
                     float* /*scratch*/) {
  for (std::int64_t row = 0; row < rows; ++row) {
    accumulate(total, x + row * width, width);
  }
}

void pool_forward(const Stream& /*stream*/,
                  float* out,
                  const float* x,
                  const SequenceRows& sequences,
                  std::int64_t width,
                  bool mean) {
  for (std::int64_t sample = 0; sample < sequences.samples; ++sample) {
    const float* first = x + sample * sequences.length * width;
    float* __restrict pooled = out + sample * width;
    if (!mean) {
      std::copy_n(first, width, pooled);
      continue;
    }
    const PoolWeights weights(sequences, sample, mean);
    std::fill_n(pooled, width, 0.0F);
    for (std::int64_t position = 0; position < sequences.length; ++position) {
      const float* __restrict row = first + position * width;
      const float w = weights.at(position);
      for (std::int64_t i = 0; i < width; ++i) {
        pooled[i] += w * row[i];
      }
    }
  }
}

void pool_backward(const Stream& stream,
                   float* dx,
                   const float* dout,
                   const SequenceRows& sequences,
                   std::int64_t width,
                   bool mean) {
  for (std::int64_t sample = 0; sample < sequences.samples; ++sample) {
    const PoolWeights weights(sequences, sample, mean);
    for (std::int64_t position = 0; position < sequences.length; ++position, dx += width) {
      scaled_copy(stream, dx, dout + sample * width, weights.at(position), width, Store::Assign);
    }
  }
}

void add_elements(const Stream& /*stream*/,
                  float* __restrict out,
                  const float* __restrict a,
                  const float* __restrict b,
                  const float* __restrict c,
                  std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = a[i] + b[i];
  }
  if (c != nullptr) {
    accumulate(out, c, count);
  }
}

void scaled_copy(const Stream& /*stream*/,
                 float* __restrict out,
                 const float* __restrict a,
                 float factor,
                 std::int64_t count,
                 Store store) {
  if (store == Store::Assign) {
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] = factor * a[i];
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] += factor * a[i];
    }
  }
}

}  // namespace stepsim::cpu
