#include "costmodel/network/topology.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "tests/approx.h"
#include "tests/costmodel/helpers.h"

using namespace stepsim;
using stepsim::test::error_of;
using Kind = CollectiveKind;
using stepsim::test::Approx;

namespace {

/// 4 nodes of 8: 300 GB/s inside, one 25 GB/s adapter per rank.
Topology cluster(CollectiveAlgorithm algorithm = CollectiveAlgorithm::Auto) {
  Topology topology;
  topology.placement = Placement::filled(32, 8);
  topology.intra = {2e-6, 300e9};
  topology.inter = {10e-6, 25e9};
  topology.algorithm = algorithm;
  return topology;
}

double seconds(const Topology& topology, double bytes, Kind kind = Kind::AllReduce) {
  return analytic_time(topology, kind, bytes, 32, 4).seconds;
}

}  // namespace

TEST_CASE("each algorithm is its closed form on the links of the group") {
  const NodeLinks links = {32, 4, {2e-6, 300e9}, {10e-6, 25e9}, 200e9};
  CHECK(seconds(cluster(CollectiveAlgorithm::FlatRing), 1e8) ==
        flat_ring_time(Kind::AllReduce, 1e8, links));
  CHECK(seconds(cluster(CollectiveAlgorithm::Hierarchical), 1e8) ==
        two_level_time(Kind::AllReduce, 1e8, links));
  CHECK(seconds(cluster(CollectiveAlgorithm::Tree), 1e8) ==
        node_tree_time(Kind::AllReduce, 1e8, links));
  // One ring: 62 steps, 6 of them between nodes, all bytes through single adapters.
  CHECK(seconds(cluster(CollectiveAlgorithm::Ring), 1e8) ==
        Approx(56 * 2e-6 + 6 * 10e-6 + 2 * 31 / 32.0 * 1e8 / 25e9));
  // Every round at the slower link.
  CHECK(seconds(cluster(CollectiveAlgorithm::RecursiveDoubling), 1e8) ==
        Approx(5 * (10e-6 + 1e8 / 25e9)));
  CHECK(seconds(cluster(CollectiveAlgorithm::Rabenseifner), 1e8) ==
        Approx(10 * 10e-6 + 2 * 31 / 32.0 * 1e8 / 25e9));
  CHECK(seconds(cluster(), 1e8, Kind::AllToAll) == pairwise_time(1e8, links));
}

TEST_CASE("auto is the fastest of flat ring, tree and two levels") {
  for (const double bytes : {8.0, 1e4, 1e6, 1e8, 1e10}) {
    CAPTURE(bytes);
    const double ring = seconds(cluster(CollectiveAlgorithm::FlatRing), bytes);
    const double tree = seconds(cluster(CollectiveAlgorithm::Tree), bytes);
    const double levels = seconds(cluster(CollectiveAlgorithm::Hierarchical), bytes);
    CHECK(seconds(cluster(), bytes) == std::min({ring, tree, levels}));
  }
  CHECK(analytic_time(cluster(), Kind::AllReduce, 8, 32, 4).algorithm == CollectiveAlgorithm::Tree);
  CHECK(analytic_time(cluster(), Kind::AllReduce, 1e10, 32, 4).algorithm ==
        CollectiveAlgorithm::FlatRing);
}

