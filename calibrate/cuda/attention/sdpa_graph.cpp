#include "calibrate/cuda/attention/sdpa_graph.h"

#include <utility>

namespace stepsim::cuda {
namespace {

using Role = GraphRole;
using Mode = GraphMode;
using Tensor = GraphTensor;

GraphType type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::Bf16:
      return GraphType::Bf16;
    case Dtype::F16:
      return GraphType::F16;
    default:
      return GraphType::F32;
  }
}

GraphDims row_major(const GraphDims& dims) {
  return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
}

/// Rows and columns exchanged: the same memory read as the transposed matrix.
GraphDims transposed(const GraphDims& dims) {
  return {dims[0], dims[1], dims[3], dims[2]};
}

/// Adds tensors and operations of one attention problem.
class Builder {
 public:
  explicit Builder(const SdpaShape& shape)
      : shape_(shape),
        type_(type_of(shape.dtype)),
        q_dims_{shape.samples, shape.heads, shape.length, shape.head_dim},
        kv_dims_{shape.samples, shape.kv_heads, shape.length, shape.head_dim},
        score_dims_{shape.samples, shape.heads, shape.length, shape.length},
        row_dims_{shape.samples, shape.heads, shape.length, 1} {
    if (shape.masked || shape.packed) {
      lengths_ = &add(Role::Lengths, GraphType::Int32, {shape.samples, 1, 1, 1}, {1, 1, 1, 1});
    }
    if (shape.packed) {
      q_offsets_ = &offsets(Role::QOffsets);
      kv_offsets_ = &offsets(Role::KvOffsets);
      o_offsets_ = &offsets(Role::OOffsets);
      statistics_offsets_ = &offsets(Role::StatisticsOffsets);
    }
  }

  SdpaGraph forward();
  SdpaGraph backward();

 private:
  const Tensor& add(Role role,
                    GraphType type,
                    const GraphDims& dims,
                    const GraphDims& strides,
                    const Tensor* offsets = nullptr) {
    graph_.tensors.push_back({role, type, dims, strides, offsets, next_id_++});
    return graph_.tensors.back();
  }
  const Tensor& inner(const GraphDims& dims, GraphType type = GraphType::F32) {
    return add(Role::Inner, type, dims, row_major(dims));
  }
  const Tensor& scalar(Role role, GraphType type = GraphType::F32) {
    return add(role, type, {1, 1, 1, 1}, {1, 1, 1, 1});
  }
  const Tensor& offsets(Role role) {
    return add(role, GraphType::Int64, {shape_.samples + 1, 1, 1, 1}, {1, 1, 1, 1});
  }

  /// Heads as columns of rows of tokens.
  [[nodiscard]] GraphDims token_strides(std::int64_t stride) const {
    return {shape_.length * stride, shape_.head_dim, stride, 1};
  }
  const Tensor& q_like(Role role) {
    return add(role, type_, q_dims_, token_strides(shape_.q_stride), q_offsets_);
  }
  const Tensor& kv_like(Role role) {
    return add(role, type_, kv_dims_, token_strides(shape_.kv_stride), kv_offsets_);
  }
  /// k or v as [head_dim][key]: cuDNN takes the transposes.
  const Tensor& kv_transposed(Role role) {
    return add(role,
               type_,
               transposed(kv_dims_),
               transposed(token_strides(shape_.kv_stride)),
               kv_offsets_);
  }
  const Tensor& o_like(Role role) {
    return add(role, type_, q_dims_, token_strides(shape_.o_stride), o_offsets_);
  }
  const Tensor& statistics() {
    const GraphDims packed{shape_.heads * shape_.length, 1, shape_.heads, 1};
    return add(Role::Statistics,
               GraphType::F32,
               row_dims_,
               shape_.packed ? packed : row_major(row_dims_),
               statistics_offsets_);
  }

  const Tensor& operate(
      Mode mode, const Tensor& x, const Tensor* b, const Tensor& y, const Tensor* mask = nullptr) {
    graph_.operations.push_back({.mode = mode, .x = &x, .b = b, .mask = mask, .y = &y});
    return y;
  }
  const Tensor& multiply(const Tensor& a,
                         const Tensor& b,
                         const Tensor& c,
                         const Tensor* m,
                         const Tensor* n,
                         const Tensor* k) {
    graph_.operations.push_back(
        {.mode = Mode::MatMul, .x = &a, .b = &b, .y = &c, .m = m, .n = n, .k = k});
    return c;
  }

