#include "calibrate/fit/interference_fit.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/core.h>

#include "calibrate/fit/fit.h"
#include "calibrate/samples/sample_log.h"
#include "calibrate/samples/sample_writer.h"
#include "costmodel/base/input_error.h"
#include "tests/approx.h"
#include "tests/calibrate/measure/fake_backend.h"
#include "tests/test_data.h"

using stepsim::test::Approx;

namespace stepsim {
namespace {

/// Every work beside collectives of 2 .. 24 channels, slowed as `truth` says and scattered by
/// `noise`, a relative standard deviation.
std::vector<OverlapSample> planted(const Interference& truth,
                                   double noise = 0,
                                   std::uint64_t seed = 1) {
  test::Noise random(seed);
  const auto scattered = [&](double value) { return value * (1 + noise * random.next()); };
  std::vector<OverlapSample> samples;
  for (const int channels : {2, 4, 8, 16, 24}) {
    for (const auto& [compute, blocks] : {std::pair("gemm", 120),
                                          {"gemm", 132},
                                          {"gemm", 1000},
                                          {"gemm", 4000},
                                          {"attention", 260},
                                          {"memory", 0},
                                          {"memory", 5000}}) {
      OverlapSample sample;
      sample.channels = channels;
      sample.collective_bytes = 1 << 25;
      sample.collective_alone = 300e-6;
      sample.collective_beside = scattered(300e-6 * (1 + truth.transfer));
      sample.compute = compute;
      sample.compute_blocks = blocks;
      sample.compute_alone = 80e-6;
      const Bound bound = sample.compute == "memory" ? Bound::Memory : Bound::Compute;
      sample.compute_beside = scattered(80e-6 * compute_slowdown(truth, bound, blocks, channels));
      samples.push_back(sample);
    }
  }
  return samples;
}

Interference truth_with_waves() {
  Interference truth;
  truth.compute = 0.06;
  truth.transfer = 0.25;
  truth.multiprocessors = 132;
  truth.memory_share = 0.2;
  truth.limit = 1.5;
  return truth;
}

InterferenceProfile fit_of(const std::vector<OverlapSample>& samples, int multiprocessors = 132) {
  std::vector<std::string> warnings;
  return fit_interference(samples, multiprocessors, &warnings).value();
}

std::vector<std::string> warnings_of(const std::vector<OverlapSample>& samples) {
  std::vector<std::string> warnings;
  (void)fit_interference(samples, 132, &warnings);
  return warnings;
}

bool has(const std::vector<std::string>& warnings, const std::string& part) {
  return std::any_of(warnings.begin(), warnings.end(), [&part](const std::string& warning) {
    return warning.find(part) != std::string::npos;
  });
}

/// Standard error from a 90 % interval of this many samples, at least.
double deviation(const InterferenceProfile::Interval& interval) {
  return (interval.second - interval.first) / 2 / 1.645;
}

}  // namespace

TEST_CASE("planted interference is found exactly when nothing scatters") {
  const Interference truth = truth_with_waves();
  const InterferenceProfile found = fit_of(planted(truth));
  CHECK(found.value.compute == Approx(truth.compute));
  CHECK(found.value.transfer == Approx(truth.transfer));
  CHECK(found.value.memory_share == Approx(truth.memory_share));
  CHECK(found.value.multiprocessors == 132);
  CHECK(found.value.max_channels == 24);
  CHECK(found.samples == 35);
  CHECK(*found.errors.random < 1e-9);
  CHECK(found.value.limit >= 1);  // 132 blocks on 132 processors took twice as long.
}

TEST_CASE("one factor for everything needs no waves and no bandwidth") {
  Interference truth;
  truth.compute = 0.19;
  truth.transfer = 0.4;
  const InterferenceProfile found = fit_of(planted(truth));
  CHECK(found.value.compute == Approx(0.19));
  CHECK(found.value.transfer == Approx(0.4));
  CHECK(found.value.memory_share == Approx(0).epsilon(1e-9));
  CHECK(found.value.multiprocessors == 0);
  CHECK(found.value.limit == Interference().limit);
  CHECK(fit_of(planted(truth), 0).value == found.value);
  CHECK_FALSE(fit_interference({}, 132, nullptr).has_value());
}

TEST_CASE("what waves cost is cut by a limit that the samples show") {
  Interference truth = truth_with_waves();
  truth.limit = 0.3;
  const InterferenceProfile found = fit_of(planted(truth));
  CHECK(found.value.multiprocessors == 132);
  CHECK(found.value.limit == Approx(0.3));
  CHECK(found.value.compute == Approx(truth.compute));
  CHECK(found.value.memory_share == Approx(0.2));
  CHECK(*found.errors.random < 1e-9);
}

TEST_CASE("planted interference is found within five deviations when the times scatter") {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    const Interference truth = truth_with_waves();
    const InterferenceProfile found = fit_of(planted(truth, 0.03, seed));
    CHECK(found.value.multiprocessors == 132);
    for (const auto& [value, interval, planted_value] :
         {std::tuple(found.value.compute, found.compute, truth.compute),
          std::tuple(found.value.transfer, found.transfer, truth.transfer),
          std::tuple(found.value.memory_share, found.memory_share, truth.memory_share)}) {
      const auto& at_value = value;  // Clang 14 captures no structured bindings.
      CAPTURE(at_value);
      REQUIRE(interval);
      CHECK(interval->first <= value);
      CHECK(interval->second >= value);
      CHECK(std::abs(value - planted_value) < 5 * deviation(*interval));
      CHECK(deviation(*interval) < 0.02);
    }
    CHECK(*found.errors.random < 0.05);
  }
}

