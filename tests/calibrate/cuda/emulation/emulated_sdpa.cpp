// sdpa.h on host memory: the plain formula, a row of scores at a time, in double precision.
#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "calibrate/cuda/attention/sdpa.h"
#include "calibrate/cuda/attention/sdpa_graph.h"
#include "costmodel/base/input_error.h"
#include "tests/calibrate/cuda/emulation/device_limits.h"
#include "tests/calibrate/cuda/host_array.h"

namespace stepsim::cuda {
namespace {

/// One query head of one sequence.
class HeadRows {
 public:
  HeadRows(const SdpaShape& shape,
           const SdpaSequences& sequences,
           std::int64_t sample,
           std::int64_t head)
      : shape_(shape), mask_(sequences.mask), sample_(sample), head_(head) {
    first_ = shape.packed ? sequences.offsets[sample] : sample * shape.length;
    length_ = sequences.lengths == nullptr || !(shape.masked || shape.packed)
                  ? shape.length
                  : sequences.lengths[sample];
  }

  [[nodiscard]] std::int64_t length() const { return length_; }
  /// What the mask adds to a score.
  [[nodiscard]] double bias(std::int64_t query, std::int64_t key) const {
    const std::int64_t at = (sample_ * shape_.length + query) * mask_stride(shape_.length) + key;
    return shape_.biased ? load({mask_, shape_.dtype}, at) : 0;
  }
  /// Element of feature 0 of a row, in q and o, and of the shared key head in k and v.
  [[nodiscard]] std::int64_t q(std::int64_t row) const {
    return (first_ + row) * shape_.q_stride + head_ * shape_.head_dim;
  }
  [[nodiscard]] std::int64_t o(std::int64_t row) const {
    return (first_ + row) * shape_.o_stride + head_ * shape_.head_dim;
  }
  [[nodiscard]] std::int64_t kv(std::int64_t row) const {
    return (first_ + row) * shape_.kv_stride +
           head_ * shape_.kv_heads / shape_.heads * shape_.head_dim;
  }
  [[nodiscard]] std::int64_t statistic(std::int64_t row) const {
    return shape_.packed ? (first_ + row) * shape_.heads + head_
                         : (sample_ * shape_.heads + head_) * shape_.length + row;
  }
  /// Keys that a query sees: [from, to).
  [[nodiscard]] std::int64_t from(std::int64_t row) const {
    return shape_.window > 0 ? std::max<std::int64_t>(0, row + 1 - shape_.window) : 0;
  }
  [[nodiscard]] std::int64_t to(std::int64_t row) const {
    if (shape_.causal) {
      return row + 1;
    }
    return shape_.window > 0 ? std::min(length_, row + shape_.window) : length_;
  }

 private:
  const SdpaShape& shape_;
  const void* mask_;
  std::int64_t sample_;
  std::int64_t head_;
  std::int64_t first_ = 0;
  std::int64_t length_ = 0;
};

double dot(ConstArray a, std::int64_t a_at, ConstArray b, std::int64_t b_at, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    sum += load(a, a_at + i) * load(b, b_at + i);
  }
  return sum;
}

/// sums += factor * x[at ...].
void add_scaled(std::vector<double>& sums, double factor, ConstArray x, std::int64_t at) {
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sums[i] += factor * load(x, at + static_cast<std::int64_t>(i));
  }
}

void store_all(Array out, std::int64_t at, const std::vector<double>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    store(out, at + static_cast<std::int64_t>(i), values[i]);
  }
}

double scale_of(const SdpaShape& shape) {
  return 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
}

void forward_row(const SdpaShape& shape,
                 const HeadRows& rows,
                 std::int64_t query,
                 const SdpaForward& arrays) {
  std::vector<double> sums(static_cast<std::size_t>(shape.head_dim));
  if (query >= rows.length()) {
    store_all(arrays.o, rows.o(query), sums);
    return;
  }
  std::vector<double> scores;
  for (std::int64_t key = rows.from(query); key < rows.to(query); ++key) {
    const double product = dot(arrays.q, rows.q(query), arrays.k, rows.kv(key), shape.head_dim);
    scores.push_back(scale_of(shape) * product + rows.bias(query, key));
  }
  const double top = *std::max_element(scores.begin(), scores.end());
  double total = 0;
  for (double& score : scores) {
    score = std::exp(score - top);
    total += score;
  }
  for (std::int64_t key = rows.from(query); key < rows.to(query); ++key) {
    add_scaled(sums,
               scores[static_cast<std::size_t>(key - rows.from(query))] / total,
               arrays.v,
               rows.kv(key));
  }
  store_all(arrays.o, rows.o(query), sums);
  arrays.statistics[rows.statistic(query)] = static_cast<float>(top + std::log(total));
}

/// dk and dv of one key head's rows, summed over the query heads that share it.
struct KeyGradients {
  std::vector<std::vector<double>> dk, dv;
};

