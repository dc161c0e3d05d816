#include "calibrate/cuda/ops/op_runner.h"

#include <algorithm>
#include <cmath>

#include "calibrate/cuda/attention/sdpa_kernels.h"
#include "calibrate/cuda/kernels/kernels.h"
#include "calibrate/cuda/ops/linear.h"
#include "costmodel/base/input_error.h"
#include "costmodel/model/op_flops.h"
#include "costmodel/model/transformer_layout.h"

namespace stepsim::cuda {
namespace {

const TransformerConfig& supported(const TransformerConfig& model) {
  if (model.family == ModelFamily::Blocks) {
    throw InputError(
        "a model that is a list of tensors has no ops to time; calibrate it in your own PyTorch, "
        "with python3 -m stepsim.torch.calibrate");
  }
  if (model.family == ModelFamily::Transformers) {
    throw InputError(
        "the ops of a config.json's model are not timed one by one here; measure a preset or kind "
        "of the same sizes, or calibrate the model in your own PyTorch, with python3 -m "
        "stepsim.torch.calibrate");
  }
  check(model);
  if (model.dtype == Dtype::F64 || model.parameter_dtype == Dtype::F64) {
    throw InputError("the CUDA backend computes in f32, tf32, bf16 and f16");
  }
  const bool half = model.dtype == Dtype::Bf16 || model.dtype == Dtype::F16;
  if (model.attention != AttentionKind::Dense &&
      (!half || model.head_dim() % 8 != 0 || model.head_dim() > 256)) {
    throw InputError(
        "fused attention takes bf16 or f16 and heads of a multiple of 8 up to 256 "
        "features; the model has {} and {}; set model.attention = \"dense\"",
        name_of(model.dtype),
        model.head_dim());
  }
  return model;
}

/// Whether the MLP's activation is the one that cuBLASLt has in its epilogues, up to its form.
bool has_gelu(ModelFamily family) {
  return family != ModelFamily::Llama && family != ModelFamily::Nanochat;
}

/// A launch moves no more at a time, so that ops over all weights need little memory.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;

}  // namespace

SdpaShape sdpa_shape(const TransformerConfig& model, const BatchShape& batch) {
  SdpaShape shape;
  shape.dtype = model.dtype;
  shape.samples = batch.samples;
  shape.length = batch.max_length;
  shape.heads = model.heads;
  shape.kv_heads = model.kv_heads > 0 ? model.kv_heads : model.heads;
  shape.head_dim = model.head_dim();
  shape.causal = model.causal;
  shape.window = model.window;
  shape.packed = model.attention == AttentionKind::Varlen;
  shape.o_stride = shape.heads * shape.head_dim;
  const std::int64_t kv_width = shape.kv_heads * shape.head_dim;
  const bool together = fused_qkv(model.family);
  shape.q_stride = shape.o_stride + (together ? 2 * kv_width : 0);
  shape.kv_stride = together ? shape.q_stride : kv_width;
  const bool pads = !shape.packed && batch.has_padding();
  if (pads && model.kernels == KernelChoice::TorchEager) {
    shape.biased = true;
    shape.causal = false;
    shape.window = 0;
  } else {
    shape.masked = pads && !shape.causal;
  }
  return shape;
}

OpRunner::OpRunner(const TransformerConfig& model)
    : model_(supported(model)),
      route_(model.kernels == KernelChoice::TorchEager ? GemmRoute::Torch : GemmRoute::Lt),
      gemm_(route_),
      memory_(stream_, model.dtype) {}

std::vector<std::string> OpRunner::prepare(std::span<const BatchShape> batches) {
  if (model_.attention == AttentionKind::Dense) {
    return std::vector<std::string>(batches.size());
  }
  std::vector<SdpaShape> shapes;
  for (const BatchShape& batch : batches) {
    shapes.push_back(sdpa_shape(model_, batch));
  }
  return sdpa_.prepare_all(shapes);
}

void OpRunner::set_batch(std::span<const std::int64_t> lengths) {
  if (std::ranges::equal(lengths, lengths_)) {
    return;
  }
  stream_.synchronize();
  lengths_.assign(lengths.begin(), lengths.end());
  batch_ = batch_shape(lengths);
  const std::size_t bytes = (2 * lengths.size() + 1) * sizeof(std::int32_t);
  staging_.reserve(bytes);
  auto* const values = staging_.as<std::int32_t>();
  auto* const offsets = values + lengths.size();
  offsets[0] = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    values[i] = static_cast<std::int32_t>(lengths[i]);
    offsets[i + 1] = offsets[i] + values[i];
  }
  sequences_.reserve(bytes);
  copy_to_device(stream_, sequences_.data(), values, bytes);
}

