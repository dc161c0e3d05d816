// Bounds on what is predicted for published measurements. They were set before the predictions were
// looked at, from what the sources say of their own accuracy, but for those marked "afterwards".
// Where a prediction missed its bound the miss is what is checked, so that a change of it shows.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <doctest/doctest.h>

#include "costmodel/io/json_file.h"
#include "tests/approx.h"
#include "tests/published/predicted.h"
#include "tests/published/seed_lab.h"
#include "tests/published/validation.h"
#include "tests/test_data.h"

using namespace stepsim;
using namespace stepsim::published;
using stepsim::test::Approx;

namespace {

/// The folder of the reference data that holds `file`.
std::optional<std::string> folder_of(const std::string& file) {
  const auto path = test::data_file(file);
  if (!path) {
    return std::nullopt;
  }
  return path->substr(0, path->size() - file.size() - 1);
}

/// Error of one variant over all figures that it predicts.
struct Errors {
  double mean = 0;  ///< Signed.
  double mean_absolute = 0;
  double worst = 0;         ///< Absolute.
  double highest = -1e300;  ///< Signed.
  double lowest = 1e300;
};

Errors errors(const Validation& validation, std::size_t variant) {
  Errors result;
  double count = 0;
  for (const Figure& figure : validation.figures) {
    if (!figure.predicted.at(variant)) {
      continue;
    }
    const double error = validation.error(figure, variant);
    result.mean += error;
    result.mean_absolute += std::abs(error);
    result.worst = std::max(result.worst, std::abs(error));
    result.highest = std::max(result.highest, error);
    result.lowest = std::min(result.lowest, error);
    ++count;
  }
  result.mean /= count;
  result.mean_absolute /= count;
  return result;
}

}  // namespace

TEST_CASE("PyTorch's DDP benchmark: steps within 4 %, ideal overlap low in each") {
  const auto data = folder_of("traces/pytorch_ddp_readme/bucket25.csv");
  if (!data) {
    return;
  }
  const Validation all = ddp_readme(*data);
  REQUIRE(all.figures.size() == 16);
  int misses = 0;  // Afterwards: all within 4 % was expected.
  for (const Figure& figure : all.figures) {
    CAPTURE(figure.name);
    if (std::abs(all.error(figure, 1)) > 0.04) {
      ++misses;
      CHECK(figure.name.find("resnext50_32x4d") == 0);  // On 8 and 16 GPUs, 4.8 % low.
    }
  }
  CHECK(misses == 2);
  CHECK(errors(all, 1).worst <= 0.05);  // Afterwards.
  CHECK(errors(all, 0).highest < 0);
  CHECK(errors(all, 0).mean < -0.02);
  CHECK(errors(all, 0).mean > -0.07);
  // With k from one row, ResNet-50 on 8 GPUs, the 15 others.
  CHECK(errors(all, 4).worst <= 0.04);
  CHECK(errors(all, 4).mean_absolute <= 0.02);
  // Afterwards: no better than the same growth for all: the row tells how much, the model hardly
  // where.
  CHECK(errors(all, 5).mean_absolute < errors(all, 4).mean_absolute);
  // ResNet-50, the network of the all-reduces: k from 0.5 to 1 spans the figure, but for rounding.
  const Figure& figure = all.figure("resnet50 (100 on 1), 8 GPUs");
  CHECK(*figure.predicted[1] - 1 <= figure.published);
  CHECK(*figure.predicted[2] + 1 >= figure.published);
}

TEST_CASE("ResNet-50 on 8 V100 from its profiled step: 95.5 + k 4.4 ms and the last bucket") {
  // 95.5, 97.7 and 99.9 ms for k = 0, 0.5, 1 by that sum; the last bucket's 0.43 ms, of which the
  // sum knows nothing, stand after the backward. Afterwards: 0.2 ms was expected.
  for (const auto& [strength, sum] : {std::pair("0", 95.5), {"0.5", 97.7}, {"1", 99.9}}) {
    const double step =
        predicted_ms("resnet50_v100.toml", {std::string("interference.strength=") + strength});
    CAPTURE(step);
    CHECK(step > sum - 0.1);
    CHECK(step < sum + 0.5);
  }
}

TEST_CASE("PyTorch's DDP benchmark: buckets of 1 MiB within 4 %, their effect too small") {
  const auto data = folder_of("traces/pytorch_ddp_readme/bucket1.csv");
  if (!data) {
    return;
  }
  const Validation all = ddp_readme_small_buckets(*data);
  REQUIRE(all.figures.size() == 16);
  CHECK(errors(all, 1).worst <= 0.04);
  CHECK(errors(all, 2).highest < 0);  // Afterwards.
}

