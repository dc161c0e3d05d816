#include <fmt/core.h>

#include "costmodel/base/parse_units.h"
#include "sim/scenario/key.h"
#include "sim/scenario/tables.h"

namespace stepsim {
namespace {

constexpr double kMaxFactor = 1e6;
constexpr int kMaxChannels = 64;

/// Bytes per second; 0 for a key that is missing and not required.
double read_bandwidth(const TomlReader& table, const std::string& key, bool required) {
  if (!required && !table.has(key)) {
    return 0;
  }
  const double bandwidth = table.bandwidth(key);
  if (bandwidth <= 0) {
    table.fail(key, "no bandwidth; expected more than 0, as \"150 GB/s\"");
  }
  return bandwidth;
}

/// Seconds; 0 for a key that is missing and not required.
double read_latency(const TomlReader& table, const std::string& key, bool required) {
  if (!required && !table.has(key)) {
    return 0;
  }
  return to_seconds(table.duration(key));
}

SlowLink read_slow_link(const TomlReader& slow, const Topology& topology) {
  if (slow.has("rank") == slow.has("node")) {
    slow.fail("expected either rank or node, as in { rank = 1, factor = 2 }");
  }
  const std::string key = slow.has("rank") ? "rank" : "node";
  const auto index = static_cast<int>(slow.integer(key, 0, kMaxRanks));
  const int count = slow.has("rank") ? topology.placement.ranks() : topology.placement.nodes();
  if (index >= count) {
    slow.fail(
        key, fmt::format("{} {} is out of range: the {}s are 0 .. {}", key, index, key, count - 1));
  }
  SlowLink link;
  (slow.has("rank") ? link.rank : link.node) = index;
  link.factor = slow.number("factor");
  if (link.factor < 1 || link.factor > kMaxFactor) {
    slow.fail("factor",
              fmt::format("{} is no factor; expected 1 to {:.0f}, as 2 for half the bandwidth",
                          link.factor,
                          kMaxFactor));
  }
  return link;
}

void read_slow_links(const TomlReader& table, Topology& topology) {
  for (const auto& item : table.list("slow_links")) {
    const TomlReader slow(table.document(), item, "cluster.topology.slow_links");
    if (item.kind != TomlValue::Kind::Table) {
      slow.fail(
          fmt::format("expected a list of {{ rank = 1, factor = 2 }}, got {}", describe(item)));
    }
    topology.slow_links.push_back(read_slow_link(slow, topology));
  }
}

Topology read_topology_table(const TomlReader& table, const Scenario& scenario) {
  Topology topology;
  topology.placement = scenario.placement;
  topology.algorithm = parse_collective_algorithm(
      read_choice(table, "algorithm", "auto", collective_algorithm_names()));
  const bool uses_intra = scenario.placement.fullest() > 1;
  const bool uses_inter = scenario.placement.nodes() > 1;
  topology.intra = {read_latency(table, "intra_latency", uses_intra),
                    read_bandwidth(table, "intra_bandwidth", uses_intra)};
  topology.node_bytes_per_s = read_bandwidth(table, "node_bandwidth", false);
  topology.inter = {
      read_latency(table, "inter_latency", uses_inter),
      read_bandwidth(table, "inter_bandwidth", uses_inter && topology.node_bytes_per_s == 0)};
  if (topology.algorithm == CollectiveAlgorithm::Nccl) {
    topology.nccl_channels = static_cast<int>(table.integer("channels", 1, kMaxChannels));
    topology.gpu = parse_gpu_generation(
        read_choice(table, "gpu", std::string(name_of(topology.gpu)), gpu_generation_names()));
  } else {
    for (const char* key : {"channels", "gpu"}) {
      if (table.has(key)) {
        table.fail(key, "only for algorithm = \"nccl\"");
      }
    }
  }
  if (table.has("slow_links")) {
    read_slow_links(table, topology);
  }
  return topology;
}

/// The texts of a list, each through `parse`, which raises InputError.
template <typename Parse>
std::vector<double> read_list(const TomlReader& table, const std::string& key, Parse parse) {
  std::vector<double> values;
  for (const auto& item : table.list(key)) {
    if (item.kind != TomlValue::Kind::Text) {
      table.fail(key, fmt::format("expected a list of texts, got {} in it", describe(item)));
    }
    try {
      values.push_back(parse(item.text));
    } catch (const InputError& error) {
      table.fail(key, error);
    }
  }
  return values;
}

CollectiveCost read_all_reduce(const TomlReader& table, const Scenario& scenario, int nodes) {
  const std::vector<double> sizes = read_list(table, "sizes", [](const std::string& text) {
    return static_cast<double>(parse_bytes(text).value());
  });
  const std::vector<double> times = read_list(table, "times", [](const std::string& text) {
    return to_seconds(parse_scenario_duration(text));
  });
  if (sizes.size() < 2) {
    table.fail("sizes", fmt::format("{} sizes; expected at least 2", sizes.size()));
  }
  if (times.size() != sizes.size()) {
    table.fail("times", fmt::format("{} times for {} sizes", times.size(), sizes.size()));
  }
  CollectiveCost cost;
  cost.ranks = scenario.ranks;
  cost.nodes = nodes;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] <= (i == 0 ? 0 : sizes[i - 1])) {
      table.fail("sizes", "expected sizes of more than 0 bytes that ascend");
    }
    if (times[i] <= 0) {
      table.fail("times", "a time of 0; expected more");
    }
    cost.knots.emplace_back(sizes[i], times[i]);
  }
  constexpr double kStatedError = 0.05;
  cost.errors.bias = table.has("error") ? read_number(table, "error", fraction()) : kStatedError;
  return cost;
}

}  // namespace

