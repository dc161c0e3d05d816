#include "costmodel/network/nccl_model.h"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "tests/approx.h"
#include "tests/costmodel/helpers.h"

using namespace stepsim;
using stepsim::test::error_of;
using Algorithm = NcclAlgorithm;
using Protocol = NcclProtocol;
using stepsim::test::Approx;

namespace {

constexpr double kMiB = 1048576;

/// 4 x H100 on NVSwitch, one node.
NcclSystem one_node() {
  NcclSystem system;
  system.ranks = 4;
  system.ring = system.tree = {12, 30, 30};
  system.nvls = NcclGraph{4, 60, 60};
  return system;
}

/// 2 nodes x 8 H100 with Intel CPUs.
NcclSystem two_nodes() {
  NcclSystem system;
  system.ranks = 16;
  system.nodes = 2;
  system.ring = system.tree = {8, 48, 48};
  system.nvls = NcclGraph{8, 48, 48};
  system.tree_pattern = true;
  return system;
}

/// As NCCL prints it: one decimal.
double printed(double value) {
  return std::round(value * 10) / 10;
}

/// Latency and bandwidth of LL, LL128, Simple.
void check_row(const NcclTunings& table, Algorithm algorithm, const std::vector<double>& expected) {
  CAPTURE(name_of(algorithm));
  REQUIRE(expected.size() == 6);
  for (std::size_t p = 0; p < 3; ++p) {
    CAPTURE(p);
    const NcclTuning& entry = table[static_cast<std::size_t>(algorithm)][p];
    CHECK(printed(entry.latency_us) == Approx(expected[2 * p]).epsilon(1e-9));
    CHECK(printed(entry.gb_per_s) == Approx(expected[2 * p + 1]).epsilon(1e-9));
  }
}

}  // namespace

TEST_CASE("the table that NCCL prints on 4 x H100 is reproduced to every digit") {
  const NcclTunings table = nccl_tunings(one_node());
  check_row(table, Algorithm::Tree, {10.4, 43.6, 21.5, 128.8, 32.4, 165.6});
  check_row(table, Algorithm::Ring, {10.2, 94.0, 25.4, 220.8, 28.8, 240.0});
  check_row(table, Algorithm::Nvls, {0, 0, 0, 0, 25.0, 160.0});
  check_row(table, Algorithm::CollNetDirect, {2.4, 0, 2.4, 0, 40.8, 0});
  check_row(table, Algorithm::CollNetChain, {0, 0, 0, 0, 46.8, 0});
  check_row(table, Algorithm::NvlsTree, {0, 0, 0, 0, 25.0, 0});
}

TEST_CASE("the figures reported for 2 x 8 H100 are reproduced") {
  const NcclTunings table = nccl_tunings(two_nodes());
  check_row(table, Algorithm::Ring, {40.0, 20.8, 75.2, 156.6, 131.6, 204.8});
  check_row(table, Algorithm::Tree, {25.2, 16.6, 48.5, 124.8, 92.4, 140.8});
  check_row(table, Algorithm::NvlsTree, {0, 0, 0, 0, 66.8, 246.2});
}

TEST_CASE("NCCL's choice by size on 4 x H100") {
  struct Row {
    double bytes;
    Algorithm algorithm;
    Protocol protocol;
    double us;
  };
  const std::vector<Row> rows = {{8, Algorithm::Ring, Protocol::Ll, 10.2},
                                 {32 * 1024, Algorithm::Ring, Protocol::Ll, 10.5},
                                 {64 * 1024, Algorithm::Ring, Protocol::Ll, 10.9},
                                 {256 * 1024, Algorithm::Ring, Protocol::Ll, 13.0},
                                 {kMiB, Algorithm::Ring, Protocol::Ll, 21.4},
                                 {4 * kMiB, Algorithm::Ring, Protocol::Ll128, 44.4},
                                 {16 * kMiB, Algorithm::Ring, Protocol::Simple, 98.7},
                                 {64 * kMiB, Algorithm::Ring, Protocol::Simple, 308.4},
                                 {256 * kMiB, Algorithm::Ring, Protocol::Simple, 1147.3},
                                 {1024 * kMiB, Algorithm::Ring, Protocol::Simple, 4502.7},
                                 {8192 * kMiB, Algorithm::Ring, Protocol::Simple, 35820.2}};
  for (const auto& row : rows) {
    CAPTURE(row.bytes);
    const NcclChoice choice = nccl_choice(one_node(), row.bytes);
    CHECK(choice.algorithm == row.algorithm);
    CHECK(choice.protocol == row.protocol);
    CHECK(printed(choice.us) == Approx(row.us).epsilon(1e-9));
  }
}

