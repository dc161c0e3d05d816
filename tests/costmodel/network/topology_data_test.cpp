// The closed forms and NCCL's model against published sweeps of nccl-tests. Nothing is fitted: the
// links are those of the data sheets, the steps NCCL's own constants for NVLink and networks.
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/core.h>

#include "costmodel/compute/fit_errors.h"
#include "costmodel/network/collective_pricer.h"
#include "costmodel/network/topology.h"
#include "costmodel/records/profile_cost_model.h"
#include "tests/costmodel/network/nccl_sweeps.h"
#include "tests/test_data.h"

using namespace stepsim;
using stepsim::test::read_sweeps;
using stepsim::test::Sweeps;

namespace {

constexpr double kTopologyMiB = 1048576;

struct Cluster {
  std::string log;
  int nodes = 1;
  int per_node = 1;
  double nvlink_gb_per_s = 0;  ///< Per GPU and direction.
  double node_gb_per_s = 0;    ///< All network adapters of a node.
  GpuGeneration gpu = GpuGeneration::Hopper;
};

/// NVLink: 12 (A100) or 18 links (H100) of 25 GB/s. Adapters: HDR 200, NDR and CX-7 400, Slingshot
/// 200, EFA 100 Gbit/s each, times those of a node.
const std::vector<Cluster>& clusters() {
  constexpr GpuGeneration kAmpere = GpuGeneration::Ampere;
  static const std::vector<Cluster> kClusters = {
      {"a100_dgx_ib_002x8_ring", 2, 8, 300, 200, kAmpere},
      {"a100_sophia_ib_002x8", 2, 8, 300, 200, kAmpere},
      {"a100_p4d_efa_002x8_tagoutput", 2, 8, 300, 50, kAmpere},
      {"a100_p4de_efa_002x8_srunlabel", 2, 8, 300, 50, kAmpere},
      {"a100_polaris_002x4_setup5", 2, 4, 300, 50, kAmpere},
      {"a100_polaris_540x4_setup5", 540, 4, 300, 50, kAmpere},
      {"h100_ib_002x8_from_1M", 2, 8, 450, 400},
      {"h100_oci_roce_002x8_large", 2, 8, 450, 400},
      {"h100_ib_002x2", 2, 2, 450, 100},
      {"h100_p5_001x8_tagoutput", 1, 8, 450, 400},
      {"h100_nvswitch_001x4_full", 1, 4, 450, 400},
      {"gh200_alps_ss11_002x4", 2, 4, 450, 100},
      {"gh200_alps_ss11_032x4", 32, 4, 450, 100},
      {"gh200_alps_ss11_064x4", 64, 4, 450, 100}};
  return kClusters;
}

/// Below 1 MiB, to 128 MiB, above.
std::size_t band(double bytes) {
  return bytes < kTopologyMiB ? 0 : bytes <= 128 * kTopologyMiB ? 1 : 2;
}

using Bands = std::array<double, 3>;

struct Mean {
  double sum = 0;
  int count = 0;
  void add(double value) {
    sum += value;
    ++count;
  }
};

/// Mean |error| in each band; bands without rows are left out of `over_sweeps`.
Bands sweep_errors(const Cluster& cluster,
                   const std::vector<std::pair<double, double>>& rows,
                   CollectiveAlgorithm algorithm,
                   std::array<Mean, 3>& over_sweeps) {
  Topology topology;
  topology.placement = Placement::filled(cluster.nodes * cluster.per_node, cluster.per_node);
  topology.intra = {3.4e-6, cluster.nvlink_gb_per_s * 1e9};
  topology.inter.latency_s = 14e-6;
  topology.node_bytes_per_s = cluster.node_gb_per_s * 1e9;
  topology.algorithm = algorithm;
  topology.gpu = cluster.gpu;
  topology.nccl_channels = 8;
  std::array<Mean, 3> means;
  for (const auto& [bytes, us] : rows) {
    const AnalyticTime time = analytic_time(
        topology, CollectiveKind::AllReduce, bytes, topology.placement.ranks(), cluster.nodes);
    means[band(bytes)].add(std::abs(time.seconds * 1e6 / us - 1));
  }
  Bands errors{};
  for (std::size_t b = 0; b < 3; ++b) {
    if (means[b].count > 0) {
      errors[b] = means[b].sum / means[b].count;
      over_sweeps[b].add(errors[b]);
    }
  }
  return errors;
}

void check_stated_errors(const Sweeps& sweeps, CollectiveAlgorithm algorithm) {
  std::array<Mean, 3> means;
  for (const auto& cluster : clusters()) {
    const auto found = sweeps.find(cluster.log);
    REQUIRE(found != sweeps.end());
    (void)sweep_errors(cluster, found->second, algorithm, means);
  }
  CAPTURE(name_of(algorithm));
  for (const double bytes : {1024.0, kTopologyMiB, 256 * kTopologyMiB}) {
    CAPTURE(bytes);
    const Mean& mean = means[band(bytes)];
    CHECK(std::abs(mean.sum / mean.count - analytic_error(algorithm, bytes)) < 0.01);
  }
}

}  // namespace

