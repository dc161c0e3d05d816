#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "sim/scenario/scenario.h"
#include "tests/approx.h"
#include "tests/sim/scenario/scenario_text.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

const std::string kTopology = R"(
[cluster.topology]
algorithm = "hierarchical"
intra_latency = "2 us"
intra_bandwidth = "300 GB/s"
inter_latency = "10 us"
inter_bandwidth = "200 Gbit/s"
slow_links = [{ rank = 3, factor = 2 }, { node = 1, factor = 1.5 }]
)";
const std::string kTable =
    R"(all_reduce = { sizes = ["1 MiB", "4 MiB"], times = ["0.118 ms", "0.1 s"] })";

/// The scenario with lines added to [cluster], which has 4 ranks.
std::string with(const std::string& lines) {
  return replaced(kScenarioText, "\n[model]", lines + "\n[model]");
}

Scenario parsed_topology(const std::string& lines, const std::vector<std::string>& overrides = {}) {
  return parse_scenario(with(lines), "s.toml", overrides);
}

/// The first line of the error, without its place.
std::string topology_error(const std::string& lines,
                           const std::vector<std::string>& overrides = {}) {
  try {
    (void)parsed_topology(lines, overrides);
  } catch (const InputError& error) {
    const std::string text = error.what();
    const auto begin = text.find("error: ") + 7;
    return text.substr(begin, text.find('\n') - begin);
  }
  return "no error";
}

std::string error_with(const std::string& from, const std::string& to) {
  return topology_error("ranks_per_node = 2" + replaced(kTopology, from, to));
}

}  // namespace

TEST_CASE("a scenario without links and times has neither") {
  const Scenario scenario = parsed_topology("");
  CHECK_FALSE(scenario.topology);
  CHECK_FALSE(scenario.all_reduce_table);
}

TEST_CASE("the links of a cluster arrive in bytes and seconds, with the scenario's ranks") {
  const Scenario scenario = parsed_topology("ranks_per_node = 2" + kTopology);
  REQUIRE(scenario.topology);
  const Topology& topology = *scenario.topology;
  CHECK(topology.placement == Placement({2, 2}));
  CHECK(topology.algorithm == CollectiveAlgorithm::Hierarchical);
  CHECK(topology.intra.latency_s == Approx(2e-6));
  CHECK(topology.intra.bytes_per_s == 300e9);
  CHECK(topology.inter.latency_s == Approx(10e-6));
  CHECK(topology.inter.bytes_per_s == 25e9);
  CHECK(topology.node_bytes_per_s == 0);
  CHECK(topology.slow_links == std::vector<SlowLink>{{3, std::nullopt, 2}, {std::nullopt, 1, 1.5}});
}

TEST_CASE("only links in use are required: none between nodes on one, none inside of one rank") {
  const std::string one_node =
      "\n[cluster.topology]\nintra_latency = \"2 us\"\n"
      "intra_bandwidth = \"300 GB/s\"\n";
  CHECK(parsed_topology(one_node).topology->algorithm == CollectiveAlgorithm::Auto);
  CHECK(topology_error("ranks_per_node = 2" + one_node) ==
        "cluster.topology.inter_latency: missing");
  const std::string network =
      "\n[cluster.topology]\ninter_latency = \"10 us\"\nnode_bandwidth = \"50 GB/s\"\n";
  CHECK(parsed_topology("ranks_per_node = 1" + network).topology->node_bytes_per_s == 50e9);
  CHECK(topology_error(network) == "cluster.topology.intra_latency: missing");
}

TEST_CASE("wrong links are refused by key") {
  CHECK(error_with("\"hierarchical\"", "\"rings\"").find("cluster.topology.algorithm: unknown") ==
        0);
  CHECK(error_with("300 GB/s", "300 GB") ==
        "cluster.topology.intra_bandwidth: unknown unit 'GB'; use a unit such as "
        "MB/s, GB/s, GiB/s or Gbit/s");
  CHECK(error_with("300 GB/s", "0 GB/s") ==
        "cluster.topology.intra_bandwidth: no bandwidth; expected more than 0, as \"150 GB/s\"");
  CHECK(error_with("300 GB/s", "999 B/s") ==
        "cluster.topology.intra_bandwidth: 999 B/s is too slow; expected at least 1 kB/s");
  CHECK(error_with("\"2 us\"", "2") ==
        "cluster.topology.intra_latency: expected a string in quotes, got an integer");
  CHECK(error_with("rank = 3", "rank = 4") ==
        "cluster.topology.slow_links.rank: rank 4 is out of range: the ranks are 0 .. 3");
  CHECK(error_with("node = 1", "node = 2") ==
        "cluster.topology.slow_links.node: node 2 is out of range: the nodes are 0 .. 1");
  CHECK(
      error_with("rank = 3", "rank = 3, node = 1") ==
      "cluster.topology.slow_links: expected either rank or node, as in { rank = 1, factor = 2 }");
  CHECK(error_with("factor = 2", "factor = 0.5") ==
        "cluster.topology.slow_links.factor: 0.5 is no factor; expected 1 to 1000000, as 2 for "
        "half the bandwidth");
  CHECK(error_with("intra_latency", "latency").find("unknown key 'latency'") != std::string::npos);
}