TEST_CASE("nine of ten intervals hold what was planted") {
  int inside = 0;
  int all = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const Interference truth = truth_with_waves();
    const InterferenceProfile found = fit_of(planted(truth, 0.03, seed));
    for (const auto& [interval, value] : {std::pair(found.compute, truth.compute),
                                          std::pair(found.transfer, truth.transfer),
                                          std::pair(found.memory_share, truth.memory_share)}) {
      ++all;
      inside += interval->first <= value && value <= interval->second ? 1 : 0;
    }
  }
  // 540 of 600; five deviations are 37.
  CHECK(inside > 0.9 * all - 37);
  CHECK(inside < 0.9 * all + 37);
}

TEST_CASE("interference that samples cannot tell is said") {
  const std::vector<OverlapSample> all = planted(truth_with_waves());
  CHECK(warnings_of(all).empty());
  std::vector<OverlapSample> some = all;
  std::erase_if(some, [](const auto& sample) { return sample.compute == "memory"; });
  CHECK(has(warnings_of(some), "no memory-bound work"));
  CHECK(fit_of(some).value.memory_share == 0);
  some = {all[0], all[5], all[6]};
  CHECK(has(warnings_of(some), "only 1 measurements of compute-bound work"));
  CHECK(has(warnings_of(some), "only 2 measurements of memory-bound work"));
  CHECK_FALSE(fit_of(some).compute);
  CHECK(fit_of(some).value.multiprocessors == 0);
  some = std::vector<OverlapSample>(6, all[1]);
  CHECK(has(warnings_of(some), "the same blocks and channels"));
  some = planted({});
  CHECK(has(warnings_of(some), "did they run at the same time?"));
  some[3].compute_beside *= 0.8;
  CHECK(has(warnings_of(some), "1 of 35 measurements are more than 5 % faster"));
  some = all;
  for (OverlapSample& sample : some) {
    sample.compute_blocks = 0;
  }
  CHECK(has(warnings_of(some), "no compute_blocks"));
  CHECK(fit_of(some).value.multiprocessors == 0);
}

TEST_CASE("lines of overlaps are read as written, and become a profile's interference") {
  const std::string path = test::fresh_folder() + "/samples.jsonl";
  const std::vector<OverlapSample> samples = planted(truth_with_waves());
  {
    SampleWriter writer(path, 0);
    writer.write(R"({"format":"stepsim-samples/1","device":"GPU","multiprocessors":132})");
    for (const OverlapSample& sample : samples) {
      writer.write(overlap_line(0, sample));
    }
  }
  CHECK(overlap_line(3, samples[5]) ==
        R"({"kind":"overlap","pass":3,"channels":2,"collective_bytes":33554432,)"
        R"("collective_alone_us":300.000,"collective_beside_us":375.000,"compute":"memory",)"
        R"("compute_alone_us":80.000,"compute_beside_us":106.000})");
  const SampleSet set = read_samples(path, nullptr);
  REQUIRE(set.overlaps.size() == samples.size());
  CHECK(set.overlaps[0].compute_blocks == 120);
  CHECK(set.overlaps[0].compute_beside == Approx(samples[0].compute_beside));
  const FitResult result = fit_profile(set, {"lab", path, "stepcal fit", "2026-01-01"});
  REQUIRE(result.profile.interference);
  CHECK(result.profile.interference->value.transfer == Approx(0.25));
  CHECK(result.profile.interference->value.multiprocessors == 132);
  CHECK(fit_report(result).find("transfer beside compute +        25.0 %") != std::string::npos);
}

TEST_CASE("a line of an overlap that cannot be is refused by its key") {
  const OverlapSample sample = planted(truth_with_waves()).front();
  const std::string good = overlap_line(0, sample);
  const auto error_of = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t place = text.find(from);
    REQUIRE(place != std::string::npos);
    text.replace(place, from.size(), to);
    SampleLog log;
    try {
      log.add(parse_json(text, "s.jsonl"), "s.jsonl", 2);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(error_of("gemm", "gemm").empty());
  CHECK(error_of("\"gemm\"", "\"gem\"") ==
        "s.jsonl:2: error: compute: unknown compute 'gem'; did you mean 'gemm'? known: gemm, "
        "attention, memory");
  CHECK(error_of("\"channels\":2", "\"channels\":0").find("channels") != std::string::npos);
  CHECK(error_of("\"compute_alone_us\":80", "\"compute_alone_us\":-80") ==
        "s.jsonl:2: error: compute_alone_us: must be above 0");
  CHECK(error_of("\"compute_blocks\":120", "\"compute_blocks\":0").find("compute_blocks") !=
        std::string::npos);
  CHECK(error_of("33554432", "0") == "s.jsonl:2: error: collective_bytes: must be 1 or more");
}

}  // namespace stepsim
