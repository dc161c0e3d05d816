#include "calibrate/cpu/gemm.h"

#include <algorithm>

#include <Eigen/Core>

namespace stepsim::cpu {
namespace {

using Dense = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Stride = Eigen::OuterStride<>;
using Reader = Eigen::Map<const Dense, Eigen::Unaligned, Stride>;
using Writer = Eigen::Map<Dense, Eigen::Unaligned, Stride>;

Reader map(const ConstMatrix& m) {
  return Reader(m.data, m.rows, m.cols, Stride(m.stride));
}
Writer map(const Matrix& m) {
  return Writer(m.data, m.rows, m.cols, Stride(m.stride));
}

template <typename A, typename B>
void multiply(Writer c, const A& a, const B& b, float alpha, Store store) {
  if (store == Store::Assign) {
    c.noalias() = alpha * (a * b);
  } else {
    c.noalias() += alpha * (a * b);
  }
}

}  // namespace

void gemm_nn(Matrix c, ConstMatrix a, ConstMatrix b, float alpha, Store store) {
  multiply(map(c), map(a), map(b), alpha, store);
}

void gemm_nt(Matrix c, ConstMatrix a, ConstMatrix b, float alpha, Store store) {
  multiply(map(c), map(a), map(b).transpose(), alpha, store);
}

void gemm_tn(Matrix c, ConstMatrix a, ConstMatrix b, float alpha, Store store) {
  multiply(map(c), map(a).transpose(), map(b), alpha, store);
}

void Gemm::run(const Stream& /*stream*/, const GemmCall& call) {
  if (call.bias != nullptr) {
    for (std::int64_t row = 0; row < call.m; ++row) {
      std::copy_n(call.bias, call.n, call.c + row * call.ldc);
    }
  }
  const Store store = call.bias != nullptr || call.beta != 0 ? Store::Add : Store::Assign;
  const Matrix c{call.c, call.m, call.n, call.ldc};
  if (call.transpose_a) {
    gemm_tn(c, {call.a, call.k, call.m, call.lda}, {call.b, call.k, call.n, call.ldb}, 1.0F, store);
  } else if (call.transpose_b) {
    gemm_nt(c, {call.a, call.m, call.k, call.lda}, {call.b, call.n, call.k, call.ldb}, 1.0F, store);
  } else {
    gemm_nn(c, {call.a, call.m, call.k, call.lda}, {call.b, call.k, call.n, call.ldb}, 1.0F, store);
  }
}

}  // namespace stepsim::cpu
