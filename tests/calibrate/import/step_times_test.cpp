// Are planted coefficients found in step times, and bad tables refused?
#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "calibrate/import/step_times/step_time_advice.h"
#include "calibrate/import/step_times/step_time_draws.h"
#include "calibrate/import/step_times/step_time_prior.h"
#include "calibrate/import/step_times/step_time_profile.h"
#include "calibrate/import/step_times/step_time_report.h"
#include "costmodel/model/bucket_assignment.h"
#include "costmodel/model/model_presets.h"
#include "costmodel/model/tensor_list.h"
#include "tests/approx.h"
#include "tests/costmodel/helpers.h"

using stepsim::test::Approx;

namespace stepsim::test {
namespace {

StepTimeJob planted_job(const StepTimeTable& table, const TransformerConfig& model) {
  return step_time_job(table, model, kDefaultFirstBucketBytes, kDefaultBucketCapBytes);
}

/// Standard deviations, as fractions: of compute, and of a run's collectives.
struct PlantedNoise {
  double compute = 0;
  double run = 0;
};

/// A cluster that no prior knows but in the mean, whose steps are timed.
class PlantedCluster {
 public:
  PlantedCluster(std::uint64_t seed, PlantedNoise noise) : bits_(seed), noise_(noise) {
    constexpr double kMeanBandwidth = 1e9;
    for (const StepTimePrior& prior : step_time_priors()) {
      truth.posterior.mode.push_back(prior.mean + prior.deviation * normal());
    }
    // No prior knows a bandwidth, and compute goes on at full speed.
    truth.posterior.mode[kIntra] = std::log(kMeanBandwidth) + normal();
    truth.posterior.mode[kInter] = truth.posterior.mode[kIntra] - 1 + 0.3 * normal();
    truth.posterior.mode[kInterference] = 0;
    for (const char* placement : {"1", "2", "4", "1+1", "1+1+1+1"}) {
      for (const std::int64_t batch : {4, 8, 16}) {
        StepTimeRow row;
        row.placement = parse_placement(placement);
        row.batch = batch;
        row.step_s = 0.05 + 0.03 * static_cast<double>(batch);  // The compute of a rank alone.
        table.rows.push_back(row);
      }
    }
    truth.job = planted_job(table, model_preset("bert-base"));
    for (ComputePoint& point : truth.job.compute) {
      point.timed = true;
    }
    std::string run;
    double of_run = 0;
    for (StepTimeRow& row : table.rows) {
      if (text_of(row.placement) != run) {
        run = text_of(row.placement);
        of_run = normal();
      }
      if (row.placement.ranks() > 1) {
        row.step_s = measured(row.placement, compute_point(truth.job, row), of_run);
      }
    }
  }

  /// A step with its noise, of which half is the run's.
  [[nodiscard]] double measured(const Placement& placement, std::size_t compute, double of_run) {
    constexpr double kHalf = 0.70710678118654752;
    StepTimeCoefficients coefficients = coefficients_of(truth, truth.posterior.mode);
    const double slower = std::exp(noise_.run * kHalf * (of_run + normal()));
    coefficients.links.intra_bytes_per_s /= slower;
    coefficients.links.inter_bytes_per_s /= slower;
    return step_time(truth.job, coefficients, truth.job.compute[compute].seconds, placement).step *
           std::exp(noise_.compute * normal());
  }

  [[nodiscard]] double normal() {
    const auto uniform = [this] { return (static_cast<double>(bits_() >> 11U) + 0.5) * 0x1p-53; };
    constexpr double kTwoPi = 6.283185307179586;
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(kTwoPi * uniform());
  }

  StepTimeFit truth;
  StepTimeTable table;

