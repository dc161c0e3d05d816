#include "costmodel/architecture/op.h"

#include <functional>
#include <numeric>

#include "costmodel/architecture/value_names.h"

namespace stepsim {
namespace {

constexpr Names<Dtype, 5> kDtypes = {{{Dtype::F32, "f32"},
                                      {Dtype::Tf32, "tf32"},
                                      {Dtype::Bf16, "bf16"},
                                      {Dtype::F16, "f16"},
                                      {Dtype::F64, "f64"}}};

/// Other names of the types, as PyTorch and others use them.
constexpr Names<Dtype, 8> kOtherDtypes = {{{Dtype::F32, "fp32"},
                                           {Dtype::F32, "float32"},
                                           {Dtype::F32, "float"},
                                           {Dtype::Bf16, "bfloat16"},
                                           {Dtype::F16, "fp16"},
                                           {Dtype::F16, "float16"},
                                           {Dtype::F64, "fp64"},
                                           {Dtype::F64, "float64"}}};

constexpr Names<OpClass, 16> kOpClasses = {{{OpClass::Gemm, "gemm"},
                                            {OpClass::AttentionScores, "attention_scores"},
                                            {OpClass::Softmax, "softmax"},
                                            {OpClass::AttentionContext, "attention_context"},
                                            {OpClass::Attention, "attention"},
                                            {OpClass::Norm, "norm"},
                                            {OpClass::Activation, "activation"},
                                            {OpClass::Elementwise, "elementwise"},
                                            {OpClass::Embedding, "embedding"},
                                            {OpClass::Pooling, "pooling"},
                                            {OpClass::CrossEntropy, "cross_entropy"},
                                            {OpClass::Collate, "collate"},
                                            {OpClass::ZeroGradient, "zero_gradient"},
                                            {OpClass::GradientCopyIn, "gradient_copy_in"},
                                            {OpClass::GradientCopyOut, "gradient_copy_out"},
                                            {OpClass::Optimizer, "optimizer"}}};

constexpr Names<Pass, 4> kPasses = {{{Pass::Forward, "forward"},
                                     {Pass::Backward, "backward"},
                                     {Pass::InputGradient, "dgrad"},
                                     {Pass::WeightGradient, "wgrad"}}};

constexpr Names<RowUnit, 3> kRows = {
    {{RowUnit::Tokens, "tokens"}, {RowUnit::Samples, "samples"}, {RowUnit::Elements, "elements"}}};

constexpr Names<AttentionKind, 3> kAttention = {{{AttentionKind::Dense, "dense"},
                                                 {AttentionKind::Flash, "flash"},
                                                 {AttentionKind::Varlen, "varlen"}}};

}  // namespace

std::int64_t element_size(Dtype dtype) {
  switch (dtype) {
    case Dtype::F32:
    case Dtype::Tf32:
      return 4;
    case Dtype::Bf16:
    case Dtype::F16:
      return 2;
    case Dtype::F64:
      break;
  }
  return 8;
}

std::string_view name_of(Dtype dtype) {
  return name_in(kDtypes, dtype);
}

Dtype parse_dtype(std::string_view name) {
  for (const auto& [dtype, text] : kOtherDtypes) {
    if (text == name) {
      return dtype;
    }
  }
  return parse_in(kDtypes, "dtype", name);
}

std::string_view name_of(OpClass op_class) {
  return name_in(kOpClasses, op_class);
}
OpClass parse_op_class(std::string_view name) {
  return parse_in(kOpClasses, "op", name);
}

std::string_view name_of(Pass pass) {
  return name_in(kPasses, pass);
}
Pass parse_pass(std::string_view name) {
  return parse_in(kPasses, "pass", name);
}

std::string_view name_of(RowUnit rows) {
  return name_in(kRows, rows);
}
RowUnit parse_row_unit(std::string_view name) {
  return parse_in(kRows, "rows", name);
}

std::string_view name_of(AttentionKind kind) {
  return name_in(kAttention, kind);
}
AttentionKind parse_attention(std::string_view name) {
  return parse_in(kAttention, "attention", name);
}

std::int64_t elements_of(std::span<const std::int64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t Parameter::elements() const {
  return elements_of(shape);
}

}  // namespace stepsim
