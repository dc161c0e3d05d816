#include "costmodel/compute/pass_cost.h"

#include <doctest/doctest.h>

#include "costmodel/model/model_presets.h"
#include "costmodel/records/profile.h"
#include "tests/approx.h"
#include "tests/costmodel/helpers.h"

using namespace stepsim;
using stepsim::test::Approx;
using stepsim::test::content;
using stepsim::test::error_of;
using stepsim::test::fresh_folder;
using stepsim::test::replaced;
using stepsim::test::written;

namespace {

/// 2 samples of 60 and 100 tokens, padded to 100.
const BatchShape kBatch{2, 100, 160, 3600 + 10000};

PassCost pass(double constant, double token) {
  PassCost cost;
  cost.features = {"1", "tokens"};
  cost.coefficients = {constant, token};
  cost.draws = {{constant, token}, {2 * constant, token}};
  cost.tokens = {100, 1000};
  cost.length = {50, 200};
  cost.samples = 40;
  cost.errors.random = 0.02;
  cost.errors.block = 0.05;
  return cost;
}

RecordedModel recorded(const std::string& preset) {
  RecordedModel result;
  result.model = model_preset(preset);
  result.data = pass(1e-4, 0);
  result.forward = pass(1e-3, 1e-5);
  result.backward = pass(2e-3, 3e-5);
  result.optimizer_seconds = 5e-4;
  return result;
}

Profile recorded_profile() {
  Profile profile;
  profile.name = profile.device = "lab";
  profile.backend = "cpu";
  profile.recorded = recorded("tiny-classifier");
  profile.noise.step_quantiles = {0.9, 1, 1.25};
  profile.noise.rank_correlation = 0.375;
  profile.cores = 6;
  return profile;
}

}  // namespace

TEST_CASE("features of a pass count padded tokens, and with varlen the useful ones") {
  CHECK(pass_feature("1", kBatch, false) == 1);
  CHECK(pass_feature("1", {}, false) == 0);
  CHECK(pass_feature("samples", kBatch, false) == 2);
  CHECK(pass_feature("tokens", kBatch, false) == 200);
  CHECK(pass_feature("tokens", kBatch, true) == 160);
  CHECK(pass_feature("tokens*length", kBatch, false) == 20000);
  CHECK(pass_feature("tokens*length", kBatch, true) == 13600);
  CHECK(pass_feature("tokens*length>15000", kBatch, false) == 5000);
  CHECK(pass_feature("tokens*length>20000", kBatch, false) == 0);
}

TEST_CASE("a part of the tokens grows between its bounds and is in proportion beyond them") {
  BatchShape batch;
  batch.max_length = 10;
  const auto part = [&](const char* name, std::int64_t samples) {
    batch.samples = samples;
    return pass_feature(name, batch, false);
  };
  CHECK(part("tokens:70-100", 7) == 0);
  CHECK(part("tokens:70-100", 8) == 10);
  CHECK(part("tokens:70-100", 10) == 30);
  CHECK(part("tokens:70-100", 20) == 60);
  for (const char* wrong : {"tokens:", "tokens:4", "tokens:8-4", "tokens:8-", "tokens:x-8"}) {
    CAPTURE(wrong);
    CHECK(error_of([&] { (void)part(wrong, 8); }).find("unknown feature") == 0);
  }
}

TEST_CASE("pieces of the samples between two batches add up to a measured table") {
  BatchShape batch;
  batch.max_length = 1;
  const auto piece = [&](const char* name, std::int64_t samples) {
    batch.samples = samples;
    return pass_feature(name, batch, false);
  };
  CHECK(piece("samples:0-20", 8) == 8);
  CHECK(piece("samples:0-20", 50) == 20);
  CHECK(piece("samples:20-28", 8) == 0);
  CHECK(piece("samples:20-28", 24) == 4);
  CHECK(piece("samples:28-", 24) == 0);
  CHECK(piece("samples:28-", 100) == 72);
  for (const char* wrong :
       {"samples:", "samples:4", "samples:8-4", "samples:-4-8", "samples:x-8"}) {
    CAPTURE(wrong);
    CHECK(error_of([&] { (void)piece(wrong, 8); }).find("unknown feature") == 0);
  }
}

TEST_CASE("a feature of a pass that is not known is refused with those that are") {
  for (const char* name : {"", "token", "tokens*length>", "tokens*length>x", "tokens*length>-1"}) {
    CAPTURE(name);
    CHECK(error_of([&] { (void)pass_feature(name, kBatch, false); }) ==
          "unknown feature '" + std::string(name) +
              "' of a pass; known: 1, samples, samples:A-B, tokens, tokens:A-B, "
              "tokens*length, tokens*length>X");
  }
}

