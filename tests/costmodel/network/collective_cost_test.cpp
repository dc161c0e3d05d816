#include "costmodel/network/collective_cost.h"

#include <array>
#include <stdexcept>

#include <doctest/doctest.h>

#include "tests/approx.h"
#include "tests/costmodel/helpers.h"

using namespace stepsim;
using stepsim::test::error_of;
using Kind = CollectiveKind;
using stepsim::test::Approx;

namespace {

constexpr Link kFast = {2e-6, 300e9};
constexpr Link kSlow = {10e-6, 25e9};
constexpr std::array<double, 4> kSizes = {1, 4096, 26214400, 1e10};

NodeLinks links_of(int nodes, int per_node) {
  return {nodes * per_node, nodes, kFast, kSlow, per_node * kSlow.bytes_per_s};
}

}  // namespace

TEST_CASE("ring bytes per rank are 2(p-1)/p of the buffer for an all-reduce") {
  CHECK(ring_bytes_per_rank(Kind::AllReduce, 1000, 1) == 0);
  CHECK(ring_bytes_per_rank(Kind::AllReduce, 1000, 2) == 1000);
  CHECK(ring_bytes_per_rank(Kind::AllReduce, 1000, 4) == 1500);
  CHECK(ring_bytes_per_rank(Kind::AllReduce, 1000, 5) == Approx(1600));
  CHECK(ring_bytes_per_rank(Kind::ReduceScatter, 1000, 4) == 750);
  CHECK(ring_bytes_per_rank(Kind::AllGather, 1000, 4) == 750);
  CHECK(ring_bytes_per_rank(Kind::AllToAll, 1000, 4) == 750);
  CHECK(ring_bytes_per_rank(Kind::Broadcast, 1000, 4) == 1000);
  CHECK(ring_bytes_per_rank(Kind::Reduce, 1000, 4) == 1000);
  CHECK(ring_bytes_per_rank(Kind::Broadcast, 1000, 1) == 0);
}

TEST_CASE("ring bytes per rank: an fp16 hook halves them; p/8 of 8-bit all-gathers to fp32") {
  for (const int ranks : {2, 4, 8, 16}) {
    CAPTURE(ranks);
    const double fp32 = ring_bytes_per_rank(Kind::AllReduce, 4e6, ranks);
    CHECK(ring_bytes_per_rank(Kind::AllReduce, 2e6, ranks) == Approx(fp32 / 2));
    // Every rank gathers one byte per element from all.
    const double quantised = ring_bytes_per_rank(Kind::AllGather, 1e6 * ranks, ranks);
    CHECK(quantised / fp32 == Approx(ranks / 8.0));
  }
}

TEST_CASE("a ring's volume is what gloo sends, as counted on its sockets") {
  // Bytes sent per rank / bytes of the message; protocol headers included, hence 0.2 % more.
  CHECK(ring_bytes_per_rank(Kind::AllReduce, 1, 2) == Approx(1.001).epsilon(0.002));
  CHECK(ring_bytes_per_rank(Kind::AllReduce, 1, 3) == Approx(1.335).epsilon(0.002));
  CHECK(ring_bytes_per_rank(Kind::AllReduce, 1, 4) == Approx(1.502).epsilon(0.002));
}

TEST_CASE("two ranks in a ring: two latencies and the bytes once") {
  for (const double bytes : kSizes) {
    CHECK(ring_time(Kind::AllReduce, bytes, 2, kSlow) == Approx(20e-6 + bytes / 25e9));
  }
}

TEST_CASE("one rank takes no time in any form, whatever its links") {
  const NodeLinks alone;
  for (const Kind kind : {Kind::AllReduce, Kind::Broadcast, Kind::Reduce}) {
    CHECK(ring_time(kind, 1000, 1, {}) == 0);
    CHECK(double_tree_time(kind, 1000, 1, {}) == 0);
    CHECK(flat_ring_time(kind, 1000, alone) == 0);
    CHECK(node_tree_time(kind, 1000, alone) == 0);
  }
  CHECK(recursive_doubling_time(1000, 1, {}) == 0);
  CHECK(rabenseifner_time(1000, 1, {}) == 0);
  CHECK(two_level_time(Kind::AllReduce, 1000, alone) == 0);
  CHECK(pairwise_time(1000, alone) == 0);
}