 private:
  std::mt19937_64 bits_;
  PlantedNoise noise_;
};

StepTimeTable table_of(const std::string& text) {
  return read_step_times(written("steps.csv", text));
}

std::string table_error(const std::string& text) {
  return error_of([&] { (void)table_of(text); });
}

/// The error of fitting this table to gradients of 100 MB, without the file's name.
std::string fit_error(const std::string& text) {
  const StepTimeTable table = table_of(text);
  const TransformerConfig model = tensor_chain("g", {{"a", {25'000'000}, 1, 1}});
  const std::string error =
      error_of([&] { (void)fit_step_times(table, planted_job(table, model)); });
  return error.substr(std::min(error.size(), table.path.size()));
}

}  // namespace

TEST_CASE("tokens beside lengths are compared with them") {
  const std::string table = "placement,batch,length,tokens,step_ms\n1,4,128,512,48\n8,4,128,";
  CHECK(table_of(table + "512,60\n").rows.size() == 2);
  CHECK(table_of(table + ",60\n").rows[1].length == 128);
  for (const char* tokens : {"9999", "513", "128", "4096"}) {
    CAPTURE(tokens);
    CHECK(table_error(table + tokens + ",60\n")
              .find("steps.csv:3:9: error: tokens: 4 samples padded to 128 have other tokens") !=
          std::string::npos);
  }
}

TEST_CASE("throughputs of all ranks stand for the step") {
  const StepTimeTable samples = table_of("placement,batch,samples_per_s\n1,8,16\n2+2,8,40\n");
  REQUIRE(samples.rows.size() == 2);
  CHECK(samples.rows[0].step_s == Approx(0.5));
  CHECK(samples.rows[1].step_s == Approx(0.8));
  const StepTimeTable tokens =
      table_of("placement,batch,length,tokens_per_s,step_ms\n2,4,128,2048,\n2,8,128,,700\n");
  CHECK(tokens.rows[0].step_s == Approx(0.5));
  CHECK(tokens.rows[1].step_s == Approx(0.7));
  CHECK(table_of("placement,batch,step_s,samples_per_s\n4,8,0.5,65\n").rows[0].step_s == 0.5);
  const StepTimeTable micro =
      table_of("placement,batch,micro_batches,samples_per_s\n4,8,4,256\n4,8,1,128\n4,8,,128\n");
  CHECK(micro.rows[0].micro_batches == 4);
  CHECK(micro.rows[0].step_s == Approx(0.5));  // No contradiction of the next one's 0.25 s.
  CHECK(micro.rows[2].micro_batches == 1);
  CHECK(configuration_of(micro.rows[0], false) == "4, batch 8, 4 micro-batches");
  // A throughput of one rank beside the step: the table says what is expected.
  CHECK(
      table_error("placement,batch,step_s,samples_per_s\n4,8,0.5,16\n")
          .find("of 32 a step that is 2 s, and the row says 0.5 s elsewhere; expected that of all "
                "ranks together") != std::string::npos);
  CHECK(table_error("placement,batch,tokens_per_s\n4,8,16\n").find("no column 'length'") !=
        std::string::npos);
  CHECK(table_error("placement,batch,samples_per_s\n4,8,0\n").find("a throughput is more than 0") !=
        std::string::npos);
  CHECK(table_error("placement,batch,samples_per_s\n4,8,\n")
            .find("empty; expected the step's time or a throughput") != std::string::npos);
  CHECK(table_error("placement,batch\n4,8\n").find("or samples_per_s or tokens_per_s") !=
        std::string::npos);
}

TEST_CASE("planted step times without noise: the rows' coefficients are found") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    PlantedCluster cluster(seed, {});
    const StepTimeFit fit = fit_step_times(cluster.table,
                                           planted_job(cluster.table, cluster.truth.job.model),
                                           {},
                                           StepTimeForm::Plain);
    for (const StepTimeRow& row : cluster.table.rows) {
      const double step =
          predict_step_time(fit, compute_point(fit.job, row), row.placement).parts.step;
      CHECK(step == Approx(row.step_s).epsilon(0.025));
    }
  }
}

TEST_CASE("planted step times of 500 random clusters: 90 % intervals hold what they say") {
  const PlantedNoise noises[] = {{0.001, 0.005}, {0.015, 0.05}, {0.03, 0.12}};
  constexpr int kClusters = 500;
  int steps = 0;
  int covered_steps = 0;
  int coefficients = 0;
  int covered_coefficients = 0;
  for (int i = 0; i < kClusters; ++i) {
    PlantedCluster cluster(static_cast<std::uint64_t>(1000 + i), noises[i % 3]);
    const StepTimeFit fit = fit_step_times(cluster.table,
                                           planted_job(cluster.table, cluster.truth.job.model),
                                           {},
                                           StepTimeForm::Plain);
    for (const char* asked : {"3", "2+2", "3x1", "8x1", "8x4"}) {
      const Placement placement = parse_placement(asked);
      const StepTimePrediction predicted = predict_step_time(fit, 1, placement);
      const double real = cluster.measured(placement, 1, cluster.normal());
      ++steps;
      covered_steps +=
          std::abs(std::log(predicted.parts.step / real)) <= kDeviationsOf90 * predicted.deviation
              ? 1
              : 0;
    }
    for (std::size_t place = 0; place < kInterference; ++place) {
      const double off = fit.posterior.mode[place] - cluster.truth.posterior.mode[place];
      ++coefficients;
      covered_coefficients +=
          std::abs(off) <= kDeviationsOf90 * std::sqrt(fit.posterior.covariance[place][place]) ? 1
                                                                                               : 0;
    }
  }
  MESSAGE(fmt::format("in their 90 % intervals: {:.1f} % of {} steps, {:.1f} % of {} coefficients",
                      100.0 * covered_steps / steps,
                      steps,
                      100.0 * covered_coefficients / coefficients,
                      coefficients));
  CHECK(covered_steps >= 0.85 * steps);
  CHECK(covered_steps <= 0.97 * steps);
  CHECK(covered_coefficients >= 0.85 * coefficients);
  CHECK(covered_coefficients <= 0.97 * coefficients);
}