  /// scale q k^T.
  const Tensor& scores(const Tensor& q, const Tensor& k) {
    const Tensor& product = multiply(q, k, inner(score_dims_), lengths_, lengths_, nullptr);
    return operate(Mode::Multiply, product, &scalar(Role::Scale), inner(score_dims_));
  }
  const Tensor& index(Mode mode, const Tensor& x) {
    return operate(mode, x, nullptr, inner(score_dims_, GraphType::Int32));
  }
  const Tensor& compare(Mode mode, const Tensor& a, const Tensor& b) {
    return operate(mode, a, &b, inner(score_dims_, GraphType::Boolean));
  }
  const Tensor& shifted(const Tensor& index, Role by) {
    return operate(
        Mode::Add, index, &scalar(by, GraphType::Int32), inner(score_dims_, GraphType::Int32));
  }
  const Tensor& keep(const Tensor& x, const Tensor& visible) {
    return operate(Mode::Select, x, &scalar(Role::MaskFill), inner(score_dims_), &visible);
  }
  const Tensor& mask_padding(const Tensor& x);
  const Tensor& mask_right(const Tensor& x);
  const Tensor& mask_left(const Tensor& x);
  const Tensor& with_bias(const Tensor& x);
  const Tensor& hidden(const Tensor& x);

  const Tensor& transpose(const Tensor& x) {
    const Tensor& y = add(Role::Inner, type_, transposed(x.dims), transposed(x.strides));
    return operate(Mode::Transpose, x, nullptr, y);
  }
  void key_gradient(const Tensor& scores_t, const Tensor& x, const Tensor& gradient);

  SdpaShape shape_;
  GraphType type_;
  GraphDims q_dims_, kv_dims_, score_dims_, row_dims_;
  SdpaGraph graph_;
  std::int64_t next_id_ = 1;
  const Tensor* lengths_ = nullptr;
  const Tensor* q_offsets_ = nullptr;
  const Tensor* kv_offsets_ = nullptr;
  const Tensor* o_offsets_ = nullptr;
  const Tensor* statistics_offsets_ = nullptr;
};

/// Rows and columns inside their sequence.
const Tensor& Builder::mask_padding(const Tensor& x) {
  const Tensor& row = index(Mode::RowIndex, x);
  const Tensor& column = index(Mode::ColumnIndex, x);
  const Tensor& row_inside = compare(Mode::Less, row, *lengths_);
  const Tensor& column_inside = compare(Mode::Less, column, *lengths_);
  return keep(x, compare(Mode::And, row_inside, column_inside));
}

/// Keys up to the query (causal), or up to window - 1 after it.
const Tensor& Builder::mask_right(const Tensor& x) {
  const Tensor* row = &index(Mode::RowIndex, x);
  const Tensor& column = index(Mode::ColumnIndex, x);
  if (!shape_.causal) {
    row = &shifted(*row, Role::WindowRight);
  }
  return keep(x, compare(Mode::GreaterEqual, *row, column));
}

/// Keys from window - 1 before the query on.
const Tensor& Builder::mask_left(const Tensor& x) {
  const Tensor& row = index(Mode::RowIndex, x);
  const Tensor& column = shifted(index(Mode::ColumnIndex, x), Role::WindowLeft);
  return keep(x, compare(Mode::Greater, column, row));
}

const Tensor& Builder::with_bias(const Tensor& x) {
  if (!shape_.biased) {
    return x;
  }
  const GraphDims dims{shape_.samples, 1, shape_.length, shape_.length};
  const std::int64_t row = mask_stride(shape_.length);
  const Tensor& mask = add(Role::Mask, type_, dims, {dims[2] * row, dims[2] * row, row, 1});
  return operate(Mode::Add, x, &mask, inner(score_dims_));
}

/// -infinity at the keys that a query does not see.
const Tensor& Builder::hidden(const Tensor& x) {
  const Tensor* result = &x;
  if (lengths_ != nullptr) {
    result = &mask_padding(*result);
  }
  if (shape_.causal || shape_.window > 0) {
    result = &mask_right(*result);
  }
  if (shape_.window > 0) {
    result = &mask_left(*result);
  }
  return *result;
}

SdpaGraph Builder::forward() {
  const Tensor& q = q_like(Role::Q);
  const Tensor& k = kv_transposed(Role::K);
  const Tensor& v = kv_like(Role::V);
  const Tensor& o = o_like(Role::O);
  const Tensor& saved = statistics();
  const Tensor& x = hidden(with_bias(scores(q, k)));
  const Tensor& top = operate(Mode::Max, x, nullptr, inner(row_dims_));
  const Tensor& centred = operate(Mode::Subtract, x, &top, inner(score_dims_));
  const Tensor& e = operate(Mode::Exp, centred, nullptr, inner(score_dims_));
  const Tensor& sum = operate(Mode::Sum, e, nullptr, inner(row_dims_));
  const Tensor& log_sum = operate(Mode::Log, sum, nullptr, inner(row_dims_));
  operate(Mode::Add, top, &log_sum, saved);
  const Tensor& p = operate(Mode::Divide, e, &sum, inner(score_dims_, type_));
  multiply(p, v, o, lengths_, nullptr, lengths_);
  return std::move(graph_);
}

