#include "costmodel/network/fitted_links.h"

#include <cmath>

#include <doctest/doctest.h>

#include "costmodel/network/collective_pricer.h"
#include "tests/approx.h"

using stepsim::test::Approx;

namespace stepsim {
namespace {

FittedLinks some_links() {
  FittedLinks links;
  links.fitted = {2e9, 1e5, 1e9, 2e5, 0.5, 0.1, 0.2};
  links.draws = {links.fitted, links.fitted};
  links.draws[0].inter_bytes_per_s = 2e9;
  links.draws[1].inter_bytes_per_s = 0.5e9;
  links.run_error = 0.1;
  links.ranks = 4;
  links.nodes = 4;
  return links;
}

double ring(double bytes, int ranks, int nodes) {
  return fitted_collective_time(
      some_links().fitted, CollectiveKind::AllReduce, bytes, ranks, nodes);
}

TEST_CASE("a ring over fitted links: inside a node, between two, three and more") {
  CHECK(ring(1e8, 1, 1) == 0);
  CHECK(ring(1e8, 4, 1) == Approx((6 * 1e5 + 1.5e8) / 2e9));
  CHECK(ring(1e8, 2, 2) == Approx((2 * 2e5 + 1e8) / 0.5e9));
  CHECK(ring(1e8, 3, 3) == Approx((4 * 2e5 + 4.0 / 3 * 1e8) / 1e9));
  CHECK(ring(1e8, 6, 6) == Approx((10 * 2e5 + 5.0 / 3 * 1e8) / (1e9 * std::exp(-0.1))));
  CHECK(ring(1e8, 4, 2) == Approx((6 * 2e5 + 1.5e8) / (0.5e9 * std::exp(-0.2))));
}

TEST_CASE("an all-reduce of many ranks goes through a tree over the nodes") {
  // 1 MiB is 2^14 times 64 bytes: half of 0.92 of the rate. 256 nodes of eight ranks.
  const double bytes = 1 << 20;
  const double rate = 1e9 * std::exp(-0.1 * std::log2(256.0 / 3) - 0.2 * 3);
  CHECK(ring(bytes, 2048, 256) == Approx((2 * (7 + 8) * 2e5 + 2 * bytes / (0.92 * 0.5)) / rate));
  // A ring of few ranks is faster, as are all other collectives.
  CHECK(ring(1e8, 16, 4) < 2e8 / 0.92 / (1e9 * std::exp(-0.1 * std::log2(4.0 / 3) - 0.2 * 2)));
  const double gather =
      fitted_collective_time(some_links().fitted, CollectiveKind::AllGather, bytes, 2048, 256);
  CHECK(gather == Approx((2047 * 2e5 + 2047.0 / 2048 * bytes) / rate));
}

TEST_CASE("fitted links price what no table has, with the other fits as draws") {
  const CollectiveCost table = {
      "all_reduce", 2, 1, Dtype::F32, {{1e6, 0.1}, {1e8, 0.2}}, {}, {}, {}};
  const CollectivePricer pricer("lab", {table}, std::nullopt, {}, some_links());
  const auto price = [&](int ranks, int nodes) {
    return pricer.price(CollectiveKind::AllReduce, Bytes(100'000'000), ranks, nodes);
  };
  CHECK(price(2, 1).source == CollectiveSource::MeasuredTable);
  CHECK(price(2, 1).cost.seconds == 0.2);
  const CollectivePrice two = price(2, 2);
  CHECK(two.source == CollectiveSource::FittedLinks);
  CHECK(two.cost.seconds == Approx(ring(1e8, 2, 2)));
  CHECK(two.draws == std::vector<double>{0.5, 2});
  CHECK(two.cost.shared_error == Approx(0.1 * 0.79788456));
  const CollectivePrice far = price(8, 8);
  CHECK(far.source == CollectiveSource::BeyondFittedLinks);
  CHECK(far.text == "links fitted to step times of up to 4 ranks on 4 nodes");
}

}  // namespace
}  // namespace stepsim