TEST_CASE("an all-reduce is a reduce-scatter and an all-gather, on rings and on two levels") {
  for (const double bytes : kSizes) {
    for (const int nodes : {1, 2, 3, 8}) {
      for (const int per_node : {1, 2, 5, 8}) {
        CAPTURE(nodes);
        CAPTURE(per_node);
        const NodeLinks links = links_of(nodes, per_node);
        CHECK(flat_ring_time(Kind::AllReduce, bytes, links) ==
              Approx(flat_ring_time(Kind::ReduceScatter, bytes, links) +
                     flat_ring_time(Kind::AllGather, bytes, links)));
        CHECK(two_level_time(Kind::AllReduce, bytes, links) ==
              Approx(two_level_time(Kind::ReduceScatter, bytes, links) +
                     two_level_time(Kind::AllGather, bytes, links)));
      }
    }
  }
}

TEST_CASE("two levels with one rank per node are a ring over nodes, with one node a ring in it") {
  for (const double bytes : kSizes) {
    CHECK(two_level_time(Kind::AllReduce, bytes, links_of(6, 1)) ==
          Approx(ring_time(Kind::AllReduce, bytes, 6, kSlow)));
    CHECK(flat_ring_time(Kind::AllReduce, bytes, links_of(6, 1)) ==
          Approx(ring_time(Kind::AllReduce, bytes, 6, kSlow)));
    CHECK(two_level_time(Kind::AllReduce, bytes, links_of(1, 6)) ==
          Approx(ring_time(Kind::AllReduce, bytes, 6, kFast)));
    CHECK(flat_ring_time(Kind::AllReduce, bytes, links_of(1, 6)) ==
          Approx(ring_time(Kind::AllReduce, bytes, 6, kFast)));
    CHECK(pairwise_time(bytes, links_of(1, 6)) ==
          Approx(ring_time(Kind::AllToAll, bytes, 6, kFast)));
    CHECK(pairwise_time(bytes, links_of(6, 1)) ==
          Approx(ring_time(Kind::AllToAll, bytes, 6, kSlow)));
  }
}

TEST_CASE("two levels, worked through by hand") {
  // 2 x 4 ranks, 80 MB. Inside: 3 x 2 us + 60 MB / 300 GB/s = 206 us, twice. Between: 2 x 10 us +
  // 20 MB / 25 GB/s = 820 us.
  CHECK(two_level_time(Kind::AllReduce, 80e6, links_of(2, 4)) == Approx(1232e-6));
  // The ring: 12 x 2 us + 2 x 10 us + 140 MB / 100 GB/s.
  CHECK(flat_ring_time(Kind::AllReduce, 80e6, links_of(2, 4)) == Approx(1444e-6));
  // The tree: 2 (3 x 2 us + 10 us) + max(160 MB / 300 GB/s, 80 MB / 100 GB/s).
  CHECK(node_tree_time(Kind::AllReduce, 80e6, links_of(2, 4)) == Approx(832e-6));
  // All-to-all: 3 x 2 us + 4 x 10 us + 40 MB / 25 GB/s.
  CHECK(pairwise_time(80e6, links_of(2, 4)) == Approx(1646e-6));
}

TEST_CASE("large messages approach the bus bandwidth: T / S tends to factor / B") {
  CHECK(ring_time(Kind::AllReduce, 1e15, 8, kSlow) / 1e15 == Approx(1.75 / 25e9));
  CHECK(ring_time(Kind::AllGather, 1e15, 8, kSlow) / 1e15 == Approx(0.875 / 25e9));
  CHECK(rabenseifner_time(1e15, 8, kSlow) / 1e15 == Approx(1.75 / 25e9));
  CHECK(double_tree_time(Kind::AllReduce, 1e15, 8, kSlow) / 1e15 == Approx(2 / 25e9));
  CHECK(recursive_doubling_time(1e15, 8, kSlow) / 1e15 == Approx(3 / 25e9));
}