TEST_CASE("the stated errors of links from data sheets are those on published sweeps") {
  const auto path = test::data_file("nccl_logs/figures.csv");
  if (!path) {
    return;
  }
  const Sweeps sweeps = read_sweeps(*path);
  check_stated_errors(sweeps, CollectiveAlgorithm::Auto);
  check_stated_errors(sweeps, CollectiveAlgorithm::Nccl);
}

TEST_CASE("from 1 MiB on all-gathers are within the errors stated for all-reduces") {
  struct Point {
    double mib;
    double us;
  };
  struct Sweep {
    std::string source;
    int nodes;
    int per_node;
    double nvlink_gb_per_s;
    double node_gb_per_s;
    CollectiveKind kind;
    std::vector<Point> points;
  };
  constexpr CollectiveKind kGather = CollectiveKind::AllGather;
  constexpr CollectiveKind kScatter = CollectiveKind::ReduceScatter;
  const std::vector<Sweep> sweeps = {
      {"4 H100, NVSwitch, waynehacking8/nccl-collectives-bench@38c093ed",
       1,
       4,
       450,
       400,
       kGather,
       {{1. / 16, 19.9}, {1, 22}, {4, 38.2}, {16, 64.4}, {64, 192.9}, {256, 653.4}, {1024, 2423}}},
      {"the same",
       1,
       4,
       450,
       400,
       kScatter,
       {{1. / 16, 23.1}, {1, 26}, {4, 36}, {16, 62.5}, {64, 189.2}, {256, 663.1}, {1024, 2439}}},
      {"2 x 8 A100, sophia of argonne-lcf/alcf-nccl-tests@385be336",
       2,
       8,
       300,
       200,
       kGather,
       {{1, 78}, {16, 164.5}, {64, 491}, {256, 1437}, {1024, 5722}}},
      {"8 x 4 A100, polaris of the same", 8, 4, 300, 50, kGather, {{64, 2088}, {1024, 28549}}}};
  std::array<Mean, 3> means;
  for (const Sweep& sweep : sweeps) {
    Topology topology;
    topology.placement = Placement::filled(sweep.nodes * sweep.per_node, sweep.per_node);
    topology.intra = {3.4e-6, sweep.nvlink_gb_per_s * 1e9};
    topology.inter.latency_s = 14e-6;
    topology.node_bytes_per_s = sweep.node_gb_per_s * 1e9;
    topology.algorithm = CollectiveAlgorithm::Nccl;
    topology.gpu = sweep.nodes == 1 ? GpuGeneration::Hopper : GpuGeneration::Ampere;
    topology.nccl_channels = 8;
    for (const Point& point : sweep.points) {
      const double bytes = point.mib * kTopologyMiB;
      const AnalyticTime time = analytic_time(
          topology, sweep.kind, bytes, topology.placement.ranks(), topology.placement.nodes());
      CHECK(time.algorithm == CollectiveAlgorithm::Nccl);
      const double error = time.seconds * 1e6 / point.us - 1;
      means[band(bytes)].add(std::abs(error));
    }
  }
  for (const double bytes : {kTopologyMiB, 256 * kTopologyMiB}) {
    CAPTURE(bytes);
    const Mean& mean = means[band(bytes)];
    CHECK(mean.sum / mean.count < analytic_error(CollectiveAlgorithm::Nccl, bytes));
  }
  // Two points below 1 MiB, both of one process for four GPUs, whose launches NCCL's model lacks.
  CHECK(means[0].count == 2);
  CHECK(std::abs(means[0].sum / means[0].count - 0.59) < 0.01);
}

TEST_CASE("a run that was told to use rings agrees with the flat ring within 10 % from 1 MiB on") {
  const auto path = test::data_file("nccl_logs/figures.csv");
  if (!path) {
    return;
  }
  std::array<Mean, 3> means;
  const Cluster& cluster = clusters().front();
  const Bands errors = sweep_errors(
      cluster, read_sweeps(*path).at(cluster.log), CollectiveAlgorithm::FlatRing, means);
  CHECK(errors[1] < 0.10);
  CHECK(errors[2] < 0.10);
}

