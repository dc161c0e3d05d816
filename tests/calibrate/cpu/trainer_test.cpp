#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "calibrate/cpu/training_device.h"
#include "calibrate/training/batch.h"
#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

std::span<float> weights_of(const cpu::Trainer& trainer, std::size_t parameter) {
  return {trainer.weights(parameter).data, static_cast<std::size_t>(trainer.elements(parameter))};
}
std::span<const float> gradient_of(const cpu::Trainer& trainer, std::size_t parameter) {
  return {trainer.gradient(parameter).data, static_cast<std::size_t>(trainer.elements(parameter))};
}

/// A model of some family that is small enough for finite differences.
TransformerConfig small(ModelFamily family) {
  TransformerConfig config;
  config.name = std::string(name_of(family));
  config.family = family;
  config.layers = 2;
  config.hidden = 12;
  config.heads = 2;
  config.kv_heads = 2;
  config.ffn = 20;
  config.vocab = 23;
  config.max_length = 16;
  const bool classifies =
      family == ModelFamily::TokenClassifier || family == ModelFamily::DistilBert;
  config.classes = classifies ? 5 : 0;
  config.causal = family == ModelFamily::Gpt2 || family == ModelFamily::Llama ||
                  family == ModelFamily::Nanochat;
  config.tied_embeddings = family == ModelFamily::Gpt2;
  return config;
}

std::vector<TransformerConfig> every_family() {
  std::vector<TransformerConfig> all;
  for (const ModelFamily family : {ModelFamily::TokenClassifier,
                                   ModelFamily::DistilBert,
                                   ModelFamily::Bert,
                                   ModelFamily::Gpt2,
                                   ModelFamily::Llama,
                                   ModelFamily::Nanochat}) {
    all.push_back(small(family));
  }
  return all;
}

std::vector<TransformerConfig> gradient_cases() {
  auto all = every_family();
  TransformerConfig grouped = small(ModelFamily::Llama);
  grouped.name = "llama with grouped queries, tied";
  grouped.heads = 6;
  grouped.kv_heads = 2;
  grouped.tied_embeddings = true;
  all.push_back(grouped);
  TransformerConfig windowed = small(ModelFamily::Gpt2);
  windowed.name = "gpt2 with a window, untied";
  windowed.window = 3;
  windowed.tied_embeddings = false;
  all.push_back(windowed);
  TransformerConfig classifier = small(ModelFamily::Bert);
  classifier.name = "bert with classes";
  classifier.classes = 3;
  all.push_back(classifier);
  return all;
}

const std::vector<std::int64_t> kLengths = {7, 4, 1};

/// Weights away from their initial values, so that no gain is exactly 1 and no bias 0.
void disturb(cpu::Trainer& trainer, std::size_t parameters) {
  std::uint32_t state = 12345;
  for (std::size_t p = 0; p < parameters; ++p) {
    for (float& w : weights_of(trainer, p)) {
      state = state * 1664525U + 1013904223U;
      w += 0.4F * (static_cast<float>(state >> 8U) / 16777216.0F - 0.5F);
    }
  }
}

/// d loss / d weight by a central difference of fourth order.
double finite_difference(cpu::Trainer& trainer, float& weight) {
  constexpr float kLearningStep = 0.02F;
  const float before = weight;
  const auto loss_at = [&](float offset) {
    weight = before + offset;
    const double loss = trainer.loss_of_last_batch();
    weight = before;
    return loss;
  };
  const double near = loss_at(kLearningStep) - loss_at(-kLearningStep);
  const double far = loss_at(2 * kLearningStep) - loss_at(-2 * kLearningStep);
  return (8 * near - far) / (12 * static_cast<double>(kLearningStep));
}

/// The entries with the largest gradients, which single precision resolves best, and the first.
std::vector<std::size_t> entries_to_check(std::span<const float> gradient) {
  std::vector<std::size_t> order(gradient.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return std::abs(gradient[a]) > std::abs(gradient[b]);
  });
  order.resize(std::min<std::size_t>(3, order.size()));
  order.push_back(0);
  return order;
}

double norm_of(std::span<const float> values) {
  double total = 0;
  for (const float v : values) {
    total += static_cast<double>(v) * static_cast<double>(v);
  }
  return std::sqrt(total);
}

}  // namespace