TEST_CASE("a tree has less bandwidth at middle sizes") {
  const NcclSystem system = one_node();
  const NcclTunings table = nccl_tunings(system);
  const auto us = [&](Protocol protocol, double bytes) {
    return printed(*nccl_time_us(system, table, Algorithm::Tree, protocol, bytes));
  };
  CHECK(us(Protocol::Ll, 64 * 1024) == Approx(12.9));
  CHECK(us(Protocol::Ll, kMiB) == Approx(58.5));
  CHECK(us(Protocol::Simple, kMiB) == Approx(45.1));
  CHECK(us(Protocol::Simple, 1024 * kMiB) == Approx(6516.3));  // Beyond the table of factors.
  CHECK(us(Protocol::Simple, 63) == Approx(32.4));
}

TEST_CASE("a Simple ring over nodes starts 1.4 times as late once each slice has 64 bytes") {
  const NcclSystem system = two_nodes();
  const NcclTunings table = nccl_tunings(system);
  const auto latency = [&](double bytes) {
    return *nccl_time_us(system, table, Algorithm::Ring, Protocol::Simple, bytes) - bytes / 204.8e3;
  };
  CHECK(latency(64 * 8 * 16 - 1) == Approx(131.6));
  CHECK(latency(64 * 8 * 16) == Approx(1.4 * 131.6));
  NcclSystem volta = system;
  volta.gpu = GpuGeneration::Volta;
  CHECK(*nccl_time_us(volta, table, Algorithm::Ring, Protocol::Simple, 8192) ==
        Approx(1.9 * 131.6 + 8192 / 204.8e3));
}

TEST_CASE("what is switched off has no time, and one rank takes none") {
  const NcclSystem system = one_node();
  const NcclTunings table = nccl_tunings(system);
  CHECK_FALSE(nccl_time_us(system, table, Algorithm::CollNetDirect, Protocol::Simple, 1));
  CHECK_FALSE(nccl_time_us(system, table, Algorithm::NvlsTree, Protocol::Simple, 1));
  CHECK_FALSE(nccl_time_us(system, table, Algorithm::Nvls, Protocol::Ll, 1));
  NcclSystem alone = system;
  alone.ranks = 1;
  CHECK(nccl_choice(alone, kMiB).us == 0);
  NcclSystem bare = two_nodes();
  bare.nvls.reset();
  CHECK(nccl_choice(bare, 1024 * kMiB).algorithm == Algorithm::Ring);
  CHECK(nccl_choice(two_nodes(), 1024 * kMiB).algorithm == Algorithm::NvlsTree);
}

TEST_CASE("beyond two nodes the bandwidth is that between nodes; AMD and PCI wait longer") {
  NcclSystem system = two_nodes();
  system.ranks = 32;
  system.nodes = 4;
  system.ring.inter_gb_per_s = 24;
  const auto ring = [](const NcclSystem& s, Protocol protocol) {
    return nccl_tunings(s)[1][static_cast<std::size_t>(protocol)];
  };
  CHECK(ring(system, Protocol::Simple).gb_per_s == Approx(8 * 24 * 32 / 62.0));
  CHECK(ring(system, Protocol::Ll).gb_per_s == Approx(20.4 * 32 / 62.0));
  CHECK(ring(system, Protocol::Simple).latency_us == Approx(8.4 + 56 * 3.4 + 6 * 14));
  system.cpu = NcclCpu::Amd;
  CHECK(ring(system, Protocol::Ll).gb_per_s == Approx(19 * 32 / 62.0));
  CHECK(ring(system, Protocol::Simple).latency_us == Approx(8.4 + 56 * 6 + 6 * 14));
  system.cpu = NcclCpu::Intel;
  system.nvlink = false;
  CHECK(ring(system, Protocol::Simple).latency_us == Approx(8.4 + 56 * 5.7 + 6 * 14));
  system.net_latency_us = 1;
  CHECK(ring(system, Protocol::Simple).latency_us == Approx(8.4 + 56 * 5.7 + 6 * 16));
  CHECK(ring(system, Protocol::Ll).latency_us == Approx(6.6 + 56 * 1.0 + 6 * 3.7));
}