TEST_CASE("how much overlaps is told by three placements of several ranks, and else drawn") {
  const PlantedCluster cluster(7, {0.01, 0.02});
  const auto fitted = [&](const StepTimeTable& table) {
    return fit_step_times(table, planted_job(table, cluster.truth.job.model));
  };
  CHECK_FALSE(leaves_open(fitted(cluster.table), StepTimeDoubt::Overlap));
  StepTimeTable few = cluster.table;
  std::erase_if(few.rows, [](const StepTimeRow& row) { return row.placement.ranks() > 2; });
  const StepTimeFit fit = fitted(few);
  REQUIRE(leaves_open(fit, StepTimeDoubt::Overlap));
  const Profile profile = step_time_profile(fit, nullptr);
  REQUIRE(profile.interference->compute_draws.size() == profile.links->draws.size());
  const auto without = std::ranges::count_if(profile.interference->compute_draws,
                                             [](double slowdown) { return slowdown > 10; });
  CHECK(static_cast<std::size_t>(without) * (1 + fit.alternatives.size()) ==
        profile.links->draws.size());
  // Whoever states it has it.
  const StepTimeFit stated =
      fit_step_times(few, planted_job(few, cluster.truth.job.model), {}, StepTimeForm::NoOverlap);
  CHECK_FALSE(leaves_open(stated, StepTimeDoubt::Overlap));
  CHECK(step_time_profile(stated, nullptr).interference->value.compute == 0);
}

TEST_CASE("links whose gradients compute hides are at least so fast, and not just so fast") {
  struct Job {
    double gradient_mb;
    double link_gb_per_s;
    std::vector<std::pair<int, double>> compute_ms;  ///< By batch.
  };
  // NVLink of several generations; the last one is PCIe, which the small batch does not hide.
  const std::vector<Job> jobs = {{438, 150, {{16, 95}}},
                                 {438, 150, {{8, 60}, {16, 95}, {32, 170}}},
                                 {1400, 200, {{4, 180}, {8, 330}}},
                                 {102, 100, {{32, 85}, {64, 146}}},
                                 {438, 8, {{8, 60}, {16, 95}, {32, 170}}}};
  for (const Job& planted : jobs) {
    CAPTURE(planted.gradient_mb);
    CAPTURE(planted.link_gb_per_s);
    const auto elements = static_cast<std::int64_t>(planted.gradient_mb * 1e6 / 4 / 50);
    std::vector<TensorBlock> tensors;
    for (int i = 0; i < 50; ++i) {
      tensors.push_back({"t" + std::to_string(i), {elements}, 1, 1});
    }
    const TransformerConfig model = tensor_chain("g", tensors);
    StepTimeTable table;
    for (const auto& [batch, ms] : planted.compute_ms) {
      for (const int ranks : {1, 2}) {
        StepTimeRow row;
        row.placement = Placement({ranks});
        row.batch = batch;
        row.step_s = ms / 1e3;
        table.rows.push_back(row);
      }
    }
    StepTimeJob job = planted_job(table, model);
    StepTimeCoefficients truth;
    truth.per_doubling = 0.005;
    truth.forward_share = 1.0 / 3;
    truth.optimizer_share = 0.05;
    truth.links = {planted.link_gb_per_s * 1e9, 20e3, 1e9, 20e3, 1, 0, 0};
    const auto real = [&](std::size_t batch, int ranks) {
      return step_time(job, truth, planted.compute_ms[batch].second / 1e3, Placement({ranks})).step;
    };
    for (StepTimeRow& row : table.rows) {
      row.step_s = real(compute_point(job, row), row.placement.ranks());
    }
    const StepTimeFit fit = fit_step_times(table, planted_job(table, model));
    for (std::size_t batch = 0; batch < planted.compute_ms.size(); ++batch) {
      for (const int ranks : {4, 8}) {
        CAPTURE(batch);
        CAPTURE(ranks);
        CHECK(predict_step_time(fit, batch, Placement({ranks})).parts.step ==
              Approx(real(batch, ranks)).epsilon(0.03));
      }
    }
    const bool hidden = planted.link_gb_per_s > 50;
    CHECK((told_of_prior(fit)[kIntra] > 0.9) == hidden);
    if (hidden) {
      const double half = kDeviationsOf90 * std::sqrt(fit.posterior.covariance[kIntra][kIntra]);
      CHECK(std::abs(fit.posterior.mode[kIntra] - std::log(planted.link_gb_per_s * 1e9)) < half);
    }
  }
}