TEST_CASE("every gradient of every family equals the finite difference of the loss") {
  for (const TransformerConfig& config : gradient_cases()) {
    CAPTURE(config.name);
    const auto params = parameters(config);
    cpu::Trainer trainer(config, 1, 3);
    disturb(trainer, params.size());
    std::vector<std::vector<float>> weights;
    for (std::size_t p = 0; p < params.size(); ++p) {
      const auto now = weights_of(trainer, p);
      weights.emplace_back(now.begin(), now.end());
    }
    trainer.step(kLengths, 1.0, nullptr, nullptr);
    double largest_norm = 0;
    for (std::size_t p = 0; p < params.size(); ++p) {
      std::ranges::copy(weights[p], weights_of(trainer, p).begin());  // Undo the optimizer.
      largest_norm = std::max(largest_norm, norm_of(gradient_of(trainer, p)));
    }
    for (std::size_t p = 0; p < params.size(); ++p) {
      CAPTURE(params[p].name);
      const auto gradient = gradient_of(trainer, p);
      for (const std::size_t i : entries_to_check(gradient)) {
        CAPTURE(i);
        const double expected = finite_difference(trainer, weights_of(trainer, p)[i]);
        const double difference = std::abs(static_cast<double>(gradient[i]) - expected);
        // A key's bias has no gradient at all (softmax does not see it): the absolute part.
        CHECK(difference <= 0.02 * std::abs(expected) + 2e-4 * largest_norm);
      }
    }
  }
}

TEST_CASE("the loss scale multiplies every gradient and leaves the loss as it is") {
  for (const TransformerConfig& config : every_family()) {
    CAPTURE(config.name);
    cpu::Trainer one(config, 1, 3);
    cpu::Trainer scaled(config, 1, 3);
    const TrainerStep a = one.step(kLengths, 1.0, nullptr, nullptr);
    const TrainerStep b = scaled.step(kLengths, 0.5, nullptr, nullptr);
    CHECK(a.loss == b.loss);
    for (std::size_t p = 0; p < parameters(config).size(); ++p) {
      for (std::size_t i = 0; i < gradient_of(one, p).size(); ++i) {
        REQUIRE(gradient_of(scaled, p)[i] ==
                doctest::Approx(0.5F * gradient_of(one, p)[i]).epsilon(1e-4));
      }
    }
  }
}

TEST_CASE("a batch is really padded beyond its longest sample, and learns the same") {
  const std::vector<std::int64_t> lengths = {3, 5};
  CHECK(batch_size(lengths, 4, false).rows == 10);
  const BatchSize size = batch_size(lengths, 8, false);
  CHECK(size.rows == 16);
  CHECK(size.useful_tokens == 8);
  cpu::TrainingDevice device{TransformerConfig()};
  Batch<cpu::TrainingDevice> batch;
  RandomStream random(1);
  batch.collate(device, size, lengths, {23, 5}, random);
  const std::int32_t* targets = batch.arrays().targets;
  CHECK(std::count(targets, targets + 16, kNoTarget) == 8);
  CHECK(targets[2] != kNoTarget);
  CHECK(targets[3] == kNoTarget);
  for (const TransformerConfig& config : every_family()) {
    CAPTURE(config.name);
    cpu::Trainer plain(config, 1, 3);
    cpu::Trainer padded(config, 1, 3);
    const double loss = plain.step(lengths, 1.0, nullptr, nullptr).loss;
    CHECK(padded.step(lengths, 1.0, nullptr, nullptr, 16).loss ==
          doctest::Approx(loss).epsilon(1e-5));
  }
}

TEST_CASE("padded tokens get no gradient") {
  // Padding has token 0. Among 17 useful tokens of 23 kinds token 0 is often absent, and then its
  // row must stay without a gradient, although 15 padded tokens look it up.
  for (const TransformerConfig& config : every_family()) {
    if (config.tied_embeddings) {
      continue;  // The head reaches every row.
    }
    CAPTURE(config.name);
    int untouched = 0;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      cpu::Trainer trainer(config, 1, seed);
      trainer.step(std::vector<std::int64_t>{1, 16}, 1.0, nullptr, nullptr);
      const auto row = gradient_of(trainer, 0).first(static_cast<std::size_t>(config.hidden));
      untouched += norm_of(row) == 0 ? 1 : 0;
    }
    CHECK(untouched > 3);
    CHECK(untouched < 17);
  }
}

TEST_CASE("the loss falls over thirty steps on one batch") {
  for (const TransformerConfig& config : every_family()) {
    CAPTURE(config.name);
    cpu::Trainer trainer(config, 1, 5);
    trainer.set_learning_rate(2e-3F);
    double first = 0;
    double last = 0;
    for (int step = 0; step < 30; ++step) {
      trainer.seed_data(77);  // The same tokens and labels again.
      const TrainerStep result = trainer.step(kLengths, 1.0, nullptr, nullptr);
      first = step == 0 ? result.loss : first;
      last = result.loss;
    }
    CHECK(last < 0.8 * first);
  }
}