TEST_CASE("NCCL's model takes its channels and the generation of the GPUs") {
  const auto lines = [](const std::string& keys) {
    return "ranks_per_node = 2" + replaced(kTopology, "\"hierarchical\"", "\"nccl\"" + keys);
  };
  const Scenario scenario = parsed_topology(lines("\nchannels = 16\ngpu = \"ampere\""));
  CHECK(scenario.topology->algorithm == CollectiveAlgorithm::Nccl);
  CHECK(scenario.topology->nccl_channels == 16);
  CHECK(scenario.topology->gpu == GpuGeneration::Ampere);
  CHECK(parsed_topology(lines("\nchannels = 16")).topology->gpu == GpuGeneration::Hopper);
  CHECK(topology_error(lines("")) == "cluster.topology.channels: missing");
  CHECK(topology_error(lines("\nchannels = 65")) ==
        "cluster.topology.channels: 65 is too large; expected at most 64");
  CHECK(topology_error(lines("\nchannels = 8\ngpu = \"h100\""))
            .find("cluster.topology.gpu: unknown") == 0);
  CHECK(error_with("algorithm", "channels = 8\nalgorithm") ==
        "cluster.topology.channels: only for algorithm = \"nccl\"");
}

TEST_CASE("measured times in the scenario become a table for its ranks and nodes") {
  const Scenario scenario = parsed_topology("ranks_per_node = 2\n" + kTable);
  REQUIRE(scenario.all_reduce_table);
  const CollectiveCost& table = *scenario.all_reduce_table;
  CHECK(table.kind == "all_reduce");
  CHECK(table.ranks == 4);
  CHECK(table.nodes == 2);
  REQUIRE(table.knots.size() == 2);
  CHECK(table.knots[0].first == 1048576);
  CHECK(table.knots[0].second == Approx(118e-6));
  CHECK(table.knots[1].first == 4194304);
  CHECK(table.knots[1].second == Approx(0.1));
}

TEST_CASE("wrong times are refused by key") {
  const auto message = [](const std::string& from, const std::string& to) {
    return topology_error(replaced(kTable, from, to));
  };
  CHECK(message("\"4 MiB\"", "\"1 MiB\"") ==
        "cluster.all_reduce.sizes: expected sizes of more than 0 bytes that ascend");
  CHECK(message("\"1 MiB\"", "\"0 B\"") ==
        "cluster.all_reduce.sizes: expected sizes of more than 0 bytes that ascend");
  CHECK(message("\"1 MiB\", ", "") == "cluster.all_reduce.sizes: 1 sizes; expected at least 2");
  CHECK(message("\"0.118 ms\", ", "") == "cluster.all_reduce.times: 1 times for 2 sizes");
  CHECK(message("0.118 ms", "0 ms") == "cluster.all_reduce.times: a time of 0; expected more");
  CHECK(message("\"0.118 ms\"", "0.118") ==
        "cluster.all_reduce.times: expected a list of texts, got a real number in it");
  CHECK(message("MiB\"]", "MB\"]") ==
        "cluster.all_reduce.sizes: unknown unit 'MB'; use KiB, MiB, GiB or bytes without unit");
}

TEST_CASE("times measured with the ranks of the file are not used for others") {
  CHECK(topology_error(kTable, {"cluster.ranks=8"}) ==
        "the times in cluster.all_reduce are those of the ranks in the file; describe the links in "
        "[cluster.topology] instead, or set cluster.all_reduce too");
  const std::string other =
      R"(cluster.all_reduce={ sizes = ["1 MiB", "4 MiB"], times = ["1 ms", "2 ms"] })";
  CHECK(parsed_topology(kTable, {"cluster.ranks=8", other}).all_reduce_table->ranks == 8);
  CHECK(parsed_topology("ranks_per_node = 2" + kTopology, {"cluster.ranks=8"})
            .topology->placement.ranks() == 8);
}