TEST_CASE("compute grows with the ranks of a node, not with those of the job") {
  // One host's processors and memory: 0.30, 0.42 and 0.63 s for 1, 2 and 4 ranks.
  const std::map<int, double> grown = {{1, 1}, {2, 1.4}, {4, 2.1}};
  for (const double inside : {5e9, 50e9}) {
    CAPTURE(inside);
    StepTimeCoefficients truth;
    truth.forward_share = 1.0 / 3;
    truth.links = {inside, 50e3, 1.2e9, 50e3, 1, 0, 0};
    const TransformerConfig model = tensor_chain(
        "g", {{"a", {8'000'000}, 1, 1}, {"b", {8'000'000}, 1, 1}, {"c", {9'000'000}, 1, 1}});
    StepTimeTable table;
    for (const char* placement : {"1", "2", "4", "1+1"}) {
      for (const std::int64_t batch : {8, 16}) {
        StepTimeRow row;
        row.placement = parse_placement(placement);
        row.batch = batch;
        row.step_s = batch == 8 ? 0.30 : 0.55;
        table.rows.push_back(row);
      }
    }
    const StepTimeJob job = planted_job(table, model);
    const auto real = [&](double compute, const Placement& placement) {
      StepTimeCoefficients here = truth;
      here.several_ranks = std::log(grown.at(placement.fullest()));
      return step_time(job, here, compute, placement).step;
    };
    for (StepTimeRow& row : table.rows) {
      row.step_s = real(row.step_s, row.placement);
    }
    const StepTimeFit fit = fit_step_times(table, planted_job(table, model));
    CHECK(told_of_prior(fit)[kPerDoublingOfNode] < 0.5);
    CHECK(std::exp(fit.posterior.mode[kPerDoublingOfNode]) > 1.3);
    const auto draws = drawn_coefficients(fit);
    for (const char* asked : {"4+4", "2+2", "4x1", "4x4"}) {
      CAPTURE(asked);
      const Placement placement = parse_placement(asked);
      const double step = real(0.55, placement);
      CHECK(predict_step_time(fit, 1, placement).parts.step == Approx(step).epsilon(0.06));
      const auto [low, high] = drawn_step(fit, draws, 1, placement).interval();
      // The first doubling adds 40 and the second 50 %, which one coefficient says to 3 %.
      CHECK(low < 1.03 * step);
      CHECK(step < 1.03 * high);
    }
    const Profile profile = step_time_profile(fit, nullptr);
    const std::string path = fresh_folder() + "/grown.json";
    write_profile(path, profile);
    CHECK(read_profile(path) == profile);
    const auto& several = *profile.recorded->several_ranks;
    CHECK(several.at(16, 4) > 1.5 * several.at(16, 1));
    // One batch does not tell slow links from slow compute: the interval holds both.
    StepTimeTable one = table;
    std::erase_if(one.rows, [](const StepTimeRow& row) { return row.batch == 16; });
    const StepTimeFit open = fit_step_times(one, planted_job(one, model));
    const Placement far = parse_placement("4+4");
    const auto [low, high] = drawn_step(open, drawn_coefficients(open), 0, far).interval();
    CHECK(low < real(0.30, far));
    CHECK(real(0.30, far) < high);
  }
}

