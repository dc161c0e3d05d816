// Are steps that are flat for the host told from slow links?
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "calibrate/import/step_times/step_time_draws.h"
#include "calibrate/import/step_times/step_time_fit.h"
#include "calibrate/import/step_times/step_time_fitter.h"
#include "calibrate/import/step_times/step_time_prior.h"
#include "calibrate/import/step_times/step_time_profile.h"
#include "costmodel/model/bucket_assignment.h"
#include "costmodel/model/model_presets.h"
#include "tests/approx.h"
#include "tests/costmodel/helpers.h"

using stepsim::test::Approx;

namespace stepsim::test {
namespace {

StepTimeFit fit_of_rows(const std::string& rows,
                        const std::string& columns = "placement,batch,step_ms",
                        const char* model = "bert-base") {
  const StepTimeTable table = read_step_times(written("host.csv", columns + "\n" + rows));
  const StepTimeJob job =
      step_time_job(table, model_preset(model), kDefaultFirstBucketBytes, kDefaultBucketCapBytes);
  return fit_step_times(table, job);
}

/// A rank that takes 50 ms and 1.8 ms a sample, and a host that takes 85 ms, with links that
/// everything hides.
double planted_ms(int batch) {
  return 1e3 * untimed_compute(50e-3 + 1.8e-3 * batch, 85e-3);
}

std::string planted_rows() {
  std::string rows = "1,64,165.2\n1,128,280.4\n";
  const std::vector<std::pair<std::string, int>> several = {
      {"2", 32}, {"4", 16}, {"8", 8}, {"4", 32}, {"8", 16}};
  for (const auto& [placement, batch] : several) {
    rows += fmt::format("{},{},{:.2f}\n", placement, batch, planted_ms(batch));
  }
  return rows;
}

std::size_t place_of(const StepTimeFit& fit, std::int64_t batch) {
  const auto found = std::ranges::find(fit.job.compute, batch, &ComputePoint::batch);
  return static_cast<std::size_t>(found - fit.job.compute.begin());
}

TEST_CASE("steps that are flat for the host are not taken for slow links") {
  const StepTimeFit fit = fit_of_rows(planted_rows());
  const std::vector<double>& mode = fit.posterior.mode;
  CHECK(coefficients_of(fit, mode).links.intra_bytes_per_s > 20e9);
  for (const int batch : {8, 16, 32}) {
    CAPTURE(batch);
    const std::size_t place = place_of(fit, batch);
    CHECK(compute_of(fit, mode, place) == Approx(1e-3 * planted_ms(batch)).epsilon(0.12));
    const auto& point = fit.job.compute[place];
    CHECK(point.seconds == Approx(50e-3 + 1.8e-3 * batch).epsilon(0.01));
  }
  // Nobody timed two nodes: the interval holds slow links, and its middle those seen inside.
  const StepTimePrediction two = predict_step_time(fit, place_of(fit, 8), parse_placement("2x8"));
  CHECK(1e3 * two.parts.step == Approx(planted_ms(8)).epsilon(0.1));
  const auto [low, high] =
      drawn_step(fit, drawn_coefficients(fit), place_of(fit, 8), parse_placement("2x8")).interval();
  CHECK(1e3 * low < planted_ms(8));
  CHECK(high > 2 * two.parts.step);
}

TEST_CASE("below the smallest batch a profile has the host's time, and not a line to nothing") {
  const Profile profile = step_time_profile(fit_of_rows(planted_rows()), nullptr);
  BatchShape shape;
  shape.samples = shape.useful_tokens = 1;
  shape.max_length = 1;
  double seconds = profile.recorded->optimizer_seconds;
  for (const PassCost* pass : {&profile.recorded->forward, &profile.recorded->backward}) {
    seconds += pass_seconds(*pass, pass->coefficients, shape, false);
  }
  CHECK(1e3 * seconds == Approx(planted_ms(1)).epsilon(0.15));
}

TEST_CASE("no rank alone: a step that halves with its batch is compute") {
  const StepTimeFit fit = fit_of_rows("8,60,231\n2x8,30,117\n");
  const std::vector<double>& mode = fit.posterior.mode;
  CHECK(1e3 * compute_of(fit, mode, place_of(fit, 60)) > 0.88 * 231);
  CHECK(coefficients_of(fit, mode).links.intra_bytes_per_s > 15e9);
}

/// What made-up ranks of a compiled GPT-2 take, whose host is twice as fast as is assumed of one.
double accumulated_ms(const StepTimeJob& job, const char* placement, int micro_batches) {
  StepTimeCoefficients truth;
  truth.forward_share = 1.0 / 3;
  truth.optimizer_share = 0.05;
  truth.links = {200e9, 100e3, 80e9, 100e3, 1, 0, 0};
  constexpr double kOfBatch = 25e-3;
  return 1e3 * step_time(job, truth, kOfBatch, parse_placement(placement), 0, micro_batches).step;
}

TEST_CASE("micro-batches: each takes its share of the step, and the last one hides what is sent") {
  const char* columns = "placement,batch,micro_batches,step_ms";
  const StepTimeJob job = fit_of_rows("8,12,8,200\n2x8,12,4,100\n", columns, "gpt2-small").job;
  const auto row = [&](const char* placement, int micro_batches) {
    return fmt::format("{},12,{},{:.2f}\n",
                       placement,
                       micro_batches,
                       accumulated_ms(job, placement, micro_batches));
  };
  const StepTimeFit fit = fit_of_rows(row("8", 8) + row("2x8", 4), columns, "gpt2-small");
  CHECK(1e3 * compute_of(fit, fit.posterior.mode, 0) == Approx(25).epsilon(0.12));
  for (const int micro : {1, 2}) {
    CAPTURE(micro);
    const auto far = parse_placement("8x8");
    CHECK(1e3 * predict_step_time(fit, 0, far, 0, micro).parts.step ==
          Approx(accumulated_ms(job, "8x8", micro)).epsilon(0.2));
  }
  // One batch of 96 does not say that 12 samples take less than a host is assumed to.
  const StepTimeFit whole = fit_of_rows(fmt::format("8,96,{:.2f}\n2x8,48,{:.2f}\n",
                                                    accumulated_ms(job, "8", 8),
                                                    accumulated_ms(job, "2x8", 4)),
                                        "placement,batch,step_ms",
                                        "gpt2-small");
  CHECK(1e3 * compute_below(whole, whole.posterior.mode).front() > 1.3 * 25);
}

TEST_CASE("a rank alone with micro-batches takes what it took") {
  const StepTimeFit fit =
      fit_of_rows("1,12,4,100\n8,12,4,104\n", "placement,batch,micro_batches,step_ms");
  CHECK(1e3 * predict_step_time(fit, 0, parse_placement("1"), 0, 4).parts.step ==
        Approx(100).epsilon(0.01));
  CHECK(1e3 * predict_step_time(fit, 0, parse_placement("1"), 0, 1).parts.step ==
        Approx(25.9).epsilon(0.01));
}

TEST_CASE("what a rank alone shows as exposed comes once a step, whatever its micro-batches") {
  const char* columns = "placement,batch,micro_batches,step_ms,sync_ms";
  // Each batch takes 1000 ms, of which the optimizer has 50, and the last hook 60.
  for (const char* alone : {"1,8,1,1060,60\n", "1,8,16,15310,60\n"}) {
    CAPTURE(alone);
    const StepTimeFit fit = fit_of_rows(alone + std::string("2,8,1,1150,150\n"), columns);
    CHECK(fit.job.compute.front().seconds == Approx(1.0));
    CHECK(fit.job.rest_s == Approx(0.06));
  }
}

TEST_CASE("a measured backward is of all micro-batches of its step") {
  const char* columns = "placement,batch,micro_batches,step_ms,backward_ms";
  for (const char* alone : {"1,8,1,1000,633\n", "1,8,16,15250,10128\n"}) {
    CAPTURE(alone);
    const StepTimeFit fit = fit_of_rows(alone + std::string("2,8,1,1050,\n8,8,1,1060,\n"), columns);
    CHECK(fit.posterior.mode[kForward] == Approx(1 - 633.0 / 950).epsilon(0.03));
  }
}

TEST_CASE("an optimizer of more than 5 % is no negative rest of the last micro-batch") {
  // A quarter of the 1000 ms is the optimizer's, which 16 micro-batches have once.
  const char* columns = "placement,batch,micro_batches,step_ms";
  for (const char* several :
       {"4,8,1,1000\n8,8,1,1000\n4+4,8,1,1010\n", "4,8,16,12250\n8,8,16,12250\n4+4,8,16,12260\n"}) {
    CAPTURE(several);
    const std::string rows = std::string(columns) + "\n1,8,1,1000\n" + several;
    const StepTimeTable table = read_step_times(written("rest.csv", rows));
    const StepTimeJob job = step_time_job(
        table, model_preset("bert-base"), kDefaultFirstBucketBytes, kDefaultBucketCapBytes);
    CHECK(step_of_last(table.rows[1], 1.0) == Approx(1.0));
    CHECK(node_growth(table, job) == Approx(0));
    const StepTimeFit fit = fit_step_times(table, job);
    for (const std::size_t place : {kIntra, kInter}) {  // Compute hid all.
      CHECK(std::ranges::count(fit.bounds, place, &StepTimeBound::place) == 1);
    }
    CHECK(1e3 * predict_step_time(fit, 0, parse_placement("8"), 0, table.rows[1].micro_batches)
                    .parts.step ==
          Approx(1e3 * table.rows[1].step_s).epsilon(0.03));
  }
}

}  // namespace
}  // namespace stepsim::test