TEST_CASE("an algorithm that does not apply is replaced by rings, and says so") {
  const auto used = [](CollectiveAlgorithm wanted, Kind kind, int ranks, int nodes) {
    return analytic_time(cluster(wanted), kind, 1e6, ranks, nodes).algorithm;
  };
  CHECK(used(CollectiveAlgorithm::Tree, Kind::AllGather, 32, 4) == CollectiveAlgorithm::FlatRing);
  CHECK(used(CollectiveAlgorithm::Tree, Kind::Broadcast, 32, 4) == CollectiveAlgorithm::Tree);
  CHECK(used(CollectiveAlgorithm::Hierarchical, Kind::AllGather, 32, 4) ==
        CollectiveAlgorithm::Hierarchical);
  CHECK(used(CollectiveAlgorithm::Hierarchical, Kind::Broadcast, 32, 4) ==
        CollectiveAlgorithm::FlatRing);
  CHECK(used(CollectiveAlgorithm::Hierarchical, Kind::AllReduce, 31, 4) ==
        CollectiveAlgorithm::FlatRing);
  CHECK(used(CollectiveAlgorithm::Hierarchical, Kind::AllReduce, 8, 1) ==
        CollectiveAlgorithm::Ring);
  CHECK(used(CollectiveAlgorithm::FlatRing, Kind::AllReduce, 8, 1) == CollectiveAlgorithm::Ring);
  CHECK(used(CollectiveAlgorithm::Rabenseifner, Kind::AllGather, 32, 4) ==
        CollectiveAlgorithm::FlatRing);
  CHECK(used(CollectiveAlgorithm::Hierarchical, Kind::AllToAll, 32, 4) ==
        CollectiveAlgorithm::Ring);
}

TEST_CASE("a group uses the links of its ranks") {
  const Topology topology = cluster(CollectiveAlgorithm::FlatRing);
  // Inside one node the network is not used; one rank per node has one adapter.
  CHECK(analytic_time(topology, Kind::AllReduce, 1e9, 8, 1).seconds ==
        ring_time(Kind::AllReduce, 1e9, 8, topology.intra));
  CHECK(analytic_time(topology, Kind::AllReduce, 1e9, 4, 4).seconds ==
        Approx(ring_time(Kind::AllReduce, 1e9, 4, topology.inter)));
  CHECK(analytic_time(topology, Kind::AllReduce, 1e9, 8, 4).seconds ==
        Approx(8 * 2e-6 + 6 * 10e-6 + 1.75 * 1e9 / 50e9));
  CHECK(analytic_time(topology, Kind::AllReduce, 1e9, 1, 1).seconds == 0);
}

TEST_CASE("the adapters of a node: their total, or one share for each rank") {
  Topology total = cluster(CollectiveAlgorithm::FlatRing);
  total.inter.bytes_per_s = 0;
  total.node_bytes_per_s = 200e9;
  CHECK(seconds(total, 1e9) == Approx(seconds(cluster(CollectiveAlgorithm::FlatRing), 1e9)));
  total.algorithm = CollectiveAlgorithm::Hierarchical;
  CHECK(seconds(total, 1e9) == Approx(seconds(cluster(CollectiveAlgorithm::Hierarchical), 1e9)));
  // Eight ranks of a share of 25 GB/s behind adapters of 50 GB/s together.
  Topology narrow = cluster(CollectiveAlgorithm::Hierarchical);
  narrow.node_bytes_per_s = 50e9;
  CHECK(seconds(narrow, 1e15) / 1e15 == Approx(2 * 0.875 / 300e9 + 1.5 / 8 / (50e9 / 8)));
}

TEST_CASE("the slowest link of a ring decides, and two slow links cost no more than the slower") {
  Topology slow = cluster(CollectiveAlgorithm::FlatRing);
  slow.slow_links = {{.rank = 5, .node = std::nullopt, .factor = 4}};
  // 1 GB at 200 / 4 GB/s through the network, where inside it would be 300 / 4.
  const double latency = 56 * 2e-6 + 6 * 10e-6;
  CHECK(seconds(slow, 1e9) == Approx(latency + 2 * 31 / 32.0 * 1e9 / 50e9));
  slow.slow_links.push_back({.rank = std::nullopt, .node = 2, .factor = 3});
  CHECK(seconds(slow, 1e9) == Approx(latency + 2 * 31 / 32.0 * 1e9 / 50e9));
  slow.slow_links[1].factor = 8;
  CHECK(seconds(slow, 1e9) == Approx(latency + 2 * 31 / 32.0 * 1e9 / 25e9));
}