TEST_CASE("a prior alone makes no order of two nodes and four") {
  struct Job {
    const char* rows;
    double four;  ///< What four nodes of eight took, in ms.
  };
  // Links of 2 to 4 GB/s and more: one rank, eight, and two nodes of eight, and what four take
  // where a ring over them is as fast as over two, or a fifth slower.
  for (const Job& job : {Job{"1,32,252\n8,32,276\n2x8,32,451\n", 540},
                         Job{"1,32,250\n8,32,270\n2x8,32,380\n", 395},
                         Job{"1,32,130\n8,32,140\n2x8,32,300\n", 320},
                         Job{"1,64,500\n8,64,520\n2x8,64,640\n", 670}}) {
    CAPTURE(job.rows);
    const StepTimeTable table = table_of(std::string("placement,batch,step_ms\n") + job.rows);
    const StepTimeFit fit = fit_step_times(table, planted_job(table, model_preset("bert-base")));
    const Placement two = parse_placement("2x8");
    const Placement four = parse_placement("4x8");
    CHECK(predict_step_time(fit, 0, four).parts.step > predict_step_time(fit, 0, two).parts.step);
    const auto [low, high] = drawn_step(fit, drawn_coefficients(fit), 0, four).interval();
    CHECK(1e3 * low < job.four);
    CHECK(job.four < 1e3 * high);
    const std::string said =
        step_time_report(fit, table, std::vector<StepTimeQuestion>{{0, two}, {0, four}}, {}, {});
    CHECK(said.find("whether 2x8 or 4x8 is faster is not decided") != std::string::npos);
    CHECK(told_of_prior(fit)[kTwoNodes] > 0.9);
  }
  // Sockets: the median stays where one cluster has it, and the interval reaches to as fast as two.
  const StepTimeTable slow =
      table_of("placement,batch,step_ms\n1,8,703\n4,8,741\n1+1,8,1399\n1,4,455\n");
  const StepTimeFit fit = fit_step_times(slow, planted_job(slow, model_preset("bert-base")));
  CHECK(fit.posterior.mode[kTwoNodes] == Approx(-0.4).epsilon(0.05));
  CHECK(leaves_open(fit, StepTimeDoubt::TwoNodes));
  const double two = predict_step_time(fit, 1, parse_placement("1+1")).parts.step;
  const auto [low, high] =
      drawn_step(fit, drawn_coefficients(fit), 1, parse_placement("1+1+1+1")).interval();
  CHECK(low < 0.935 * two);  // Measured.
  CHECK(high > 1.4 * two);
}

TEST_CASE("links of another job that are several times off give way to the job's own rows") {
  for (const std::uint64_t seed : {3, 7, 11}) {
    PlantedCluster cluster(seed, {0.01, 0.03});
    const auto job = [&](const StepTimeTable& table) {
      return planted_job(table, cluster.truth.job.model);
    };
    const StepTimeFit own =
        fit_step_times(cluster.table, job(cluster.table), {}, StepTimeForm::Plain);
    for (const double factor : {0.4, 1.0, 2.5}) {
      CAPTURE(seed);
      CAPTURE(factor);
      FittedLinks links = *step_time_profile(own, nullptr).links;
      const auto scale = [factor](LinkSpeeds& speeds) {
        speeds.intra_bytes_per_s *= factor;
        speeds.inter_bytes_per_s *= factor;
      };
      scale(links.fitted);
      std::ranges::for_each(links.draws, scale);
      const StepTimeFit fit =
          fit_step_times(cluster.table, job(cluster.table), links, StepTimeForm::Plain);
      for (const char* asked : {"2+2", "3x1", "8x1"}) {
        CAPTURE(asked);
        const Placement placement = parse_placement(asked);
        CHECK(predict_step_time(fit, 1, placement).parts.step ==
              Approx(predict_step_time(own, 1, placement).parts.step).epsilon(0.1));
      }
    }
  }
}

TEST_CASE("two nodes tell nothing of three: a prior of their ratio does, and is not the rows") {
  PlantedCluster cluster(7, {0.01, 0.02});
  const StepTimeFit all =
      fit_step_times(cluster.table, planted_job(cluster.table, cluster.truth.job.model));
  const std::vector<double> told = told_of_prior(all);
  CHECK(told[kInter] < 0.5);
  CHECK(told[kTwoNodes] < 1);
  StepTimeTable two = cluster.table;
  std::erase_if(two.rows, [](const StepTimeRow& row) { return row.placement.nodes() > 2; });
  const StepTimeFit few = fit_step_times(two, planted_job(two, cluster.truth.job.model));
  CHECK(told_of_prior(few)[kInter] > 0.5);
  CHECK(told_of_prior(few)[kTwoNodes] > 0.9);
  // The prior makes the posterior narrow all the same, which looked as if the rows did.
  CHECK(std::sqrt(few.posterior.covariance[kInter][kInter]) < 0.5 * few.priors[kInter]);
  CHECK(step_time_report(few, two, {}, {}, {}).find("no, assumed") != std::string::npos);
  const std::string asked = step_time_report(
      few, two, std::vector<StepTimeQuestion>{{0, parse_placement("1+1+1+1")}}, {}, {});
  CHECK(asked.find("no row has three nodes") != std::string::npos);
}