void backward_row(const SdpaShape& shape,
                  const HeadRows& rows,
                  std::int64_t query,
                  const SdpaBackward& arrays,
                  KeyGradients& keys) {
  std::vector<double> dq(static_cast<std::size_t>(shape.head_dim));
  const double total = dot(arrays.d_o, rows.o(query), arrays.o, rows.o(query), shape.head_dim);
  for (std::int64_t key = rows.from(query); key < rows.to(query); ++key) {
    const double score =
        scale_of(shape) * dot(arrays.q, rows.q(query), arrays.k, rows.kv(key), shape.head_dim) +
        rows.bias(query, key);
    const double p = std::exp(score - arrays.statistics[rows.statistic(query)]);
    const double dp = dot(arrays.d_o, rows.o(query), arrays.v, rows.kv(key), shape.head_dim);
    const double ds = p * (dp - total) * scale_of(shape);
    add_scaled(dq, ds, arrays.k, rows.kv(key));
    add_scaled(keys.dk[static_cast<std::size_t>(key)], ds, arrays.q, rows.q(query));
    add_scaled(keys.dv[static_cast<std::size_t>(key)], p, arrays.d_o, rows.o(query));
  }
  store_all(arrays.dq, rows.q(query), dq);
}

/// Rows of a sequence in memory: padding included, unless packed.
std::int64_t stored_rows(const SdpaShape& shape, const HeadRows& rows) {
  return shape.packed ? rows.length() : shape.length;
}

}  // namespace

struct Sdpa::State {
  std::set<SdpaShape> prepared;
};

Sdpa::Sdpa() : state_(std::make_unique<State>()) {}
Sdpa::~Sdpa() = default;

/// Refuses what cuDNN has no kernel for on Hopper, and the length that a test has named.
void Sdpa::prepare(const SdpaShape& shape) {
  if (shape.length == emulated::length_without_plan) {
    throw EnvironmentFault("no fused attention kernel for " + describe(shape));
  }
  const bool half = shape.dtype == Dtype::Bf16 || shape.dtype == Dtype::F16;
  if (!half || shape.head_dim % 8 != 0 || shape.head_dim > 256) {
    throw EnvironmentFault("no fused attention kernel for " + describe(shape));
  }
}

std::vector<std::string> Sdpa::prepare_all(std::span<const SdpaShape> shapes) {
  std::vector<std::string> reasons;
  for (const SdpaShape& shape : shapes) {
    try {
      prepare(shape);
      state_->prepared.insert(shape);
      reasons.emplace_back();
    } catch (const EnvironmentFault& fault) {
      reasons.emplace_back(fault.what());
    }
  }
  return reasons;
}

std::vector<SdpaPlan> Sdpa::plans() const {
  std::vector<SdpaPlan> plans;
  for (const SdpaShape& shape : state_->prepared) {
    plans.push_back({shape, 1, 2, 0, 0});
  }
  return plans;
}

void Sdpa::release() {}

void Sdpa::forward(const Stream& /*stream*/,
                   const SdpaShape& shape,
                   const SdpaSequences& sequences,
                   const SdpaForward& arrays) {
  prepare(shape);
  for (std::int64_t sample = 0; sample < shape.samples; ++sample) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const HeadRows rows(shape, sequences, sample, head);
      for (std::int64_t query = 0; query < stored_rows(shape, rows); ++query) {
        forward_row(shape, rows, query, arrays);
      }
    }
  }
}

void Sdpa::backward(const Stream& /*stream*/,
                    const SdpaShape& shape,
                    const SdpaSequences& sequences,
                    const SdpaBackward& arrays) {
  prepare(shape);
  const std::int64_t group = shape.heads / shape.kv_heads;
  const std::vector<double> zero(static_cast<std::size_t>(shape.head_dim));
  for (std::int64_t sample = 0; sample < shape.samples; ++sample) {
    for (std::int64_t first = 0; first < shape.heads; first += group) {
      const HeadRows kv_rows(shape, sequences, sample, first);
      const auto stored = static_cast<std::size_t>(stored_rows(shape, kv_rows));
      KeyGradients keys{{stored, zero}, {stored, zero}};
      for (std::int64_t head = first; head < first + group; ++head) {
        const HeadRows rows(shape, sequences, sample, head);
        for (std::int64_t query = 0; query < rows.length(); ++query) {
          backward_row(shape, rows, query, arrays, keys);
        }
        for (std::int64_t query = rows.length(); query < stored_rows(shape, rows); ++query) {
          store_all(arrays.dq, rows.q(query), zero);
        }
      }
      for (std::size_t key = 0; key < stored; ++key) {
        store_all(arrays.dk, kv_rows.kv(static_cast<std::int64_t>(key)), keys.dk[key]);
        store_all(arrays.dv, kv_rows.kv(static_cast<std::int64_t>(key)), keys.dv[key]);
      }
    }
  }
}

std::string cudnn_version() {
  return "emulated";
}

}  // namespace stepsim::cuda