TEST_CASE("blocks depend on the bucket's bytes, 32 KiB a channel, and are capped") {
  const NcclSystem system = two_nodes();
  const auto launch = [&](double bytes, int max_ctas = 64) {
    return nccl_launch(system, Algorithm::Ring, Protocol::Simple, bytes, max_ctas);
  };
  constexpr double kChannel = 32 * 1024;
  CHECK(launch(25 * kMiB) == NcclLaunch{8, 512});
  CHECK(launch(8 * kChannel) == NcclLaunch{8, 512});
  CHECK(launch(8 * kChannel - 1) == NcclLaunch{7, 512});
  CHECK(launch(3 * kChannel) == NcclLaunch{3, 512});
  CHECK(launch(kChannel) == NcclLaunch{1, 512});
  // One channel left: threads are halved to 64, which 128 does not divide.
  CHECK(launch(kChannel - 1) == NcclLaunch{1, 256});
  CHECK(launch(1) == NcclLaunch{1, 64});
  CHECK(launch(25 * kMiB, 4) == NcclLaunch{4, 512});
  CHECK(launch(3 * kChannel, 4) == NcclLaunch{3, 512});
}

TEST_CASE("LL has 8 bytes a thread, for each rank on a ring, LL128 8, a narrow ring 256 threads") {
  const NcclSystem system = two_nodes();
  CHECK(nccl_launch(system, Algorithm::Tree, Protocol::Ll, 8 * 4096) == NcclLaunch{8, 512});
  CHECK(nccl_launch(system, Algorithm::Ring, Protocol::Ll, 8 * 4096) == NcclLaunch{1, 256});
  CHECK(nccl_launch(system, Algorithm::Ring, Protocol::Ll, 16 * 4096.0 * 8) == NcclLaunch{8, 512});
  CHECK(nccl_launch(system, Algorithm::Ring, Protocol::Ll128, 2 * 640 * 8) == NcclLaunch{2, 640});
  // 640 = 5 x 128 is halved once; 320 is not a multiple of 128.
  CHECK(nccl_launch(system, Algorithm::Ring, Protocol::Ll128, 1) == NcclLaunch{1, 320});
  NcclSystem narrow = system;
  narrow.ring = {1, 12, 12};
  CHECK(nccl_launch(narrow, Algorithm::Ring, Protocol::Simple, kMiB) == NcclLaunch{1, 256});
}

TEST_CASE("an all-gather passes over the ranks once where an all-reduce does twice") {
  for (const NcclSystem& system : {one_node(), two_nodes()}) {
    CAPTURE(system.nodes);
    const NcclTunings both = nccl_tunings(system);
    for (const auto kind : {CollectiveKind::AllGather, CollectiveKind::ReduceScatter}) {
      const NcclTunings once = nccl_tunings(system, kind);
      for (std::size_t p = 0; p < 3; ++p) {
        CAPTURE(p);
        CHECK(once[1][p].gb_per_s == Approx(2 * both[1][p].gb_per_s));
      }
      // Simple: base 8.4 us; 3.4 us a step inside a node and 14 us between nodes.
      const double steps = system.nodes == 1 ? 3 * 3.4 : 14 * 3.4 + 14;
      CHECK(once[1][2].latency_us == Approx(8.4 + steps));
      CHECK(nccl_choice(system, 1024 * kMiB, kind).algorithm == Algorithm::Ring);
      CHECK(nccl_choice(system, 1024 * kMiB, kind).us ==
            Approx(8.4 + steps + 1024 * kMiB / (1000 * once[1][2].gb_per_s)));
      CHECK_FALSE(nccl_time_us(system, once, Algorithm::Tree, Protocol::Ll, 1, kind));
      CHECK_FALSE(nccl_time_us(system, once, Algorithm::Nvls, Protocol::Simple, 1, kind));
    }
  }
  CHECK_FALSE(has_nccl_model(CollectiveKind::Broadcast));
}

TEST_CASE("generations have names") {
  for (const auto& name : gpu_generation_names()) {
    CHECK(name_of(parse_gpu_generation(name)) == name);
  }
  CHECK(error_of([] { (void)parse_gpu_generation("hoper"); }).find("did you mean 'hopper'") !=
        std::string::npos);
  CHECK(name_of(Algorithm::NvlsTree) == "NVLSTree");
  CHECK(name_of(Protocol::Ll128) == "LL128");
}
