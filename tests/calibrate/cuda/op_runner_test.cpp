// The ops of a model on the emulated device: which kernels run them, and on how much.
#include "calibrate/cuda/ops/op_runner.h"

#include <algorithm>
#include <vector>

#include <doctest/doctest.h>

#include "calibrate/samples/measure_plan.h"
#include "calibrate/samples/sample_log.h"
#include "calibrate/samples/training_ops.h"
#include "costmodel/base/input_error.h"
#include "costmodel/model/op_flops.h"
#include "tests/calibrate/cuda/emulation/device_limits.h"

namespace stepsim::cuda {
namespace {

const std::vector<std::int64_t> kLengths = {9, 13};

TransformerConfig small_model(ModelFamily family) {
  TransformerConfig model;
  model.family = family;
  model.layers = 1;
  model.hidden = 32;
  model.heads = 2;
  model.kv_heads = 2;
  model.ffn = 48;
  model.vocab = 100;
  model.max_length = 16;
  const bool is_decoder = family == ModelFamily::Gpt2 || family == ModelFamily::Llama ||
                          family == ModelFamily::Nanochat;
  model.classes = is_decoder ? 0 : 2;
  model.causal = is_decoder;
  model.dtype = Dtype::Bf16;
  return model;
}

constexpr ModelFamily kFamilies[] = {ModelFamily::TokenClassifier,
                                     ModelFamily::DistilBert,
                                     ModelFamily::Bert,
                                     ModelFamily::Gpt2,
                                     ModelFamily::Llama,
                                     ModelFamily::Nanochat};

std::vector<Op> ops_of(const TransformerConfig& model) {
  return distinct_ops(training_ops(model, buckets_by_cap(model, Bytes(1024), Bytes(4096)))).ops;
}

/// What an op has done on the device.
struct Work {
  std::int64_t launches = 0;
  std::int64_t cublaslt = 0;
  std::int64_t cublas = 0;
  std::int64_t flops = 0;
  std::int64_t results = 0;  ///< Elements that products wrote.
};

Work work_of(OpRunner& runner, const Op& op) {
  const Work before{emulated::launches,
                    emulated::cublaslt_products,
                    emulated::cublas_products,
                    emulated::product_flops,
                    emulated::product_results};
  runner.put(op);
  return {emulated::launches - before.launches,
          emulated::cublaslt_products - before.cublaslt,
          emulated::cublas_products - before.cublas,
          emulated::product_flops - before.flops,
          emulated::product_results - before.results};
}

/// Elements that the products of an op write: y, dx or dW; S or O, and in the backward the
/// gradients of both operands.
double results_of(const Op& op, const BatchShape& batch) {
  const double rows = rows_of(op, batch);
  const auto n = static_cast<double>(op.n);
  const auto k = static_cast<double>(op.k);
  if (op.op_class == OpClass::Gemm) {
    return op.pass == Pass::Forward ? rows * n : op.pass == Pass::InputGradient ? rows * k : n * k;
  }
  const double scores = static_cast<double>(op.heads) * squared_lengths(op, batch);
  const double heads = rows * static_cast<double>(op.heads * op.head_dim);
  const bool forward = op.pass == Pass::Forward;
  if (op.op_class == OpClass::AttentionScores) {
    return forward ? scores : 2 * heads;
  }
  return forward ? heads : heads + scores;
}

}  // namespace

TEST_CASE("every op of every family runs, with few launches") {
  for (const ModelFamily family : kFamilies) {
    for (const AttentionKind attention :
         {AttentionKind::Dense, AttentionKind::Flash, AttentionKind::Varlen}) {
      for (const KernelChoice kernels : {KernelChoice::TorchEager, KernelChoice::Fused}) {
        TransformerConfig model = small_model(family);
        model.attention = attention;
        model.kernels = kernels;
        OpRunner runner(model);
        runner.set_batch(kLengths);
        for (const Op& op : ops_of(model)) {
          CAPTURE(name_of(family));
          CAPTURE(op_key(op));
          runner.put(op);  // Fills what it reads for the first time.
          const Work work = work_of(runner, op);
          CHECK(work.launches <= 4);
          CHECK(work.launches + work.cublas + work.cublaslt + (op.op_class == OpClass::Attention) +
                    (op.op_class == OpClass::Collate) >
                0);
        }
      }
    }
  }
}

TEST_CASE("products multiply as much as the flops of their op say, and write what it makes") {
  for (const ModelFamily family : kFamilies) {
    const TransformerConfig model = small_model(family);
    OpRunner runner(model);
    runner.set_batch(kLengths);
    for (const Op& op : ops_of(model)) {
      if (op.op_class == OpClass::Gemm || op.op_class == OpClass::AttentionScores ||
          op.op_class == OpClass::AttentionContext) {
        CAPTURE(name_of(family));
        CAPTURE(op_key(op));
        const Work work = work_of(runner, op);
        const BatchShape batch = batch_shape(kLengths);
        CHECK(static_cast<double>(work.flops) == op_flops(op, batch));
        CHECK(static_cast<double>(work.results) == results_of(op, batch));
      }
    }
  }
}

TEST_CASE("all that is no product moves as many bytes as its op") {
  const TransformerConfig model = small_model(ModelFamily::Gpt2);
  for (const Op& op : ops_of(model)) {
    if (op.op_class == OpClass::Gemm || op.op_class == OpClass::AttentionScores ||
        op.op_class == OpClass::AttentionContext || op.op_class == OpClass::Collate) {
      continue;
    }
    CAPTURE(op_key(op));
    OpRunner runner(model);
    runner.set_batch(kLengths);
    const std::size_t before = emulated::memory_used;
    runner.put(op);
    const auto bytes = static_cast<double>(emulated::memory_used - before);
    const double expected = op_bytes(op, batch_shape(kLengths));
    // Whole elements, and a sum of 4 bytes for each row that is reduced; the shortest has 26 bytes.
    CHECK(bytes >= expected);
    CHECK(bytes <= expected * (1 + 4.0 / 26) + 32);
  }
}

TEST_CASE("only the forward products with a bias go to cuBLASLt, as in PyTorch") {
  for (const ModelFamily family : kFamilies) {
    for (const KernelChoice kernels : {KernelChoice::TorchEager, KernelChoice::Fused}) {
      TransformerConfig model = small_model(family);
      model.kernels = kernels;
      OpRunner runner(model);
      runner.set_batch(kLengths);
      const bool has_biases = family != ModelFamily::Llama && family != ModelFamily::Nanochat;
      for (const Op& op : ops_of(model)) {
        if (op.op_class != OpClass::Gemm) {
          continue;
        }
        CAPTURE(name_of(family));
        CAPTURE(op_key(op));
        const bool has_bias = has_biases && op.n != model.vocab;
        const bool by_lt = kernels == KernelChoice::Fused || (has_bias && op.pass == Pass::Forward);
        runner.put(op);
        const Work work = work_of(runner, op);
        CHECK(work.cublaslt == (by_lt ? 1 : 0));
        CHECK(work.cublas == (by_lt ? 0 : 1));
        // PyTorch sums a bias gradient by itself.
        const bool sums =
            kernels == KernelChoice::TorchEager && has_bias && op.pass == Pass::WeightGradient;
        CHECK(work.launches == (sums ? 1 : 0));
      }
    }
  }
}

TEST_CASE("a fused GELU is a part of the product beside it, with that product's work") {
  for (const ModelFamily family : kFamilies) {
    TransformerConfig model = small_model(family);
    model.kernels = KernelChoice::Fused;
    OpRunner runner(model);
    runner.set_batch(kLengths);
    const std::vector<Op> ops = ops_of(model);
    for (const Op& op : ops) {
      const bool is_gelu = op.op_class == OpClass::Activation && op.rows == RowUnit::Tokens &&
                           family != ModelFamily::Llama && family != ModelFamily::Nanochat;
      CAPTURE(name_of(family));
      CAPTURE(op_key(op));
      CHECK(runner.is_in_product(op) == is_gelu);
      if (is_gelu) {
        runner.put(op);
        const Work with = work_of(runner, op);
        CHECK(with.cublaslt == 1);
        CHECK(with.launches == 0);
        const bool forward = op.pass == Pass::Forward;
        const auto product = std::ranges::find_if(ops, [&](const Op& other) {
          return other.op_class == OpClass::Gemm && other.rows == op.rows &&
                 other.pass == (forward ? Pass::Forward : Pass::InputGradient) &&
                 other.n == (forward ? model.ffn : model.hidden) &&
                 other.k == (forward ? model.hidden : model.ffn);
        });
        REQUIRE(product != ops.end());
        CHECK(with.flops == work_of(runner, *product).flops);
      }
    }
  }
}

TEST_CASE("a padded batch gets a mask that is a tensor from eager PyTorch, lengths from others") {
  TransformerConfig model = small_model(ModelFamily::Bert);
  model.attention = AttentionKind::Flash;
  const BatchShape padded = batch_shape(kLengths);
  const BatchShape whole = batch_shape(std::vector<std::int64_t>{16, 16});
  CHECK(sdpa_shape(model, padded).biased);
  CHECK_FALSE(sdpa_shape(model, whole).biased);
  model.causal = true;
  CHECK_FALSE(sdpa_shape(model, padded).causal);  // The mask says it.
  CHECK(sdpa_shape(model, whole).causal);
  model.kernels = KernelChoice::Fused;
  CHECK_FALSE(sdpa_shape(model, padded).biased);
  CHECK_FALSE(sdpa_shape(model, padded).masked);  // Behind the last token is padding only.
  model.causal = false;
  CHECK(sdpa_shape(model, padded).masked);
  CHECK_FALSE(sdpa_shape(model, whole).masked);
  model.attention = AttentionKind::Varlen;
  CHECK(sdpa_shape(model, padded).packed);
  CHECK_FALSE(sdpa_shape(model, padded).masked);
  // q, k and v of one product lie side by side.
  CHECK(sdpa_shape(model, whole).q_stride == 32);
  CHECK(sdpa_shape(small_model(ModelFamily::Gpt2), whole).q_stride == 96);
  CHECK(sdpa_shape(small_model(ModelFamily::Gpt2), whole).kv_stride == 96);
}

TEST_CASE("models that the device's libraries do not have are refused with the way out") {
  TransformerConfig model = small_model(ModelFamily::Gpt2);
  model.attention = AttentionKind::Flash;
  model.dtype = Dtype::F32;
  CHECK_THROWS_WITH_AS(
      OpRunner{model}, doctest::Contains("set model.attention = \"dense\""), InputError);
  model.dtype = Dtype::F64;
  CHECK_THROWS_WITH_AS(OpRunner{model}, doctest::Contains("f32, tf32, bf16 and f16"), InputError);
  TransformerConfig blocks;
  blocks.family = ModelFamily::Blocks;
  blocks.layers = 2;
  blocks.block_elements = 100;
  CHECK_THROWS_WITH_AS(OpRunner{blocks}, doctest::Contains("stepsim.torch.calibrate"), InputError);
}

}  // namespace stepsim::cuda