TEST_CASE("ranks whose lengths differ wait for the longest: predicted, not fitted as links") {
  PlantedCluster cluster(21, {0.001, 0.002});
  constexpr std::int64_t kLength = 100;
  for (StepTimeRow& row : cluster.table.rows) {
    row.length = kLength;
    row.length_sd = 25;
  }
  cluster.table.has_lengths = true;
  const TransformerConfig model = cluster.truth.job.model;
  for (StepTimeRow& row : cluster.table.rows) {
    const StepTimeParts parts =
        step_time(cluster.truth.job,
                  coefficients_of(cluster.truth, cluster.truth.posterior.mode),
                  cluster.truth.job
                      .compute[static_cast<std::size_t>(row.batch == 4   ? 0
                                                        : row.batch == 8 ? 1
                                                                         : 2)]
                      .seconds,
                  row.placement,
                  work_spread(row));
    row.step_s = row.placement.ranks() > 1 ? parts.step : row.step_s;
  }
  const auto off = [&](const StepTimeTable& table) {
    const StepTimeFit fit =
        fit_step_times(table, planted_job(table, model), {}, StepTimeForm::Plain);
    double worst = 0;
    for (const StepTimeRow& row : cluster.table.rows) {
      const double step =
          predict_step_time(fit, compute_point(fit.job, row), row.placement, work_spread(row))
              .parts.step;
      worst = std::max(worst, std::abs(step / row.step_s - 1));
    }
    return worst;
  };
  CHECK(off(cluster.table) < 0.02);
  // Rows without the spread are taken for slower links and slower compute of several ranks.
  StepTimeTable unsaid = cluster.table;
  for (StepTimeRow& row : unsaid.rows) {
    row.length_sd = 0;
  }
  CHECK(off(unsaid) > 0.05);
  // Two ranks: 0.564 standard deviations, as the maximum of two normal numbers.
  StepTimeJob alone;
  alone.compute = {{1, 1, 1.0, true}};
  alone.bucket_bytes = {1};
  alone.ready = {1};
  StepTimeCoefficients free;
  free.links = {1e12, 0, 1e12, 0, 1, 0, 0};
  free.forward_share = 0.5;
  CHECK(step_time(alone, free, 1.0, Placement({2}), 0.1).step ==
        Approx(1 + 0.1 / std::sqrt(3.14159265)).epsilon(1e-3));
  CHECK(step_time(alone, free, 1.0, Placement({2}), 0.1).sync == Approx(0.0564).epsilon(1e-2));
  // They meet once a step: the sum of 16 batches differs four times as much as one.
  CHECK(step_time(alone, free, 1.0, Placement({2}), 0.1, 16).step ==
        Approx(16 + 4 * 0.1 / std::sqrt(3.14159265)).epsilon(1e-4));
  CHECK(step_time(alone, free, 1.0, Placement({2}), 0.1, 16).sync ==
        Approx(4 * 0.0564).epsilon(1e-2));
}

TEST_CASE("ranks that wait for the longest sum of micro-batches do not make links slow") {
  // Passes of 950 ms that scatter by 30 %, and nothing that is sent: the expected largest of 2, 4,
  // 8 and 16 normal numbers.
  const std::vector<std::pair<std::string, double>> largest = {
      {"2", 0.5642}, {"4", 1.0294}, {"8", 1.4236}, {"8+8", 1.7660}};
  for (const int micro : {1, 16}) {
    CAPTURE(micro);
    std::string rows = "placement,batch,length,length_sd,micro_batches,step_ms\n1,8,128,0,1,1000\n";
    for (const auto& [placement, deviations] : largest) {
      const double step = 50 + 950 * (micro + 0.3 * deviations * std::sqrt(micro));
      rows += fmt::format("{},8,128,38.4,{},{:.1f}\n", placement, micro, step);
    }
    const StepTimeTable table = table_of(rows);
    const StepTimeFit fit = fit_step_times(table, planted_job(table, model_preset("bert-base")));
    CHECK(1e3 * predict_step_time(fit, 0, parse_placement("8x8")).parts.step ==
          Approx(1000).epsilon(0.05));
  }
}