TEST_CASE("a slow node's adapters do not slow a group on one node, a slow rank does") {
  Topology slow = cluster();
  slow.slow_links = {{.rank = std::nullopt, .node = 2, .factor = 10}};
  const auto on_one_node = [](const Topology& topology) {
    return analytic_time(topology, Kind::AllReduce, 1e9, 8, 1).seconds;
  };
  CHECK(on_one_node(slow) == on_one_node(cluster()));
  slow.slow_links = {{.rank = 2, .node = std::nullopt, .factor = 10}};
  CHECK(on_one_node(slow) > 9 * on_one_node(cluster()));
}

TEST_CASE("slower links and more bytes never make a collective faster") {
  test::RandomValues draw(7);
  for (int trial = 0; trial < 200; ++trial) {
    CAPTURE(trial);
    const auto algorithm = static_cast<CollectiveAlgorithm>(draw.whole(6));
    const auto kind = static_cast<Kind>(draw.whole(5));
    Topology topology = cluster(algorithm);
    const double bytes = 1 + draw.whole(1 << 30);
    const double before = seconds(topology, bytes, kind);
    CHECK(before > 0);
    CHECK(seconds(topology, 2 * bytes, kind) >= before);
    topology.slow_links = {{.rank = draw.whole(31), .node = std::nullopt, .factor = 1.5}};
    CHECK(seconds(topology, bytes, kind) >= before);
    topology.intra.latency_s *= 2;
    topology.inter.latency_s *= 2;
    CHECK(seconds(topology, bytes, kind) >= before);
  }
}

TEST_CASE("NCCL's model sees channels of the slower links, and the slowest adapter") {
  // Vector of its own: 2 nodes x 8 H100, 8 channels of 48 GB/s.
  Topology nccl = cluster(CollectiveAlgorithm::Nccl);
  nccl.placement = Placement::filled(16, 8);
  nccl.intra.bytes_per_s = 400e9;
  nccl.inter.bytes_per_s = 48e9;
  nccl.nccl_channels = 8;
  const AnalyticTime time = analytic_time(nccl, Kind::AllReduce, 1e9, 16, 2);
  CHECK(time.algorithm == CollectiveAlgorithm::Nccl);
  REQUIRE(time.nccl);
  CHECK(time.nccl->algorithm == NcclAlgorithm::Ring);
  CHECK(time.nccl->protocol == NcclProtocol::Simple);
  CHECK(time.seconds == Approx(1.4 * 131.6e-6 + 1e9 / 204.8e9));
  nccl.slow_links = {{.rank = std::nullopt, .node = 1, .factor = 2}};
  CHECK(analytic_time(nccl, Kind::AllReduce, 1e9, 16, 2).seconds ==
        Approx(1.4 * 131.6e-6 + 1e9 / 102.4e9));
  // On one node the links inside: 400 GB/s, 8/14 of it as algbw.
  CHECK(analytic_time(nccl, Kind::AllReduce, 1e10, 8, 1).seconds ==
        Approx(8.4e-6 + 14 * 3.4e-6 + 1e10 / (400e9 * 8 / 14)));
  CHECK(analytic_time(nccl, Kind::AllReduce, 1e9, 15, 2).algorithm ==
        CollectiveAlgorithm::FlatRing);
  // An all-gather is one pass of that ring, without the all-reduce's late start.
  CHECK(analytic_time(nccl, Kind::AllGather, 1e10, 8, 1).seconds ==
        Approx(8.4e-6 + 7 * 3.4e-6 + 1e10 / (400e9 * 8 / 7)));
  CHECK(analytic_time(nccl, Kind::Broadcast, 1e9, 16, 2).algorithm ==
        CollectiveAlgorithm::FlatRing);
  nccl.nccl_channels = 0;
  CHECK(error_of([&] { (void)analytic_time(nccl, Kind::AllReduce, 1e9, 16, 2); }) ==
        "NCCL's model needs the number of channels: write channels in [cluster.topology]");
}