std::vector<Key> topology_keys() {
  return {
      described("algorithm",
                "`\"nccl\"`: NCCL 2.28.9's own model chooses (all-reduce, all-gather, "
                "reduce-scatter; else rings). Closed forms: `\"auto\"` (the fastest of the next "
                "three), `\"flat_ring\"` (rings that "
                "use all adapters of a node), `\"tree\"`, `\"hierarchical\"` (rings inside the "
                "nodes and between them), `\"ring\"` (a single one, as gloo's), "
                "`\"recursive_doubling\"`, `\"rabenseifner\"`",
                "`\"auto\"`"),
      holding(Quantity::Time,
              described("intra_latency",
                        "of a rank inside its node, per message and direction: `\"2 us\"`",
                        "")),
      holding(Quantity::Bandwidth, described("intra_bandwidth", "the same: `\"300 GB/s\"`", "")),
      holding(Quantity::Time, described("inter_latency", "between nodes, per message", "")),
      holding(Quantity::Bandwidth,
              described("inter_bandwidth",
                        "between nodes, the share of one rank: `\"25 GB/s\"`, `\"200 Gbit/s\"`",
                        "`node_bandwidth` over the ranks of a node")),
      holding(Quantity::Bandwidth,
              described("node_bandwidth",
                        "all adapters of a node together",
                        "`inter_bandwidth` times the ranks of a node")),
      described("slow_links",
                "`[{ rank = 3, factor = 2 }, { node = 1, factor = 1.5 }]`: all links of rank 3 "
                "have half the bandwidth, the adapters of node 1 two thirds; the slowest link of a "
                "ring decides",
                "none"),
      described("channels",
                "with `\"nccl\"`: channels of a ring as `NCCL_DEBUG=INFO` prints them, at most 64",
                ""),
      described("gpu",
                "with `\"nccl\"`: `\"volta\"`, `\"ampere\"`, `\"hopper\"`, `\"blackwell\"`",
                "`\"hopper\"`"),
  };
}

void read_collectives(const TomlReader& root, Scenario& scenario) {
  const TomlReader cluster = required_table(root, "cluster");
  if (cluster.has("topology")) {
    scenario.topology = read_topology_table(cluster.table("topology"), scenario);
  }
  if (!cluster.has("all_reduce")) {
    return;
  }
  const TomlReader table = cluster.table("all_reduce");
  if (scenario.ranks == 1) {
    cluster.fail("all_reduce", "one rank has no all-reduce");
  }
  for (const char* key : {"ranks", "ranks_per_node", "placement"}) {
    const bool moved = cluster.has(key) && !cluster.value(key).override_key.empty();
    if (moved && cluster.value("all_reduce").override_key.empty()) {
      cluster.fail(key,
                   "the times in cluster.all_reduce are those of the ranks in the file; describe "
                   "the links in [cluster.topology] instead, or set cluster.all_reduce too");
    }
  }
  scenario.all_reduce_table = read_all_reduce(table, scenario, scenario.placement.nodes());
}

}  // namespace stepsim