TEST_CASE("PyTorch's DDP benchmark: copies are only a part of what DDP costs on one GPU") {
  const auto data = folder_of("traces/pytorch_ddp_readme/bucket25.csv");
  if (!data) {
    return;
  }
  const Validation all = ddp_readme_one_gpu(*data);
  REQUIRE(all.figures.size() == 4);
  CHECK(errors(all, 0).highest < 0);
  CHECK(errors(all, 0).worst <= 0.056);
}

TEST_CASE("PyTorch's DDP benchmark: peaks are low, and carry over between like networks only") {
  const auto data = folder_of("traces/pytorch_ddp_readme/bucket25.csv");
  if (!data) {
    return;
  }
  const Validation all = ddp_readme_compute(*data);  // All bounds afterwards.
  REQUIRE(all.figures.size() == 4);
  CHECK(errors(all, 0).highest < 0);
  CHECK(std::abs(all.error(all.figure("resnet101"), 1)) < 0.10);
  CHECK(all.error(all.figure("resnext50_32x4d"), 1) < -0.10);
  CHECK(all.error(all.figure("resnext101_32x8d"), 1) < -0.10);
}

TEST_CASE("ResNet-50's buckets are ready when its layers' work says, not their bytes") {
  const auto data = folder_of("traces/resnet50_1xV100/bucket_ready.csv");
  if (!data) {
    return;
  }
  const Validation all = resnet_bucket_ready(*data);
  REQUIRE(all.figures.size() == 5);
  CHECK(errors(all, 0).worst > 0.3);
  CHECK(errors(all, 1).worst <= 0.15);
  CHECK(errors(all, 2).worst <= 0.05);  // 0.10 and, for the mean, 0.05 before the first run.
  CHECK(errors(all, 2).mean_absolute <= 0.02);
}

TEST_CASE("ResNet-50 on 8 GPUs: gradients alone do not explain the published scaling") {
  const Validation all = resnet_scaling();
  REQUIRE(all.figures.size() == 4);
  CHECK(errors(all, 2).lowest > 0);
  for (const char* slow : {"A100-80GB TF32", "V100-16GB FP32"}) {
    CHECK(all.error(all.figure(slow), 1) < 0.05);
  }
  for (const char* fast : {"A100-80GB AMP", "V100-16GB AMP"}) {
    CHECK(all.error(all.figure(fast), 1) > 0.05);
  }
}

TEST_CASE("BERT-large on a DGX-2: 8 and 16 GPUs from 1 and 4 within 3 %") {
  const Validation all = bert_large_scaling();
  CHECK(errors(all, 0).worst <= 0.03);
  CHECK(errors(all, 1).worst <= 0.03);
}

TEST_CASE("MLPerf BERT-large: composed prices miss a tuned step by more than 25 %") {
  const Validation all = mlperf_bert();
  CHECK(errors(all, 1).lowest > 0.25);  // Afterwards: within 0.25 was expected.
  CHECK(errors(all, 1).worst < 0.40);   // Afterwards.
  // Afterwards: ranks that take samples as they come lose more the more of them there are.
  const auto loss = [&](const char* name) {
    return *all.figure(name).predicted[0] / *all.figure(name).predicted[1];
  };
  CHECK(loss("8 GPUs") > 1.1);
  CHECK(loss("64 GPUs") > loss("8 GPUs") + 0.05);
}

TEST_CASE("all-reduces after the backward: 291 within 3 %, one with its copies within 8 %") {
  const Validation all = lm3b_sync();
  CHECK(std::abs(all.error(all.figure("291 all-reduces"), 0)) <= 0.03);
  const Figure& one = all.figure("one all-reduce");
  CHECK(std::abs(all.error(one, 1)) <= 0.08);
  CHECK(all.error(one, 0) < all.error(one, 1));
}

TEST_CASE("Fun-ASR: means, stalled steps and their share of the time within 5 %") {
  const Validation all = fun_asr();
  for (const Figure& figure : all.figures) {
    CAPTURE(figure.name);
    CHECK(std::abs(all.error(figure, 0)) <= 0.05);
  }
}

TEST_CASE(
    "three samplers: their order; means and medians within 5 %, p90 within 10 %, but for "
    "batch_rebalance") {
  const Validation all = three_samplers();
  const auto ms = [&](const char* name) { return *all.figure(name).predicted[0]; };
  CHECK(ms("random, mean") > 1.4 * ms("group_by_length, mean"));
  CHECK(ms("batch_rebalance, p90") < ms("group_by_length, p90"));
  CHECK(ms("group_by_length, median") < ms("batch_rebalance, median"));
  for (const Figure& figure : all.figures) {
    CAPTURE(figure.name);
    const bool rebalanced = figure.name.starts_with("batch_rebalance");
    const double bound = figure.name.ends_with("p90") ? 0.1 : 0.05;
    CHECK((rebalanced || std::abs(all.error(figure, 0)) <= bound));
  }
}