/// gradient = scores^T x, summed over the query heads that share a key head.
void Builder::key_gradient(const Tensor& scores_t, const Tensor& x, const Tensor& gradient) {
  if (shape_.heads == shape_.kv_heads) {
    multiply(scores_t, x, gradient, lengths_, nullptr, lengths_);
    return;
  }
  const Tensor& full = multiply(scores_t, x, inner(q_dims_, type_), lengths_, nullptr, lengths_);
  operate(Mode::Sum, full, nullptr, gradient);
}

SdpaGraph Builder::backward() {
  const Tensor& q = q_like(Role::Q);
  const Tensor& k_t = kv_transposed(Role::K);
  const Tensor& v_t = kv_transposed(Role::V);
  const Tensor& o = o_like(Role::O);
  const Tensor& d_o = o_like(Role::DO);
  const Tensor& saved = statistics();
  const Tensor& dq = q_like(Role::DQ);
  const Tensor& dk = kv_like(Role::DK);
  const Tensor& dv = kv_like(Role::DV);
  const Tensor& row_sum = add(Role::SoftmaxSum, GraphType::F32, row_dims_, row_major(row_dims_));
  // A real tensor, not an inner one: else Hopper's faster engine is not offered.
  const Tensor& dq_sum = add(Role::DQSum, GraphType::F32, q_dims_, row_major(q_dims_));

  // The factor (that of dropout, here 1) is part of the pattern that cuDNN recognises.
  const Tensor& product = operate(Mode::Multiply, d_o, &o, inner(q_dims_));
  const Tensor& dot = operate(Mode::Sum, product, nullptr, inner(row_dims_));
  operate(Mode::Multiply, dot, &scalar(Role::One), row_sum);

  // The statistics are subtracted before anything is hidden: in rows of padding they are undefined,
  // and the masks then replace what came of them. cudnn-frontend has this order, too
  // (include/cudnn_frontend/node/scaled_dot_product_flash_attention.h), so that these are the
  // kernels that others run.
  const Tensor& x = with_bias(scores(q, k_t));
  const Tensor& centred = operate(Mode::Subtract, x, &saved, inner(score_dims_));
  const Tensor& p = operate(Mode::Exp, hidden(centred), nullptr, inner(score_dims_));
  key_gradient(transpose(p), d_o, dv);

  const Tensor& dp = multiply(d_o, v_t, inner(score_dims_), lengths_, lengths_, nullptr);
  const Tensor& dp_centred = operate(Mode::Subtract, dp, &row_sum, inner(score_dims_));
  const Tensor& ds = operate(Mode::Multiply, dp_centred, &p, inner(score_dims_));
  const Tensor& ds_scaled = operate(Mode::Multiply, ds, &scalar(Role::Scale), inner(score_dims_));
  key_gradient(transpose(ds_scaled), q, dk);

  const Tensor& k =
      operate(Mode::Transpose,
              k_t,
              nullptr,
              add(Role::Inner, type_, kv_dims_, token_strides(shape_.kv_stride), kv_offsets_));
  multiply(ds_scaled, k, dq_sum, lengths_, nullptr, lengths_);
  operate(Mode::Identity, dq_sum, nullptr, dq);
  return std::move(graph_);
}

}  // namespace

SdpaGraph sdpa_forward_graph(const SdpaShape& shape) {
  return Builder(shape).forward();
}

SdpaGraph sdpa_backward_graph(const SdpaShape& shape) {
  return Builder(shape).backward();
}

std::string describe(const SdpaShape& shape) {
  std::string text(name_of(shape.dtype));
  text += ", " + std::to_string(shape.samples) + " x " + std::to_string(shape.length) +
          " tokens, " + std::to_string(shape.heads) + " heads (" + std::to_string(shape.kv_heads) +
          " kv) of " + std::to_string(shape.head_dim);
  text += shape.causal ? ", causal" : "";
  text += shape.window > 0 ? ", window " + std::to_string(shape.window) : "";
  text += shape.masked ? ", masked" : "";
  text += shape.biased ? ", with a mask" : "";
  text += shape.packed ? ", packed" : "";
  return text;
}

}  // namespace stepsim::cuda