TEST_CASE(
    "the trainer runs exactly the ops of the cost model, with the copies where DDP does them") {
  for (const TransformerConfig& config : gradient_cases()) {
    CAPTURE(config.name);
    const StepOps expected = step_ops(config);
    const auto params = parameters(config);
    const cpu::Trainer trainer(config, 2, 1);
    const std::vector<Op>& ops = trainer.ops();
    std::size_t at = 0;
    CHECK(ops.at(at++).op_class == OpClass::Collate);
    CHECK(ops.at(at).op_class == OpClass::ZeroGradient);
    CHECK(ops.at(at++).n == parameter_count(config));
    for (const Op& op : expected.forward) {
      CHECK(ops.at(at++) == op);
    }
    std::size_t copies = 0;
    for (const Op& op : expected.backward) {
      CHECK(ops.at(at++) == op);
      for (const int parameter : op.completes) {
        CHECK(ops.at(at).op_class == OpClass::GradientCopyIn);
        CHECK(ops.at(at++).n == params[static_cast<std::size_t>(parameter)].elements());
        ++copies;
      }
    }
    CHECK(copies == params.size());
    CHECK(ops.at(at).op_class == OpClass::GradientCopyOut);
    CHECK(ops.at(at++).n == parameter_count(config));
    CHECK(ops.at(at++).op_class == OpClass::Optimizer);
    CHECK(at == ops.size());
  }
}

namespace {

/// Doubles every bucket, as two ranks with equal gradients would; records the order of calls.
class DoublingReducer : public GradientReducer<cpu::Array> {
 public:
  void launch(std::size_t bucket, cpu::Array data, std::int64_t elements) override {
    launched.push_back(bucket);
    std::for_each(data.data, data.data + elements, [](float& x) { x *= 2; });
  }
  void wait(std::size_t bucket) override { waited.push_back(bucket); }
  std::vector<std::size_t> launched;
  std::vector<std::size_t> waited;
};

class CountingTimer : public OpTimer {
 public:
  void op_done(std::size_t op_index) override { CHECK(op_index == count++); }
  std::size_t count = 0;
};

}  // namespace

TEST_CASE("buckets launch in their order, whatever order gradients get ready in") {
  const TransformerConfig config = small(ModelFamily::DistilBert);
  const int count = static_cast<int>(parameters(config).size());
  // Registration order, against the order of readiness: all launch when the last gradient is in.
  std::vector<std::vector<int>> buckets(3);
  for (int p = 0; p < count; ++p) {
    buckets[static_cast<std::size_t>(p * 3 / count)].push_back(p);
  }
  cpu::Trainer plain(config, 1, 3);
  cpu::Trainer halved(config, 2, 3);
  halved.set_buckets(buckets);
  DoublingReducer reducer;
  CountingTimer timer;
  plain.step(kLengths, 1.0, nullptr, nullptr);
  halved.step(kLengths, 1.0, &reducer, &timer);
  CHECK(reducer.launched == std::vector<std::size_t>{0, 1, 2});
  CHECK(reducer.waited == std::vector<std::size_t>{0, 1, 2});
  CHECK(timer.count == halved.ops().size());
  for (std::size_t p = 0; p < static_cast<std::size_t>(count); ++p) {
    REQUIRE(std::ranges::equal(gradient_of(plain, p), gradient_of(halved, p)));
    REQUIRE(std::ranges::equal(weights_of(plain, p), weights_of(halved, p)));
  }
}

TEST_CASE("buckets that lack or repeat a parameter are refused") {
  cpu::Trainer trainer(small(ModelFamily::TokenClassifier), 1, 3);
  CHECK_THROWS_WITH_AS(trainer.set_buckets({{0, 1}}),
                       "buckets: parameter 2 appears 0 times, expected once",
                       InputError);
  CHECK_THROWS_AS(trainer.set_buckets({{0, 1, 99}}), InputError);
}

TEST_CASE("what the CPU backend does not compute is refused with what to write instead") {
  TransformerConfig config = small(ModelFamily::Llama);
  config.attention = AttentionKind::Flash;
  CHECK_THROWS_WITH_AS(cpu::Trainer(config, 1, 1),
                       "the CPU backend computes dense attention; set model.attention = "
                       "\"dense\"",
                       InputError);
  config.attention = AttentionKind::Dense;
  config.parameter_dtype = Dtype::Bf16;
  CHECK_THROWS_AS(cpu::Trainer(config, 1, 1), InputError);
  config.parameter_dtype = Dtype::F32;
  cpu::Trainer trainer(config, 1, 1);
  CHECK_THROWS_AS(trainer.step(std::vector<std::int64_t>{17}, 1, nullptr, nullptr), InputError);
  CHECK_THROWS_AS(trainer.step({}, 1, nullptr, nullptr), InputError);
  CHECK_THROWS_AS(trainer.step(std::vector<std::int64_t>{4}, 1, nullptr, nullptr, 17), InputError);
}

TEST_CASE("the same seed gives the same losses and weights") {
  const TransformerConfig config = small(ModelFamily::Llama);
  cpu::Trainer a(config, 1, 9);
  cpu::Trainer b(config, 1, 9);
  for (int step = 0; step < 3; ++step) {
    CHECK(a.step(kLengths, 1, nullptr, nullptr).loss == b.step(kLengths, 1, nullptr, nullptr).loss);
  }
  CHECK(std::ranges::equal(weights_of(a, 0), weights_of(b, 0)));
}

}  // namespace stepsim