TEST_CASE("DDP lab: the late rank's step lies between the bounds, the others wait for it") {
  const auto data = folder_of("seed_lab/ddp_lab.csv");
  if (!data) {
    return;
  }
  const Validation all = ddp_lab(*data);
  const Figure& late = all.figure("step, rank 0 late");
  CHECK(*late.predicted[0] >= late.published);
  CHECK(*late.predicted[1] <= late.published);
  CHECK(std::abs(all.error(all.figure("the others' compute, from that step of rank 0"), 0)) <=
        0.02);
}

TEST_CASE("token-skew lab: a case from the other case's recorded steps") {
  const auto data = folder_of("seed_lab/measured.csv");
  if (!data) {
    return;
  }
  // Published: the slowest rank's mean steps. From last start to last end the means are the same.
  CHECK(measured_step_ms(seed_lab_run(*data, "uniform")) == Approx(16.32).epsilon(0.02));
  CHECK(measured_step_ms(seed_lab_run(*data, "variable_fixed")) == Approx(38.05).epsilon(0.01));
  // Neither case's steps differ enough to tell the other's: both errors are large.
  const Validation all = seed_lab(*data);
  CHECK(std::abs(all.error(all.figure("uniform from variable_fixed"), 0)) <= 0.20);
  CHECK(std::abs(all.error(all.figure("variable_fixed from uniform"), 0)) <= 0.30);
  const double uniform = measured_step_ms(seed_lab_run(*data, "uniform"));
  const auto step = seed_lab_prediction(*data, {"variable_fixed"}, "uniform").summary.step_time_ms;
  CHECK(step.low90 < uniform);
  CHECK(step.high90 > uniform);
  const double fixed = measured_step_ms(seed_lab_run(*data, "variable_fixed"));
  const auto longer =
      seed_lab_prediction(*data, {"uniform"}, "variable_fixed").summary.step_time_ms;
  CHECK(longer.low90 < fixed);
  CHECK(longer.high90 > fixed);
}

TEST_CASE("token-skew lab: two shapes tell no constant from a slope, and the interval says so") {
  const auto data = folder_of("seed_lab/measured.csv");
  if (!data) {
    return;
  }
  // Batches of 5 to 19 samples take 22.1 ms by tokens and tokens * length, 24.6 ms with a constant
  // of 8.9 ms, least squares of either form to the slowest ranks' steps.
  const auto step = seed_lab_prediction(*data, {"uniform", "variable_fixed"}, "token_budget")
                        .summary.step_time_ms;
  CHECK(step.low90 < 22.1);
  CHECK(step.high90 > 24.6);
}

TEST_CASE("token-skew lab: what was fitted is met, and both unseen cases lie between") {
  const auto data = folder_of("seed_lab/measured.csv");
  if (!data) {
    return;
  }
  const std::vector<std::string> measured = {"uniform", "variable_fixed"};
  std::vector<double> fitted;
  for (const std::string& name : measured) {
    const double ms = measured_step_ms(seed_lab_run(*data, name));
    const auto step = seed_lab_prediction(*data, measured, name).summary.step_time_ms;
    CAPTURE(name);
    CHECK(step.mean == Approx(ms).epsilon(0.05));
    CHECK(step.low90 < ms);
    CHECK(step.high90 > ms);
    fitted.push_back(step.mean);
  }
  for (const char* name : {"bucketing", "token_budget"}) {
    const auto step = seed_lab_prediction(*data, measured, name).summary.step_time_ms;
    CHECK(step.mean > fitted[0]);
    CHECK(step.mean < fitted[1]);
  }
}

TEST_CASE("vTrain: what 8 GPUs add follows from what 4 add") {
  const auto data = folder_of("kernels/vtrain_a100_dp.csv");
  if (!data) {
    return;
  }
  const Validation all = vtrain(*data);
  for (const Figure& figure : all.figures) {
    CAPTURE(figure.name);
    const bool narrow = figure.name.find("hidden 1024") == 0;
    CHECK((narrow ? std::abs(all.error(figure, 0)) <= 0.05 : figure.published < 0));
  }
}

TEST_CASE("the results file is what the validations print") {
  const auto data = folder_of("kernels/vtrain_a100_dp.csv");
  if (!data) {
    return;
  }
  const std::string path = test::source_root() + "/tests/published/RESULTS.md";
  const std::string now = results(*data);
  if (std::getenv("STEPSIM_ACCEPT") != nullptr) {
    write_text_atomically(path, now);
    test::skip("accepted tests/published/RESULTS.md");
    return;
  }
  const bool same = read_text(path) == now;
  CHECK_MESSAGE(same, "published_validations > tests/published/RESULTS.md brings it up to date");
}