TEST_CASE("compute that a collective slows down is longer by the interference") {
  // Forward and backward of half a second; after half of the backward a bucket takes 100 ms, within
  // which compute takes 1.5 times as long: two thirds of it are done in that time.
  StepTimeJob job;
  job.compute = {{1, 1, 1.0, true}};
  job.bucket_bytes = {1e9, 1};
  job.ready = {0.5, 1};
  StepTimeCoefficients coefficients;
  coefficients.forward_share = 0.5;
  coefficients.links = {1e10, 0, 1e10, 0, 1, 0, 0};
  const double plain = step_time(job, coefficients, 1.0, Placement({2})).step;
  CHECK(plain == Approx(1).epsilon(1e-6));
  coefficients.interference = 0.5;
  CHECK(step_time(job, coefficients, 1.0, Placement({2})).step ==
        Approx(1 + 0.1 / 3).epsilon(1e-6));
}

TEST_CASE("one slow row among fifteen moves predictions by little") {
  PlantedCluster cluster(11, {0.01, 0.03});
  const auto fitted = [&] {
    return fit_step_times(cluster.table,
                          planted_job(cluster.table, cluster.truth.job.model),
                          {},
                          StepTimeForm::Plain);
  };
  const StepTimeFit before = fitted();
  StepTimeRow& slow = cluster.table.rows[7];
  REQUIRE(slow.placement.ranks() > 1);
  slow.step_s *= 2;
  const StepTimeFit after = fitted();
  for (const char* asked : {"2+2", "8x1", "8x4"}) {
    CAPTURE(asked);
    const Placement placement = parse_placement(asked);
    CHECK(predict_step_time(after, 1, placement).parts.step ==
          Approx(predict_step_time(before, 1, placement).parts.step).epsilon(0.1));
  }
}

TEST_CASE("a profile of step times reads back, and several ranks are in it") {
  PlantedCluster cluster(7, {0.01, 0.03});
  const StepTimeFit fit = fit_step_times(
      cluster.table, planted_job(cluster.table, cluster.truth.job.model), {}, StepTimeForm::Plain);
  const Profile profile = step_time_profile(fit, nullptr);
  const std::string path = fresh_folder() + "/p.json";
  write_profile(path, profile);
  CHECK(read_profile(path) == profile);
  const RecordedModel two = at_ranks(*profile.recorded, 2, 2);
  CHECK(two.forward.coefficients[1] ==
        profile.recorded->forward.coefficients[1] * profile.recorded->several_ranks->at(2, 2));
  CHECK_FALSE(two.several_ranks);
  CHECK(at_ranks(*profile.recorded, 1, 1).forward.coefficients ==
        profile.recorded->forward.coefficients);
}

TEST_CASE("compute by batch is the measured table: straight between, proportional beyond") {
  const StepTimeTable table = table_of(
      "placement,batch,step_s\n1,20,0.147\n1,28,0.208\n1,40,0.200\n1,57,0.324\n2,20,0.15\n");
  const TransformerConfig model = tensor_chain("g", {{"a", {1'000'000}, 1, 1}});
  const Profile profile =
      step_time_profile(fit_step_times(table, planted_job(table, model)), nullptr);
  const auto alone = [&](std::int64_t samples) {
    BatchShape shape;
    shape.samples = samples;
    shape.max_length = 1;
    double seconds = profile.recorded->optimizer_seconds;
    for (const PassCost* pass : {&profile.recorded->forward, &profile.recorded->backward}) {
      seconds += pass_seconds(*pass, pass->coefficients, shape, false);
    }
    return seconds;
  };
  CHECK(alone(20) == Approx(0.147));
  CHECK(alone(24) == Approx((0.147 + 0.204) / 2));
  CHECK(alone(28) == Approx(0.204));  // With 40 it would fall: the mean of both.
  CHECK(alone(40) == Approx(0.204));
  CHECK(alone(57) == Approx(0.324));
  CHECK(alone(74) == Approx(0.324 + 17 * 0.120 / 17));
  CHECK(alone(10) > 0);
}

