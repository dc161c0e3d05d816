#include "calibrate/measure/machine_load.h"

#include <chrono>
#include <thread>

#include <doctest/doctest.h>

using namespace stepsim;

TEST_CASE(
    "the busy share of the machine is a share, and more than nothing while a thread computes") {
  std::jthread busy([](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
    }
  });
  const auto share = busy_share(0.3);
  if (share) {  // Some containers do not keep the file.
    CHECK(*share > 0);
    CHECK(*share <= 1);
  }
}