TEST_CASE("ranks of a node with fewer of them share its adapters, or have fewer of their own") {
  Topology shared = cluster(CollectiveAlgorithm::FlatRing);
  shared.inter = {10e-6, 0};
  shared.node_bytes_per_s = 10e9;
  const auto on = [](Topology topology, std::vector<int> nodes) {
    topology.placement = Placement(std::move(nodes));
    return analytic_time(topology,
                         Kind::AllReduce,
                         1e9,
                         topology.placement.ranks(),
                         topology.placement.nodes())
        .seconds;
  };
  // One adapter a node: a rank alone has all of it.
  const double ring = 1.5 * 1e9 / 10e9;
  CHECK(on(shared, {2, 2}) == Approx(ring + 4 * 2e-6 + 2 * 10e-6));
  CHECK(on(shared, {3, 1}) == Approx(on(shared, {2, 2})));
  CHECK(on(shared, {1, 3}) == Approx(on(shared, {2, 2})));
  // One adapter a rank: the node with the fewest decides.
  const Topology own = cluster(CollectiveAlgorithm::FlatRing);
  CHECK(on(own, {2, 2}) == Approx(1.5 * 1e9 / 50e9 + 4 * 2e-6 + 2 * 10e-6));
  CHECK(on(own, {3, 1}) == Approx(1.5 * 1e9 / 25e9 + 4 * 2e-6 + 2 * 10e-6));
  // Two levels need equal nodes, and a tree's chain is as long as the fullest.
  Topology two_levels = cluster(CollectiveAlgorithm::Hierarchical);
  two_levels.placement = Placement({3, 1});
  CHECK(analytic_time(two_levels, Kind::AllReduce, 1e9, 4, 2).algorithm ==
        CollectiveAlgorithm::FlatRing);
  Topology tree = cluster(CollectiveAlgorithm::Tree);
  CHECK(on(tree, {1, 3}) == Approx(2 * (2 * 2e-6 + 10e-6) + 1e9 / 25e9));
}

TEST_CASE("a group that does not fit and a link without bandwidth are refused") {
  const auto message = [](const Topology& topology, int ranks, int nodes) {
    return error_of([&] { (void)analytic_time(topology, Kind::AllReduce, 1, ranks, nodes); });
  };
  CHECK(message(cluster(), 9, 1) ==
        "9 ranks on 1 nodes do not fit a cluster of 32 ranks with 8 per node");
  CHECK(message(cluster(), 40, 5) ==
        "40 ranks on 5 nodes do not fit a cluster of 32 ranks with 8 per node");
  CHECK(message(cluster(), 2, 3) ==
        "2 ranks on 3 nodes do not fit a cluster of 32 ranks with 8 per node");
  Topology bare = cluster();
  bare.intra.bytes_per_s = 0;
  CHECK(message(bare, 4, 4) == "no error");
  CHECK(message(bare, 8, 4) ==
        "a link in use has no bandwidth: write intra_bandwidth in "
        "[cluster.topology]");
  bare = cluster();
  bare.inter.bytes_per_s = 0;
  CHECK(message(bare, 8, 1) == "no error");
  CHECK(message(bare, 8, 4) ==
        "a link in use has no bandwidth: write inter_bandwidth in "
        "[cluster.topology]");
}

TEST_CASE("algorithms have names") {
  for (const auto& name : collective_algorithm_names()) {
    CHECK(name_of(parse_collective_algorithm(name)) == name);
  }
  CHECK(parse_collective_algorithm("flat_ring") == CollectiveAlgorithm::FlatRing);
  CHECK(error_of([] { (void)parse_collective_algorithm("rings"); }).find("'ring'") !=
        std::string::npos);
}
