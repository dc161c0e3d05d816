// Fits of collectives, of their scatter and of the machine's noise.
#include <cmath>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "calibrate/fit/collectives.h"
#include "calibrate/fit/fit.h"
#include "calibrate/fit/piecewise_linear.h"
#include "calibrate/samples/statistics.h"
#include "costmodel/compute/knots.h"
#include "costmodel/network/collective_table.h"
#include "tests/approx.h"
#include "tests/calibrate/measure/fake_backend.h"

using stepsim::test::Approx;

namespace stepsim {

TEST_CASE("a collective's errors are those of each size predicted from its neighbours") {
  std::vector<CollectiveSample> samples;
  for (const std::int64_t bytes : {1024, 2048, 4096, 8192, 16384}) {
    const double seconds = 1e-4 + static_cast<double>(bytes) * 1e-9;
    samples.push_back({"all_reduce", 2, 1, bytes, seconds, 0, 5, {}});
  }
  std::vector<CollectiveFit> fits = fit_collectives(samples);
  REQUIRE(fits.size() == 1);
  CHECK(*fits[0].cost.errors.random < 1e-9);
  CHECK(*fits[0].cost.errors.beyond < 1e-9);
  samples[2].seconds *= 2;  // Now its neighbours predict half of it, and it misleads them.
  fits = fit_collectives(samples);
  // The next larger size lies a third of the way from it to the one behind.
  const double predicted = (2 * samples[2].seconds + samples[4].seconds) / 3;
  CHECK(*fits[0].bands[0].worst == Approx(predicted / samples[3].seconds - 1));
  CHECK_FALSE(fits[0].bands[2].mean);
}

TEST_CASE("beyond the largest size the lower of two slopes counts twice") {
  // Two sizes an octave, a kink at half the largest: 1 ns a byte below it, 1.15 or 0.5 above.
  for (const double last : {1.15e-9, 0.5e-9}) {
    CAPTURE(last);
    std::vector<CollectiveSample> samples;
    constexpr double kKink = 1 << 20;
    for (double bytes = 1 << 12; bytes <= 2 * kKink; bytes *= std::sqrt(2)) {
      const double seconds = 1e-9 * std::min(bytes, kKink) + last * std::max(bytes - kKink, 0.0);
      samples.push_back({"all_reduce", 2, 1, std::llround(bytes), seconds, 0, 5, {}});
    }
    const CollectiveCost cost = fit_collectives(samples).at(0).cost;
    const std::vector<std::pair<double, double>> piece(
        cost.knots.begin() + static_cast<std::ptrdiff_t>(last_segment_start(cost.knots)),
        cost.knots.end());
    const double slope = tail_slope(piece, 1e300);
    const double octave = default_tail(cost);
    REQUIRE(std::abs(slope / octave - 1) > 0.005);
    CHECK(*cost.tail_seconds_per_byte == Approx((slope + octave + std::min(slope, octave)) / 3));
  }
}

namespace {

/// 10 us and 1 ns a byte, at sizes a factor 2 apart up to 64 MiB; some are slowed.
std::vector<CollectiveSample> slowed_sweep(double from_mib, double to_mib, double factor) {
  std::vector<CollectiveSample> samples;
  for (double mib = 1.0 / 1024; mib <= 64; mib *= 2) {
    const double seconds = 1e-5 + 1e-9 * mib * 0x1p20;
    const bool slow = mib >= from_mib && mib <= to_mib;
    samples.push_back(
        {"all_reduce", 2, 1, std::llround(mib * 0x1p20), seconds * (slow ? factor : 1), 0, 5, {}});
  }
  return samples;
}

double fitted_tail_of(const std::vector<CollectiveSample>& samples) {
  return fit_collectives(samples).at(0).cost.tail_seconds_per_byte.value();
}

}  // namespace

TEST_CASE("a slow region does not bend the extrapolation beyond the largest size") {
  CHECK(fitted_tail_of(slowed_sweep(0, 0, 1)) == Approx(1e-9).epsilon(1e-6));
  // Below the end, and just before it: larger sizes undercut it.
  CHECK(fitted_tail_of(slowed_sweep(4, 8, 7)) == Approx(1e-9).epsilon(1e-6));
  CHECK(fitted_tail_of(slowed_sweep(16, 32, 5)) == Approx(1e-9).epsilon(1e-6));
  // Bandwidth falls and comes back, though no larger size takes less time.
  CHECK(fitted_tail_of(slowed_sweep(32, 32, 1.8)) == Approx(1e-9).epsilon(1e-6));
  // At the very end: the tail leads back to the line of the others at twice the size,
  const double line = 1e-5 + 1e-9 * 128 * 0x1p20;
  const double last = 1e-5 + 1e-9 * 64 * 0x1p20;
  CHECK(fitted_tail_of(slowed_sweep(64, 64, 1.5)) ==
        Approx((line - 1.5 * last) / (64 * 0x1p20)).epsilon(1e-6));
  // and never falls.
  CHECK(fitted_tail_of(slowed_sweep(32, 64, 3)) == 0);
  // Three sizes at the end are no region: the network is that slow from there on.
  CHECK(fitted_tail_of(slowed_sweep(16, 64, 3)) == Approx(3e-9).epsilon(1e-6));
}

TEST_CASE("tables hold single calls; the floor of calls back to back is told beside theirs") {
  std::vector<CollectiveSample> samples;
  for (const std::int64_t bytes : {1024, 2048, 4096}) {
    const double seconds = 1e-4 + static_cast<double>(bytes) * 1e-9;
    samples.push_back({"all_gather", 2, 1, bytes, seconds, 0, 5, {}, false});
    samples.push_back({"all_gather", 2, 1, bytes, seconds / 2, 0, 5, {}, true});
  }
  samples.push_back({"all_reduce", 2, 1, 1024, 3e-4, 0, 5, {}, false});
  const std::vector<CollectiveFit> fits = fit_collectives(samples);
  REQUIRE(fits.size() == 2);
  CHECK(fits[0].cost.knots.size() == 3);
  CHECK(fits[0].floor == Approx(1.01024e-4));
  REQUIRE(fits[0].pipelined_floor);
  CHECK(*fits[0].pipelined_floor == Approx(0.50512e-4));
  CHECK_FALSE(fits[1].pipelined_floor);
}

TEST_CASE("the scatter of collectives is told by the size with most repetitions") {
  // Two levels, 1 ms and 5 ms, equally often: the mean is 3 ms, one third and five thirds of it.
  CollectiveSample sample{"all_reduce", 2, 1, 4096, 3e-3, 2.0 / 3, 100, {}};
  for (int i = 0; i < 100; ++i) {
    sample.all_seconds.push_back(i % 2 == 0 ? 1e-3 : 5e-3);
  }
  CollectiveSample few{"all_reduce", 2, 1, 1024, 1e-3, 0, 1, {1e-3}};
  const std::vector<double> spread = fit_collectives({few, sample})[0].cost.spread;
  REQUIRE(spread.size() == 21);
  CHECK(spread.front() == Approx(1.0 / 3));
  CHECK(spread[15] == Approx(5.0 / 3));
  CHECK(spread.back() == Approx(5.0 / 3));
  CHECK(fit_collectives({few})[0].cost.spread.empty());
}

TEST_CASE("slow changes of the machine are drift and no jitter") {
  SampleSet set;
  JitterSample point;
  for (int i = 0; i < 1000; ++i) {
    point.step_seconds.push_back(1 + 0.0005 * i);
  }
  set.jitter.push_back(point);
  CHECK(fit_noise(set).step_jitter < 0.001);
}

TEST_CASE("a trimmed mean leaves out the largest values only") {
  CHECK(trimmed_mean({1, 2, 3, 100}, 0.25) == Approx(2));
  CHECK(trimmed_mean({1, 2, 3, 100}, 0.2) == Approx(26.5));
}

TEST_CASE("noise is the robust spread of single steps, drift that of the sentinels") {
  SampleSet set;
  test::Noise random(5);
  for (const double scale : {1.0, 10.0}) {
    JitterSample point;
    for (int i = 0; i < 2000; ++i) {
      point.step_seconds.push_back(scale * (1 + 0.04 * random.next()));
    }
    set.jitter.push_back(point);
  }
  set.sentinels = {{0.9, 0}, {1.0, 1}, {1.1, 2}};
  const NoiseProfile noise = fit_noise(set);
  CHECK(noise.step_jitter == Approx(0.04).epsilon(0.1));
  CHECK(noise.drift == Approx(0.14826));  // Median deviation 0.1.
  CHECK(noise.sentinel_seconds == 1.0);
}

}  // namespace stepsim
