// The CUDA trainer on the emulated device against the CPU trainer, op for op the same model.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "calibrate/cpu/training_device.h"
#include "calibrate/cuda/eager/eager.h"
#include "calibrate/cuda/timing/launch_queue.h"
#include "calibrate/cuda/training/training_device.h"
#include "costmodel/base/input_error.h"
#include "tests/calibrate/cuda/emulation/device_limits.h"

namespace stepsim {
namespace {

TransformerConfig small(ModelFamily family) {
  TransformerConfig config;
  config.name = "small";
  config.family = family;
  config.layers = 2;
  config.hidden = 32;
  config.heads = 4;
  config.kv_heads = family == ModelFamily::Llama ? 2 : 4;
  config.ffn = 48;
  config.vocab = 53;
  config.max_length = 24;
  config.causal = family != ModelFamily::Bert && family != ModelFamily::DistilBert &&
                  family != ModelFamily::TokenClassifier;
  config.classes =
      family == ModelFamily::TokenClassifier || family == ModelFamily::DistilBert ? 4 : 0;
  config.tied_embeddings = family == ModelFamily::Gpt2;
  return config;
}

constexpr KernelChoice kChoices[] = {KernelChoice::TorchEager, KernelChoice::Fused};

TransformerConfig on_cpu(TransformerConfig config) {
  config.dtype = Dtype::F32;
  config.attention = AttentionKind::Dense;
  return config;
}

constexpr ModelFamily kFamilies[] = {ModelFamily::TokenClassifier,
                                     ModelFamily::DistilBert,
                                     ModelFamily::Bert,
                                     ModelFamily::Gpt2,
                                     ModelFamily::Llama,
                                     ModelFamily::Nanochat};

/// One step of both trainers with the same weights and data.
struct BothSteps {
  double cuda_loss = 0;
  double cpu_loss = 0;
  std::vector<std::vector<float>> cuda_gradients;  ///< [parameter]
  std::vector<std::vector<float>> cpu_gradients;
};

BothSteps run_both(const TransformerConfig& config,
                   const std::vector<std::int64_t>& lengths,
                   double loss_scale) {
  cuda::Trainer cuda(config, 2, 11);
  cpu::Trainer cpu(on_cpu(config), 2, 12);
  const std::vector<Parameter> tensors = parameters(config);
  for (std::size_t p = 0; p < tensors.size(); ++p) {
    const auto bytes = static_cast<std::size_t>(cpu.elements(p)) * sizeof(float);
    std::memcpy(cpu.weights(p).data, cuda.weights(p).data, bytes);
  }
  cuda.seed_data(5);
  cpu.seed_data(5);
  BothSteps both;
  both.cuda_loss = cuda.step(lengths, loss_scale, nullptr, nullptr).loss;
  both.cpu_loss = cpu.step(lengths, loss_scale, nullptr, nullptr).loss;
  for (std::size_t p = 0; p < tensors.size(); ++p) {
    const float* expected = cpu.gradient(p);
    both.cpu_gradients.emplace_back(expected, expected + cpu.elements(p));
    const auto* got = static_cast<const float*>(cuda.gradient(p).data);
    both.cuda_gradients.emplace_back(got, got + cuda.elements(p));
  }
  return both;
}

double norm(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) {
    sum += static_cast<double>(value) * static_cast<double>(value);
  }
  return std::sqrt(sum);
}

/// The largest error of a parameter's gradient, over its norm; gradients that should vanish (a
/// key's bias) are taken over a hundredth of the largest norm.
double worst_error(const BothSteps& both) {
  double largest = 0;
  for (const auto& gradient : both.cpu_gradients) {
    largest = std::max(largest, norm(gradient));
  }
  double worst = 0;
  for (std::size_t p = 0; p < both.cpu_gradients.size(); ++p) {
    std::vector<float> difference = both.cuda_gradients[p];
    for (std::size_t i = 0; i < difference.size(); ++i) {
      difference[i] -= both.cpu_gradients[p][i];
    }
    worst =
        std::max(worst, norm(difference) / std::max(norm(both.cpu_gradients[p]), 0.01 * largest));
  }
  return worst;
}

const std::vector<std::int64_t> kTrainerLengths = {7, 24, 1, 13};

/// Counts the kernels of every op.
class KernelCounter : public OpTimer {
 public:
  explicit KernelCounter(std::size_t ops) : counts_(ops) {}
  void op_begin(std::size_t op) override { counts_[op] = -cuda::emulated::launches; }
  void op_done(std::size_t op) override { counts_[op] += cuda::emulated::launches; }
  [[nodiscard]] std::int64_t of(std::size_t op) const { return counts_[op]; }