TEST_CASE("between measured numbers of ranks the mean error is 15 % on a cluster of GH200") {
  const auto path = test::data_file("nccl_logs/figures.csv");
  if (!path) {
    return;
  }
  const Sweeps sweeps = read_sweeps(*path);
  const auto log_of = [](int nodes) { return fmt::format("gh200_alps_ss11_{:03}x4", nodes); };
  struct Left {
    int fewer;
    int out;
    int more;
  };
  Mean over_cases;
  for (const Left& nodes : {Left{2, 8, 32}, {8, 32, 64}, {2, 32, 64}, {32, 64, 256}}) {
    CAPTURE(nodes.out);
    Profile profile;
    for (const int known : {nodes.fewer, nodes.more}) {
      CollectiveCost table;
      table.ranks = known * 4;
      table.nodes = known;
      for (const auto& [bytes, us] : sweeps.at(log_of(known))) {
        table.knots.emplace_back(bytes, us * 1e-6);
      }
      profile.collectives.push_back(table);
    }
    const CollectivePricer pricer = collective_pricer(profile);
    Mean error;
    for (const auto& [bytes, us] : sweeps.at(log_of(nodes.out))) {
      const CollectivePrice price = pricer.price(CollectiveKind::AllReduce,
                                                 Bytes(static_cast<std::int64_t>(bytes)),
                                                 nodes.out * 4,
                                                 nodes.out);
      error.add(std::abs(price.cost.seconds * 1e6 / us - 1));
      CHECK(price.cost.relative_error >= 0.1);  // By how far the neighbours are away.
    }
    over_cases.add(error.sum / error.count);
  }
  CHECK(std::abs(over_cases.sum / over_cases.count - 0.15) < 0.01);
}

namespace {

/// Tables of these sweeps, [ranks].
std::map<int, CollectiveCost> tables_of(const Sweeps& sweeps,
                                        const std::map<int, std::string>& logs) {
  std::map<int, CollectiveCost> tables;
  for (const auto& [ranks, log] : logs) {
    CollectiveCost& table = tables[ranks];
    table.ranks = ranks;
    table.nodes = ranks / 4;
    for (const auto& [bytes, us] : sweeps.at(log)) {
      table.knots.emplace_back(bytes, us * 1e-6);
    }
  }
  return tables;
}

/// What share of the sizes from 1 KiB on lies in the 90 % interval, of every number of ranks from
/// `fewest` on, predicted from the two smallest tables, from three, and so on.
Mean covered_beyond(const std::map<int, CollectiveCost>& tables, int fewest = 0) {
  constexpr double kSd90 = 1.6448536269514722;
  Mean covered;
  for (auto target = std::next(tables.begin(), 2); target != tables.end(); ++target) {
    if (target->first < fewest) {
      continue;
    }
    Profile profile;
    for (auto known = tables.begin(); known != target; ++known) {
      profile.collectives.push_back(known->second);
      if (profile.collectives.size() < 2) {
        continue;
      }
      const CollectivePricer pricer =
          collective_pricer(profile, std::nullopt, {.max_rank_factor = 1000});
      for (const auto& [bytes, seconds] : target->second.knots) {
        if (bytes < 1024 || bytes > known->second.knots.back().first) {
          continue;
        }
        const Cost cost = pricer
                              .price(CollectiveKind::AllReduce,
                                     Bytes(static_cast<std::int64_t>(bytes)),
                                     target->first,
                                     target->second.nodes)
                              .cost;
        const double half = kSd90 * sd_of_mean_absolute(cost.shared_error) * cost.seconds;
        covered.add(std::abs(cost.seconds - seconds) <= half ? 1 : 0);
      }
    }
  }
  return covered;
}

}  // namespace

TEST_CASE("beyond the measured ranks 85 to 95 % of the times lie in their interval") {
  const auto path = test::data_file("nccl_logs/figures.csv");
  if (!path) {
    return;
  }
  const Sweeps sweeps = read_sweeps(*path);
  const std::map<int, std::string> chosen_on = {{8, "gh200_alps_ss11_002x4"},
                                                {32, "gh200_alps_ss11_008x4"},
                                                {128, "gh200_alps_ss11_032x4"},
                                                {256, "gh200_alps_ss11_064x4"},
                                                {1024, "gh200_alps_ss11_256x4"}};
  const std::map<int, std::string> held_out = {{8, "a100_polaris_002x4_setup5"},
                                               {32, "a100_polaris_008x4_setup3"},
                                               {2160, "a100_polaris_540x4_setup5"}};
  const auto alps = tables_of(sweeps, chosen_on);
  const auto polaris = tables_of(sweeps, held_out);
  constexpr int kMany = 512;
  const auto share = [](const char* name, Mean covered) {
    MESSAGE(fmt::format(
        "{}: {} times, {:.0f} % covered", name, covered.count, 100 * covered.sum / covered.count));
    return covered.sum / covered.count;
  };
  Mean many = covered_beyond(alps, kMany);
  const Mean more = covered_beyond(polaris, kMany);
  many.sum += more.sum;
  many.count += more.count;
  const double all = share("128 to 1024 ranks of Alps", covered_beyond(alps));
  CHECK(all >= 0.85);
  CHECK(all <= 0.95);
  CHECK(share("2160 ranks of Polaris", more) >= 0.85);
  const double of_many = share("512 ranks and more", many);
  CHECK(of_many >= 0.85);
  CHECK(of_many <= 0.95);
}
