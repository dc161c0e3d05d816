#include "calibrate/cpu/gemm.h"

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

}  // namespace stepsim::cpu