void OpRunner::put(const Op& op) {
  switch (op.op_class) {
    case OpClass::Gemm:
      return put_linear(op);
    case OpClass::Attention:
      return put_attention(op);
    case OpClass::AttentionScores:
    case OpClass::AttentionContext:
      return put_dense_attention(op);
    case OpClass::Norm:
    case OpClass::CrossEntropy:
      return reduce(op_bytes(op, batch_), op.n, op.dtype);
    case OpClass::Softmax:
      return reduce(op_bytes(op, batch_), batch_.max_length, op.dtype);
    case OpClass::Collate:
      return put_collate();
    case OpClass::Activation:
      if (is_in_product(op)) {
        return put_activation(op);
      }
      break;
    default:
      break;
  }
  move(op_bytes(op, batch_), op.dtype);
}

void OpRunner::put_linear(const Op& op) {
  const auto rows = static_cast<std::int64_t>(rows_of(op, batch_));
  gemm_.run(stream_, linear_call(model_, op, rows, route_, memory_));
  if (op.pass == Pass::WeightGradient && route_ == GemmRoute::Torch && has_bias(model_, op)) {
    // PyTorch sums the bias gradient by itself.
    reduce(static_cast<double>(rows * op.n * element_size(op.dtype)), op.n, op.dtype);
  }
}

bool OpRunner::is_in_product(const Op& op) const {
  return op.op_class == OpClass::Activation && op.rows == RowUnit::Tokens &&
         model_.kernels == KernelChoice::Fused && has_gelu(model_.family);
}

void OpRunner::put_product(const Op& op) {
  put_linear(product_of_activation(model_, op));
}

void OpRunner::put_activation(const Op& op) {
  const Op product = product_of_activation(model_, op);
  const auto rows = static_cast<std::int64_t>(rows_of(product, batch_));
  GemmCall call = linear_call(model_, product, rows, route_, memory_);
  const bool forward = op.pass == Pass::Forward;
  call.epilogue = forward ? GemmEpilogue::BiasGelu : GemmEpilogue::GeluGradient;
  call.aux = forward ? memory_.write(2, call.m * call.n, op.dtype)
                     : memory_.read(4, call.m * call.n, op.dtype);
  gemm_.run(stream_, call);
}

void OpRunner::put_attention(const Op& op) {
  const SdpaShape shape = sdpa_shape(model_, batch_);
  const std::int64_t rows = shape.packed ? batch_.useful_tokens : shape.samples * shape.length;
  const std::int64_t statistics = shape.samples * shape.heads * shape.length;
  const auto* const lengths = sequences_.as<std::int32_t>();
  if (shape.biased && op.pass == Pass::Forward) {
    // PyTorch makes the mask anew in every layer.
    const std::int64_t elements = shape.samples * shape.length * mask_stride(shape.length);
    mask_.reserve(static_cast<std::size_t>(elements * element_size(shape.dtype)));
    const ScoreMask visible{lengths, model_.causal, model_.window};
    padding_mask(stream_, {mask_.data(), shape.dtype}, visible, shape.samples, shape.length);
  }
  const SdpaSequences sequences{lengths, lengths + shape.samples, mask_.data()};
  // Where one product makes q, k and v, they lie side by side in the rows of one array.
  const bool together = fused_qkv(model_.family);
  const auto k_of = [&](const Array& first) { return first.at(shape.heads * shape.head_dim); };
  const auto v_of = [&](const Array& first) {
    return first.at((shape.heads + shape.kv_heads) * shape.head_dim);
  };
  const Array q = memory_.read(0, rows * shape.q_stride, shape.dtype);
  const Array k = together ? k_of(q) : memory_.read(1, rows * shape.kv_stride, shape.dtype);
  const Array v = together ? v_of(q) : memory_.read(2, rows * shape.kv_stride, shape.dtype);
  if (op.pass == Pass::Forward) {
    const Array o = memory_.write(0, rows * shape.o_stride, shape.dtype);
    const Array sums = memory_.write(1, statistics, Dtype::F32);
    sdpa_.forward(stream_, shape, sequences, {q, k, v, o, static_cast<float*>(sums.data)});
    return;
  }
  SdpaBackward arrays;
  arrays.q = q;
  arrays.k = k;
  arrays.v = v;
  arrays.o = memory_.read(3, rows * shape.o_stride, shape.dtype);
  arrays.d_o = memory_.read(4, rows * shape.o_stride, shape.dtype);
  arrays.statistics = static_cast<const float*>(memory_.read(5, statistics, Dtype::F32).data);
  arrays.dq = memory_.write(0, rows * shape.q_stride, shape.dtype);
  arrays.dk = together ? k_of(arrays.dq) : memory_.write(1, rows * shape.kv_stride, shape.dtype);
  arrays.dv = together ? v_of(arrays.dq) : memory_.write(2, rows * shape.kv_stride, shape.dtype);
  sdpa_.backward(stream_, shape, sequences, arrays);
}