 private:
  std::vector<std::int64_t> counts_;
};

/// The kernels of a step by the op's name and pass, without those of cuBLAS and cuDNN.
std::map<std::string, std::int64_t> kernels_by_op(const TransformerConfig& config) {
  cuda::Trainer trainer(config, 1, 3);
  KernelCounter counter(trainer.ops().size());
  trainer.step(kTrainerLengths, 1, nullptr, &counter);
  std::map<std::string, std::int64_t> counts;
  for (std::size_t op = 0; op < trainer.ops().size(); ++op) {
    const Op& the = trainer.ops()[op];
    counts[the.name + " " + std::string(name_of(the.pass))] = counter.of(op);
  }
  return counts;
}

}  // namespace

TEST_CASE("the CUDA trainer's gradients are the CPU trainer's, in fp32 with dense attention") {
  for (const KernelChoice kernels : kChoices) {
    for (const ModelFamily family : kFamilies) {
      CAPTURE(name_of(kernels));
      CAPTURE(name_of(family));
      TransformerConfig config = small(family);
      config.kernels = kernels;
      const BothSteps both = run_both(config, kTrainerLengths, 0.5);
      CHECK(both.cuda_loss == doctest::Approx(both.cpu_loss).epsilon(1e-5));
      // fp32 sums in another order, through two layers and back.
      CHECK(worst_error(both) < 1e-4);
    }
  }
}

TEST_CASE("a window is the same on both trainers") {
  TransformerConfig config = small(ModelFamily::Gpt2);
  config.window = 5;
  CHECK(worst_error(run_both(config, kTrainerLengths, 1)) < 1e-4);
}

TEST_CASE("mixed precision computes the same model, to bf16's three digits") {
  for (const AttentionKind attention :
       {AttentionKind::Dense, AttentionKind::Flash, AttentionKind::Varlen}) {
    for (const KernelChoice kernels : kChoices) {
      for (const ModelFamily family : kFamilies) {
        CAPTURE(name_of(family));
        CAPTURE(name_of(attention));
        CAPTURE(name_of(kernels));
        TransformerConfig config = small(family);
        config.dtype = Dtype::Bf16;
        config.attention = attention;
        config.kernels = kernels;
        const BothSteps both = run_both(config, kTrainerLengths, 1);
        CHECK(both.cuda_loss == doctest::Approx(both.cpu_loss).epsilon(0.01));
        // About twenty roundings of 2^-9 in a row, and sums of products of them.
        CHECK(worst_error(both) < 0.06);
      }
    }
  }
}

TEST_CASE("training on one batch again and again lowers the loss, parameters in bf16 too") {
  for (const KernelChoice kernels : kChoices) {
    for (const ModelFamily family : {ModelFamily::Gpt2, ModelFamily::Llama}) {
      for (const Dtype parameter_dtype : {Dtype::F32, Dtype::Bf16}) {
        CAPTURE(name_of(kernels));
        CAPTURE(name_of(family));
        CAPTURE(name_of(parameter_dtype));
        TransformerConfig config = small(family);
        config.dtype = Dtype::Bf16;
        config.parameter_dtype = parameter_dtype;
        config.attention = AttentionKind::Flash;
        config.kernels = kernels;
        cuda::Trainer trainer(config, 1, 3);
        trainer.set_learning_rate(2e-3F);
        std::vector<double> losses;
        for (int step = 0; step < 6; ++step) {
          trainer.seed_data(1);
          losses.push_back(trainer.step(kTrainerLengths, 1, nullptr, nullptr).loss);
        }
        CHECK(losses.back() < 0.98 * losses.front());
      }
    }
  }
}

