#include "calibrate/fit/host_fit.h"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "tests/approx.h"

using stepsim::test::Approx;

namespace stepsim {
namespace {

HostSample host(double forward_ms, double backward_ms, double optimizer_ms) {
  HostSample sample;
  sample.point = {12, 25};
  sample.ops = 1000;
  sample.forward_seconds = forward_ms * 1e-3;
  sample.backward_seconds = backward_ms * 1e-3;
  sample.optimizer_seconds = optimizer_ms * 1e-3;
  return sample;
}

/// First meetings of GPT-2 medium on an H200: cuDNN compiles its attention for each shape.
std::vector<HostSample> compiled() {
  return {host(69.5, 73.8, 0),
          host(68.2, 88.7, 0),
          host(70.6, 73.1, 2),
          host(63.5, 84.8, 1),
          host(40.1, 85.1, 0),
          host(40.5, 62.6, 1),
          host(43.0, 51.1, 0),
          host(66.0, 81.2, 3)};
}

TEST_CASE("host: an op takes the mean step's share, without a step that was held up for long") {
  CHECK(fit_launch(std::vector<HostSample>{}).seconds == 0);
  std::vector<HostSample> hosts = {
      host(20, 45, 5), host(21, 44, 6), host(22, 44, 6), host(300, 90, 9), host(20, 44, 7)};
  LaunchCost launch = fit_launch(hosts);
  CHECK(launch.seconds == Approx(71e-6));
  CHECK(launch.relative_error == 0);  // One round does not tell.
}

TEST_CASE("host: the share of DDP's copies in the launches is kept") {
  std::vector<HostSample> hosts(4, host(20, 35, 5));
  CHECK(fit_launch(hosts).copies == 0);  // Of older programs, which did not say.
  for (HostSample& one : hosts) {
    one.copies = 250;
    one.round = static_cast<int>(&one - hosts.data());
  }
  CHECK(fit_launch(hosts).copies == 0.25);
  CHECK(fit_launch(hosts).seconds == Approx(60e-6));
  CHECK(fit_launch(std::span(hosts).first(1)).copies == 0.25);
}

TEST_CASE("host: what rounds differ by makes the launch unsure") {
  std::vector<HostSample> hosts(8, host(20, 35, 5));
  hosts.resize(12, host(25, 50, 5));
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    hosts[i].round = static_cast<int>(i / 4);
  }
  const LaunchCost launch = fit_launch(hosts);
  const double mean = (60e-6 + 60e-6 + 80e-6) / 3;
  CHECK(launch.seconds == Approx(mean));
  // The deviations of the rounds' means, their error, and the same error once more for the run.
  const double squares = 2 * (mean - 60e-6) * (mean - 60e-6) + (80e-6 - mean) * (80e-6 - mean);
  // Three rounds tell it: Student's 95 % quantile of 2 degrees of freedom over the normal one.
  const double widening = 2.919986 / 1.644854;
  CHECK(launch.relative_error == Approx(widening * std::sqrt(2 * squares / (3 * 2)) / mean));
}

TEST_CASE("host: what units take is the median of the ranks") {
  const std::vector<UnitHostTimes> hosts = {
      {1, 2, 3, 4, 5}, {1.5, 2.5, 3.5, 4.5, 5.5}, {9, 0, 3.25, 4, 90}};
  CHECK(fit_unit_host(hosts) == UnitHostTimes{1.5, 2, 3.25, 4, 5.5});
  CHECK(fit_unit_host(std::vector{hosts.front()}) == hosts.front());
}

TEST_CASE("host: what a first meeting takes is the mean over shapes") {
  const std::vector<ShapeCost> costs = fit_meetings(compiled());
  REQUIRE(costs.size() == 1);
  CHECK(costs[0].key == ShapeKey::SamplesAndLength);
  CHECK(costs[0].forward_seconds == Approx(57.675e-3));
  CHECK(costs[0].backward_seconds == Approx(75.05e-3));
  CHECK(costs[0].relative_error == Approx(0.1));
}

TEST_CASE("host: a meeting that also loads a library is left out") {
  std::vector<HostSample> meetings = compiled();
  meetings.push_back(host(1301, 633, 79));
  const std::vector<ShapeCost> costs = fit_meetings(meetings);
  REQUIRE(costs.size() == 1);
  CHECK(costs[0].forward_seconds == Approx(57.675e-3));
}

TEST_CASE("host: shapes of which fewer than half are compiled cost their mean") {
  std::vector<HostSample> meetings(5, host(68, 70, 0));
  meetings.resize(12, host(1, 1, 0));
  const std::vector<ShapeCost> costs = fit_meetings(meetings);
  REQUIRE(costs.size() == 1);
  CHECK(costs[0].forward_seconds == Approx((5 * 68 + 7 * 1) / 12e3));
}

TEST_CASE("host: differences around nothing, and few of them, cost nothing") {
  const std::vector<HostSample> noise = {host(2, -1, 0),
                                         host(-3, 2, 0),
                                         host(1, -2, 0),
                                         host(-1, 3, 0),
                                         host(3, -2, 0),
                                         host(-2, 0, 0)};
  CHECK(fit_meetings(noise).empty());
  std::vector<HostSample> few = compiled();
  few.resize(4);
  CHECK(fit_meetings(few).empty());
}

}  // namespace
}  // namespace stepsim