TEST_CASE("without latency, twice the bandwidth takes half the time") {
  NodeLinks slow = links_of(4, 8);
  slow.intra.latency_s = 0;
  slow.inter.latency_s = 0;
  NodeLinks fast = slow;
  fast.intra.bytes_per_s *= 2;
  fast.inter.bytes_per_s *= 2;
  fast.node_bytes_per_s *= 2;
  for (const double bytes : kSizes) {
    CHECK(2 * two_level_time(Kind::AllReduce, bytes, fast) ==
          Approx(two_level_time(Kind::AllReduce, bytes, slow)));
    CHECK(2 * flat_ring_time(Kind::AllReduce, bytes, fast) ==
          Approx(flat_ring_time(Kind::AllReduce, bytes, slow)));
    CHECK(2 * node_tree_time(Kind::AllReduce, bytes, fast) ==
          Approx(node_tree_time(Kind::AllReduce, bytes, slow)));
    CHECK(2 * pairwise_time(bytes, fast) == Approx(pairwise_time(bytes, slow)));
  }
}

TEST_CASE("trees and doubling: rounds are the logarithm, rounded up") {
  constexpr Link kLatency = {1, 1e300};
  CHECK(double_tree_time(Kind::AllReduce, 1, 8, kLatency) == Approx(6));
  CHECK(double_tree_time(Kind::AllReduce, 1, 9, kLatency) == Approx(8));
  CHECK(double_tree_time(Kind::Broadcast, 1, 9, kLatency) == Approx(4));
  CHECK(rabenseifner_time(1, 8, kLatency) == Approx(6));
  CHECK(recursive_doubling_time(1, 8, kLatency) == Approx(3));
  CHECK(recursive_doubling_time(1, 5, kLatency) == Approx(3));
}

TEST_CASE("beyond two nodes no ring has more bus bandwidth than a node's adapters") {
  NodeLinks links = links_of(1, 8);
  for (const int nodes : {3, 4, 16, 100}) {
    links.ranks = 8 * nodes;
    links.nodes = nodes;
    for (const double bytes : kSizes) {
      CAPTURE(nodes);
      CAPTURE(bytes);
      const double most = bus_factor(Kind::AllReduce, links.ranks) * bytes / 200e9;
      CHECK(flat_ring_time(Kind::AllReduce, bytes, links) >= most);
    }
  }
}

TEST_CASE("between two nodes a tree may exceed the adapters, up to 2(n-1)/n of them") {
  const double bytes = 1e15;
  const double seconds = node_tree_time(Kind::AllReduce, bytes, links_of(2, 8));
  const double busbw = bus_factor(Kind::AllReduce, 16) * bytes / seconds;
  CHECK(busbw > 200e9);
  CHECK(busbw <= bus_factor(Kind::AllReduce, 16) * 200e9);
  const double four = node_tree_time(Kind::AllReduce, bytes, links_of(4, 8));
  CHECK(bus_factor(Kind::AllReduce, 32) * bytes / four <= 200e9);
}

TEST_CASE("forms that a collective does not have, and nodes that differ, are our own mistake") {
  const auto message = [](auto action) { return error_of<std::logic_error>(action); };
  CHECK(message([] { (void)double_tree_time(Kind::AllGather, 1, 4, kFast); }) ==
        "no tree for this collective");
  CHECK(message([] { (void)two_level_time(Kind::Broadcast, 1, links_of(2, 2)); }) ==
        "no two-level ring for this collective");
  NodeLinks uneven = links_of(2, 2);
  uneven.ranks = 3;
  CHECK(message([&] { (void)two_level_time(Kind::AllReduce, 1, uneven); }) ==
        "two-level rings need equal nodes");
}

TEST_CASE("kinds have names") {
  for (const auto& name : collective_kind_names()) {
    CHECK(name_of(parse_collective_kind(name)) == name);
  }
  CHECK(parse_collective_kind("all_reduce") == Kind::AllReduce);
  CHECK(parse_collective_kind("all_to_all") == Kind::AllToAll);
  CHECK(error_of([] { (void)parse_collective_kind("allreduce"); }).find("did you mean") !=
        std::string::npos);
}