TEST_CASE("an op runs eager PyTorch's kernels, or one") {
  TransformerConfig config = small(ModelFamily::Gpt2);
  config.attention = AttentionKind::Flash;
  config.dtype = Dtype::Bf16;
  // By autocast: 9 kernels for gelu_new and 14 backward; the loss casts the logits.
  std::map<std::string, std::int64_t> counts = kernels_by_op(config);
  CHECK(counts["layer1.activation forward"] == 9);
  CHECK(counts["layer1.activation backward"] == 14);
  CHECK(counts["layer1.mlp_norm forward"] == 1);
  CHECK(counts["layer1.qkv forward"] == 2);  // The casts of the weights and of the norm's result.
  CHECK(counts["layer1.qkv dgrad"] == 1);    // The cast of the gradient.
  CHECK(counts["layer1.mlp_residual forward"] == 1);
  CHECK(counts["layer1.attention forward"] == 1);  // The mask.
  CHECK(counts["layer1.attention backward"] == 0);
  CHECK(counts["loss forward"] == 3);
  CHECK(counts["loss backward"] == 3);
  CHECK(counts["optimizer forward"] == 8);
  config.parameter_dtype = Dtype::Bf16;  // Nothing is cast but the logits.
  counts = kernels_by_op(config);
  CHECK(counts["layer1.activation forward"] == 8);
  CHECK(counts["layer1.activation backward"] == 11);
  CHECK(counts["layer1.qkv forward"] == 0);
  CHECK(counts["layer1.qkv dgrad"] == 0);
  CHECK(counts["loss forward"] == 3);
  config = small(ModelFamily::Llama);
  counts = kernels_by_op(config);
  CHECK(counts["layer1.mlp_norm forward"] == 6);
  CHECK(counts["layer1.mlp_norm backward"] == 16);
  CHECK(counts["loss forward"] == 2);
  CHECK(counts["loss backward"] == 2);
  config.kernels = KernelChoice::Fused;
  counts = kernels_by_op(config);
  CHECK(counts["layer1.mlp_norm forward"] == 1);
  CHECK(counts["loss backward"] == 1);
  CHECK(counts["optimizer forward"] == 1);
  config = small(ModelFamily::Gpt2);
  config.kernels = KernelChoice::Fused;
  config.dtype = Dtype::Bf16;
  counts = kernels_by_op(config);
  CHECK(counts["layer1.activation forward"] == 1);
  CHECK(counts["layer1.activation backward"] == 1);
  CHECK(counts["layer1.qkv forward"] == 1);  // The cast of the weights.
  config.attention = AttentionKind::Flash;
  CHECK(kernels_by_op(config)["layer1.attention forward"] == 0);
}

TEST_CASE("no op has more launches than the clock of ops takes into account") {
  // Of the libraries at most: a product may be split and its parts added, attention has kernels
  // before and behind it.
  constexpr std::int64_t kOfProduct = 3;
  constexpr std::int64_t kOfAttention = 6;
  for (const ModelFamily family : kFamilies) {
    for (const KernelChoice kernels : kChoices) {
      for (const AttentionKind attention : {AttentionKind::Dense, AttentionKind::Flash}) {
        TransformerConfig config = small(family);
        config.kernels = kernels;
        config.attention = attention;
        config.dtype = Dtype::Bf16;
        cuda::Trainer trainer(config, 1, 3);
        std::vector<std::vector<int>> buckets = {ready_order(config)};
        buckets.push_back({buckets[0].back()});
        buckets[0].pop_back();
        trainer.set_buckets(buckets);
        const std::vector<int> most = cuda::most_launches(trainer.ops(), buckets);
        KernelCounter counter(trainer.ops().size());
        trainer.step(std::vector<std::int64_t>{3, 2}, 1, nullptr, &counter);
        for (std::size_t op = 0; op < trainer.ops().size(); ++op) {
          const Op& the = trainer.ops()[op];
          const std::int64_t library = the.op_class == OpClass::Attention ? kOfAttention
                                       : the.op_class == OpClass::Gemm    ? kOfProduct
                                                                          : 0;
          CAPTURE(the.name);
          CAPTURE(name_of(the.pass));
          CHECK(counter.of(op) + library <= most[op]);
        }
      }
    }
  }
  CHECK(cuda::foreach_adamw_launches(355'000'000) == 24);
}