TEST_CASE("the ops of a batch take the recorded passes together, whatever the model") {
  for (const char* preset : {"tiny-classifier", "distilbert", "bert-base", "gpt2-small"}) {
    CAPTURE(preset);
    const PassCostModel model(recorded(preset), true);
    const StepOps ops = step_ops(model_preset(preset));
    double forward = 0;
    double backward = 0;
    for (const Op& op : ops.forward) {
      forward += model.op(op, kBatch).seconds;
      CHECK(model.op(op, kBatch).group == kForwardPass);
    }
    for (const Op& op : ops.backward) {
      backward += model.op(op, kBatch).seconds;
      CHECK(model.op(op, kBatch).group == kBackwardPass);
    }
    CHECK(forward == Approx(1e-3 + 200 * 1e-5));
    CHECK(backward == Approx(2e-3 + 200 * 3e-5));
    for (const Op& op : ops.forward) {
      CHECK(model.op(op, {}).seconds == 0);
    }
  }
}

TEST_CASE("with varlen attention padding costs nothing") {
  RecordedModel varlen = recorded("gpt2-small");
  varlen.model.attention = AttentionKind::Varlen;
  double forward = 0;
  const PassCostModel model(varlen, true);
  for (const Op& op : step_ops(varlen.model).forward) {
    forward += model.op(op, kBatch).seconds;
  }
  CHECK(forward == Approx(1e-3 + 160 * 1e-5));
}

TEST_CASE("an op's share follows its operations and bytes") {
  RecordedModel model = recorded("tiny-classifier");
  const std::vector<Op> ops = step_ops(model.model).forward;
  for (const double weight : {0.0, 8.0}) {
    model.operations_per_byte = weight;
    const PassCostModel costs(model, true);
    double all = 0;
    for (const Op& op : ops) {
      all += op_weight(op, kBatch, weight);
    }
    for (const Op& op : ops) {
      CHECK(costs.op(op, kBatch).seconds == Approx(3e-3 * op_weight(op, kBatch, weight) / all));
    }
  }
}

TEST_CASE("zeroing and copying gradients are in the passes, the optimizer costs by elements") {
  const RecordedModel model = recorded("tiny-classifier");
  const PassCostModel costs(model, true);
  const std::int64_t elements = parameter_count(model.model);
  for (const OpClass op :
       {OpClass::ZeroGradient, OpClass::GradientCopyIn, OpClass::GradientCopyOut}) {
    CHECK(costs.op(elements_op(op, elements, Dtype::F32), {}).seconds == 0);
  }
  CHECK(costs.op(elements_op(OpClass::Optimizer, elements, Dtype::F32), {}).seconds ==
        Approx(5e-4));
  CHECK(costs.op(elements_op(OpClass::Optimizer, elements / 4, Dtype::F32), {}).seconds ==
        Approx(1.25e-4));
  CHECK(costs.op(collate_op(), kBatch).seconds == Approx(1e-4));
  CHECK(costs.launch_seconds() == 0);
}

TEST_CASE("a batch outside the recorded ones is an extrapolation, refused beyond four times") {
  const PassCostModel model(recorded("tiny-classifier"), true);
  const Op op = step_ops(model_preset("tiny-classifier")).forward.front();
  const auto factor = [&](std::int64_t samples, std::int64_t length) {
    return model.op(op, batch_shape(std::vector<std::int64_t>(samples, length))).extrapolation;
  };
  CHECK(factor(10, 100) == 1);
  CHECK(factor(5, 200) == 1);
  CHECK(factor(5, 400) == 2);     // Tokens and length.
  CHECK(factor(25, 100) == 2.5);  // Tokens.
  CHECK(factor(2, 600) == 3);     // Length.
  CHECK(factor(1, 50) == 2);      // Tokens, below.
  CHECK(factor(20, 10) == 5);     // Length, below: not refused.
  CHECK(factor(40, 100) == 4);
  CHECK(
      error_of([&] { (void)factor(41, 100); }) ==
      "a batch of 41 x 100 tokens is 4.10 times the largest recorded one in tokens or length, and "
      "more than 4 times is refused: record steps of such batches");
  CHECK(error_of([&] { (void)factor(1, 801); }).find("a batch of 1 x 801") == 0);
}