void OpRunner::put_dense_attention(const Op& op) {
  const std::int64_t length = batch_.max_length;
  const std::int64_t batch = batch_.samples * op.heads;
  // A product of this kind: [length][width] from [length][inner], for every head.
  const auto multiply =
      [&](std::size_t to, std::int64_t width, std::int64_t inner, bool a, bool b) {
        GemmCall call;
        call.m = length;
        call.n = width;
        call.k = inner;
        call.batch = batch;
        call.transpose_a = a;
        call.transpose_b = b;
        call.stride_a = length * inner;
        call.stride_b = inner * width;
        call.stride_c = length * width;
        call.lda = a ? length : inner;
        call.ldb = b ? inner : width;
        call.ldc = width;
        call.tf32 = op.dtype == Dtype::Tf32;
        call.a = memory_.read(0, batch * call.stride_a, op.dtype);
        call.b = memory_.read(1, batch * call.stride_b, op.dtype);
        call.c = memory_.write(to, batch * call.stride_c, op.dtype);
        gemm_.run(stream_, call);
      };
  const bool scores = op.op_class == OpClass::AttentionScores;
  if (op.pass == Pass::Forward && scores) {
    multiply(0, length, op.head_dim, false, true);  // S = Q K^T
  } else if (op.pass == Pass::Forward) {
    multiply(0, op.head_dim, length, false, false);  // O = P V
  } else {
    multiply(0, op.head_dim, length, true, false);  // dK = dS^T Q, or dV = P^T dO
    if (scores) {
      multiply(1, op.head_dim, length, false, false);  // dQ = dS K
    } else {
      multiply(1, length, op.head_dim, false, true);  // dP = dO V^T
    }
  }
}

void OpRunner::put_collate() {
  // What was copied before is read until the device is done with it.
  stream_.synchronize();
  const auto length = static_cast<std::size_t>(batch_.max_length);
  const std::size_t bytes = lengths_.size() * length * sizeof(std::int64_t);
  ids_.reserve(bytes);
  device_ids_.reserve(bytes);
  auto* row = ids_.as<std::int64_t>();
  for (const std::int64_t useful : lengths_) {
    const auto tokens = static_cast<std::size_t>(useful);
    for (std::size_t i = 0; i < length; ++i) {
      row[i] = i < tokens ? static_cast<std::int64_t>(i) : 0;
    }
    row += length;
  }
  copy_to_device(stream_, device_ids_.data(), ids_.as<void>(), bytes);
}

void OpRunner::move(double bytes, Dtype dtype) {
  const std::int64_t size = element_size(dtype);
  const std::int64_t most = kMostBytes / size;
  auto left = static_cast<std::int64_t>(std::ceil(bytes / 2 / static_cast<double>(size)));
  for (; left > 0; left -= most) {
    const std::int64_t count = std::min(left, most);
    scaled_copy(stream_, memory_.write(0, count, dtype), memory_.read(0, count, dtype), 1, count);
  }
}

void OpRunner::reduce(double bytes, std::int64_t width, Dtype dtype) {
  const std::int64_t row = width * element_size(dtype);
  const std::int64_t most = std::max<std::int64_t>(1, kMostBytes / row);
  auto left = static_cast<std::int64_t>(std::ceil(bytes / static_cast<double>(row)));
  for (; left > 0; left -= most) {
    const std::int64_t rows = std::min(left, most);
    const Array sums = memory_.write(0, rows, Dtype::F32);
    row_sums(
        stream_, static_cast<float*>(sums.data), memory_.read(0, rows * width, dtype), rows, width);
  }
}

void OpRunner::release_memory() {
  stream_.synchronize();
  memory_.release();
  mask_.release();
  device_ids_.release();
  sequences_.release();
  lengths_.clear();
  sdpa_.release();
}

}  // namespace stepsim::cuda