TEST_CASE("a padded batch gets a mask that is a tensor from eager PyTorch") {
  TransformerConfig config = small(ModelFamily::Gpt2);
  config.dtype = Dtype::Bf16;
  config.attention = AttentionKind::Flash;
  config.window = 5;
  const auto shape_of = [&config](const std::vector<std::int64_t>& lengths) {
    const cuda::Trainer trainer(config, 1, 1);
    return trainer.device().sdpa_shape(trainer.batch_size(lengths, 0));
  };
  // The mask has lengths, causality and window in it.
  CHECK(shape_of({7, 24}).biased);
  CHECK_FALSE(shape_of({7, 24}).causal);
  CHECK(shape_of({7, 24}).window == 0);
  CHECK_FALSE(shape_of({24, 24}).biased);  // Hugging Face leaves out a mask that hides no padding.
  CHECK(shape_of({24, 24}).causal);
  config.kernels = KernelChoice::Fused;
  CHECK_FALSE(shape_of({7, 24}).biased);
  CHECK(shape_of({7, 24}).causal);
  config.kernels = KernelChoice::TorchEager;
  config.attention = AttentionKind::Varlen;
  CHECK_FALSE(shape_of({7, 24}).biased);
}

TEST_CASE("only products with a bias go to cuBLASLt, as in PyTorch") {
  const auto products = [](ModelFamily family, KernelChoice kernels) {
    TransformerConfig config = small(family);
    config.kernels = kernels;
    cuda::Trainer trainer(config, 1, 3);
    const std::int64_t lt = cuda::emulated::cublaslt_products;
    const std::int64_t cublas = cuda::emulated::cublas_products;
    trainer.step(kTrainerLengths, 1, nullptr, nullptr);
    return std::pair(cuda::emulated::cublaslt_products - lt,
                     cuda::emulated::cublas_products - cublas);
  };
  // A layer of GPT-2: four linear layers with a bias, two products of attention; twice that
  // backward. The head has no bias.
  CHECK(products(ModelFamily::Gpt2, KernelChoice::TorchEager) == std::pair(2L * 4, 2L * 14 + 3));
  CHECK(products(ModelFamily::Gpt2, KernelChoice::Fused) == std::pair(2L * 18 + 3, 0L));
  // Llama has no biases: seven linear layers.
  CHECK(products(ModelFamily::Llama, KernelChoice::TorchEager) == std::pair(0L, 2L * 27 + 3));
}

TEST_CASE("the choice of kernels changes no op and no name") {
  for (const ModelFamily family : kFamilies) {
    TransformerConfig config = small(family);
    const std::vector<Op> eager = cuda::Trainer(config, 1, 1).ops();
    config.kernels = KernelChoice::Fused;
    CHECK(cuda::Trainer(config, 1, 1).ops() == eager);
  }
}

TEST_CASE("models that the device's libraries do not have are refused with the way out") {
  TransformerConfig config = small(ModelFamily::Gpt2);
  config.attention = AttentionKind::Flash;
  CHECK_THROWS_WITH_AS(cuda::Trainer(config, 1, 1),
                       doctest::Contains("set model.attention = \"dense\""),
                       InputError);
  config.dtype = Dtype::Bf16;
  config.heads = 8;  // Four features a head.
  config.kv_heads = 8;
  CHECK_THROWS_AS(cuda::Trainer(config, 1, 1), InputError);
  config = small(ModelFamily::Gpt2);
  config.parameter_dtype = Dtype::F16;
  CHECK_THROWS_AS(cuda::Trainer(config, 1, 1), InputError);
  cuda::Trainer trainer(small(ModelFamily::Gpt2), 1, 1);
  CHECK_THROWS_AS(trainer.step({}, 1, nullptr, nullptr), InputError);
  CHECK_THROWS_AS(trainer.step(std::vector<std::int64_t>{25}, 1, nullptr, nullptr), InputError);
}

}  // namespace stepsim