TEST_CASE("draws are ratios of what all the batches take together") {
  const PassCost cost = pass(1e-3, 1e-5);
  const std::vector<BatchShape> batches = {kBatch, kBatch};
  // 2 ms + 4 ms, and 4 ms + 4 ms with twice the constant.
  const auto ratios = draw_ratios(cost, batches, false);
  REQUIRE(ratios.size() == 2);
  CHECK(ratios[0] == Approx(1));
  CHECK(ratios[1] == Approx(8.0 / 6));
  CHECK(draw_ratios(cost, batches, true)[1] == Approx(7.2 / 5.2));
  CHECK(draw_ratios(pass(0, 0), batches, false) == std::vector<double>{1, 1});
  PassCost none = cost;
  none.draws.clear();
  CHECK(draw_ratios(none, batches, false).empty());
}

TEST_CASE("a model is the same by whatever name, and no other") {
  TransformerConfig model = model_preset("gpt2-small");
  model.name = "mine";
  CHECK(same_model(model, model_preset("gpt2-small")));
  ++model.layers;
  CHECK_FALSE(same_model(model, model_preset("gpt2-small")));
}

TEST_CASE("a recorded model reads back as it was written, in version 3") {
  const std::string path = fresh_folder() + "/profile.json";
  Profile profile = recorded_profile();
  profile.recorded->forward.coefficients = {1.0 / 3, 1e-17 / 7};
  profile.recorded->forward.features = {"tokens*length", "tokens*length>12345"};
  profile.recorded->backward.draws.clear();
  profile.recorded->data.errors = {};
  write_profile(path, profile);
  CHECK(content(path).find("stepsim-profile/3") != std::string::npos);
  CHECK(read_profile(path) == profile);

  profile.recorded.reset();
  write_profile(path, profile);
  CHECK(content(path).find("stepsim-profile/3") != std::string::npos);
  CHECK(read_profile(path) == profile);

  profile.noise.step_quantiles.clear();
  profile.noise.rank_correlation = 0;
  profile.cores = 0;
  write_profile(path, profile);
  CHECK(content(path).find("stepsim-profile/1") != std::string::npos);
  CHECK(content(path).find("quantiles") == std::string::npos);
}

TEST_CASE("a damaged recorded model is refused by line and key") {
  const std::string path = fresh_folder() + "/profile.json";
  write_profile(path, recorded_profile());
  const std::string good = content(path);
  const auto error_with = [&](const std::string& from, const std::string& to) {
    const std::string damaged = written("profile.json", replaced(good, from, to));
    const std::string text = error_of([&] { (void)read_profile(damaged); });
    return text.substr(std::min(text.find("profile.json"), text.size()));
  };
  CHECK(error_with("", "") == "");
  CHECK(error_with(R"(["1","tokens"])", R"(["1","token"])") ==
        "profile.json:14: error: recorded.data.features[1]: unknown feature 'token' of a pass; "
        "known: 1, samples, samples:A-B, tokens, tokens:A-B, "
        "tokens*length, tokens*length>X");
  CHECK(error_with(R"("coefficients_s":[0.001,)", R"("coefficients_s":[)") ==
        "profile.json:15: error: recorded.forward.coefficients_s: expected 2 numbers, none "
        "negative");
  CHECK(error_with(R"("coefficients_s":[0.001,)", R"("coefficients_s":[-0.001,)") ==
        "profile.json:15: error: recorded.forward.coefficients_s: expected 2 numbers, none "
        "negative");
  CHECK(error_with("[[0.001,1e-05],", "[[0.001],") ==
        "profile.json:15: error: recorded.forward.draws_s[0]: expected 2 numbers, none negative");
  CHECK(error_with("[[0.001,1e-05],", "[[0.001,null],") ==
        "profile.json:15: error: recorded.forward.draws_s[0]: expected 2 numbers, none negative");
  CHECK(error_with(R"("tokens_range":[100.0,)", R"("tokens_range":[2000,)") ==
        "profile.json:14: error: recorded.data.tokens_range: expected [lo, hi] with 0 < lo <= hi");
  CHECK(error_with(R"("optimizer_s": 0.0005)", R"("optimizer_s": -1)") ==
        "profile.json:12: error: recorded.optimizer_s: -1 is negative");
  CHECK(error_with(R"("family":"token_classifier")", R"("family":"none")")
            .find("profile.json:11: error: recorded.model.family: ") == 0);
  CHECK(error_with("[0.9,1.0,1.25]", "[1.0,0.9,1.25]") ==
        "profile.json:9: error: noise.step_quantiles: expected at least two quantiles of time / "
        "mean, ascending");
  CHECK(error_with(R"("rank_correlation":0.375)", R"("rank_correlation":1.5)") ==
        "profile.json:9: error: noise.rank_correlation: expected 0 .. 1");
  CHECK(error_with("[0.9,1.0,1.25]", "[0,1,2]").find("profile.json:9: error: noise") == 0);
  CHECK(error_with(R"("backward":)", R"("backwards":)").find("backward") != std::string::npos);
}