TEST_CASE("tables of step times: bad rows are named") {
  const auto after_path = [](const std::string& text) {
    return text.substr(text.find("steps.csv") + 9);
  };
  CHECK(after_path(table_error("placement,step_s\n1,2\n"))
            .starts_with(":1: error: no column 'batch': the samples of one rank's batch; known"));
  CHECK(after_path(table_error("batch,step_s\n1,2\n"))
            .starts_with(":1: error: no column 'placement'"));
  CHECK(after_path(table_error("placement,batch\n1,2\n"))
            .starts_with(":1: error: no column 'step_s'"));
  CHECK(after_path(table_error("placement,batch,step_s\n1+x,8,1\n"))
            .starts_with(":2:1: error: placement: '1+x' is no placement"));
  CHECK(after_path(table_error("placement,batch,step_s\n1,8,0\n"))
            .starts_with(":2:5: error: step_s: a step takes more than 0"));
  CHECK(after_path(table_error("placement,batch,step_s\n1,8,-1\n"))
            .starts_with(":2:5: error: step_s: less than 0"));
  CHECK(after_path(table_error("placement,batch,step_s,sync_s\n1,8,1,2\n"))
            .starts_with(":2:7: error: sync_s: longer than the step, 1 s"));
  CHECK(after_path(table_error("nodes,ranks,batch,step_s\n4,3,8,1\n"))
            .starts_with(":2:3: error: ranks: 3 ranks do not fill 4 nodes"));
  CHECK(after_path(table_error("placement,batch,tokens,step_s\n1,8,100,1\n"))
            .starts_with(":2:5: error: tokens: no multiple of the batch, 8"));
  CHECK(after_path(table_error("placement,batch,step_s\n1,8,1\n2,8,2\n1,8,1.4\n")) ==
        ":4: error: 1, batch 8 takes 1.4 s here and 1 s in line 2: they contradict each other; "
        "time it again, or leave one out");
  CHECK(after_path(table_error("placement,batch,step_s\n1,8,212\n2,8,231\n1+1,8,395\n"))
            .starts_with(":1: error: the median step takes 231 s; if these are "
                         "milliseconds, call the column step_ms"));
  CHECK(after_path(table_error("placement,batch,length,length_sd,step_s\n1,8,100,60,1\n"))
            .starts_with(":2:9: error: length_sd: expected 0 to 50"));
  CHECK(table_of("placement,batch,step_ms,note\n1,8,212,x\n").ignored ==
        std::vector<std::string>{"note"});
  CHECK(table_of("placement,batch,step_ms\n1,8,212\n").rows[0].step_s == Approx(0.212));
  CHECK(table_of("nodes,gpus,local_batch,step_s\n3,7,8,1\n").rows[0].placement ==
        Placement({3, 2, 2}));
}

TEST_CASE("tables that tell too little are refused") {
  CHECK(fit_error("placement,batch,step_s\n1,8,1\n").starts_with(": error: one row tells one"));
  CHECK(fit_error("placement,batch,step_s\n1,8,1\n1,16,2\n")
            .starts_with(": error: all rows are of a rank alone, which says nothing of links"));
  CHECK(fit_error("placement,batch,step_s\n1+1,8,1\n1+1,16,2\n")
            .starts_with(": error: all rows are of one placement, 2x1: nothing tells compute"));
  CHECK(fit_error("placement,batch,step_s\n1,8,42\n2,8,49\n1+1,8,500\n")
            .find("are the times in seconds (step_s) or milliseconds (step_ms)?") !=
        std::string::npos);
}

TEST_CASE("steps of which waiting and exposed communication leave nothing are refused by line") {
  const std::string columns = "placement,batch,micro_batches,step_s,sync_s,data_s\n";
  CHECK(fit_error(columns + "2,8,4,4.2,0.1,0.4\n1,8,4,4,3.6,0.4\n") ==
        ":3: error: 1, batch 8, 4 micro-batches: of a step of 4 s, 0.4 s of waiting for data and "
        "3.6 s of exposed communication leave nothing for compute; correct them, which are parts "
        "of the step");
  CHECK(fit_error(columns + "1,8,4,4,0,0.4\n2,8,4,4.2,0.1,4.2\n")
            .starts_with(":3: error: 2, batch 8, 4 micro-batches: of a step of 4.2 s, 4.2 s of"));
  CHECK(fit_error(columns + "1,8,4,4,3.5,0.4\n2,8,4,4.2,4,0.4\n") == "");  // Rounded parts.
}

}  // namespace stepsim::test
