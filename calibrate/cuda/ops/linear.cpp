#include "calibrate/cuda/ops/linear.h"

namespace stepsim::cuda {

bool has_bias(const TransformerConfig& model, const Op& linear) {
  const bool without = model.family == ModelFamily::Llama || model.family == ModelFamily::Nanochat;
  return !without && linear.n != model.vocab;
}

GemmCall linear_call(const TransformerConfig& model,
                     const Op& op,
                     std::int64_t rows,
                     GemmRoute route,
                     OpMemory& memory) {
  const bool in_out = model.family == ModelFamily::Gpt2 && op.n != model.vocab;
  const Array x = memory.read(0, rows * op.k, op.dtype);
  const Array w = memory.read(1, op.n * op.k, op.dtype);
  const Array dy = memory.read(2, rows * op.n, op.dtype);
  const std::int64_t row_of_w = in_out ? op.n : op.k;
  GemmCall call;
  call.tf32 = op.dtype == Dtype::Tf32;
  if (op.pass == Pass::WeightGradient) {
    call.m = in_out ? op.k : op.n;
    call.n = row_of_w;
    call.k = rows;
    call.a = in_out ? x : dy;
    call.b = in_out ? dy : x;
    call.lda = call.m;
    call.ldb = call.n;
    call.transpose_a = true;
    call.c = memory.write(0, op.n * op.k, op.dtype);
    if (has_bias(model, op) && route == GemmRoute::Lt) {
      call.epilogue = in_out ? GemmEpilogue::SumsOfB : GemmEpilogue::SumsOfA;
      call.bias = memory.write(1, op.n, op.dtype);
    }
  } else {
    const bool forward = op.pass == Pass::Forward;
    call.m = rows;
    call.n = forward ? op.n : op.k;
    call.k = forward ? op.k : op.n;
    call.a = forward ? x : dy;
    call.b = w;
    call.lda = call.k;
    call.ldb = row_of_w;
    call.transpose_b = forward != in_out;
    call.c = memory.write(0, rows * call.n, op.dtype);
    if (forward && has_bias(model, op)) {
      call.epilogue = GemmEpilogue::Bias;
      call.bias = memory.read(3, op.n, op.dtype);
    }
  }
  call.ldc = call.n;
  return call;
}

Op product_of_activation(const TransformerConfig& model, const Op& activation) {
  const bool forward = activation.pass == Pass::Forward;
  Op op;
  op.op_class = OpClass::Gemm;
  op.pass = forward ? Pass::Forward : Pass::InputGradient;
  op.rows = activation.rows;
  op.n = forward ? model.ffn : model.hidden;
  op.k = forward ? model.hidden : model.ffn;
  op.dtype = activation.dtype;
  op.varlen = activation.varlen;
  return op;
}

}  // namespace stepsim::cuda
