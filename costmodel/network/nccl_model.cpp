#include "costmodel/network/nccl_model.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "costmodel/base/row_named.h"
#include "costmodel/network/collective_cost.h"

namespace stepsim {
namespace {

constexpr std::array<std::string_view, 6> kAlgorithms = {
    "Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree"};
constexpr std::array<std::string_view, 3> kProtocols = {"LL", "LL128", "Simple"};
const std::array<std::string, 4> kGenerations = {"volta", "ampere", "hopper", "blackwell"};

using ByProtocol = std::array<double, 3>;
using ByAlgorithm = std::array<ByProtocol, 6>;
using ByNodes = std::array<double, 3>;  ///< Values for one node, two nodes, and more.
using ByGeneration = std::array<ByNodes, 4>;

// These are constants of NCCL 2.28.9, in microseconds and in GB/s per channel.
// clang-format off
constexpr ByAlgorithm kBaseLatency = {{
    {6.8, 14, 8.4}, {6.6, 14, 8.4}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}}};
constexpr ByAlgorithm kNvLinkLatency = {{
    {.6, 1.25, 4.0}, {.6, 1.9, 3.4}, {0, 0, 3.7}, {0, 0, 2.8}, {0, 0, 25}, {0, 0, 25}}};
constexpr ByAlgorithm kPciLatency = {{
    {1.0, 1.9, 4.0}, {1.0, 2.5, 5.7}, {0, 0, 3.7}, {0, 0, 2.8}, {0, 0, 0}, {0, 0, 0}}};
constexpr ByAlgorithm kNetLatency = {{
    {5.0, 8.5, 14}, {2.7, 4.0, 14}, {0, 0, 31}, {0, 0, 30}, {0, 0, 18}, {0, 0, 20.9}}};
constexpr ByGeneration kLlMax = {{
    {39, 39, 20.4}, {87.7, 22.5, 19}, {141, 45, 35}, {282, 90, 70}}};
constexpr ByGeneration kRingLl128PerChannel = {{
    {20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 36.7}, {73.4, 34.6, 73.4}}};
constexpr ByGeneration kTreeLl128PerChannel = {{
    {20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}}};
constexpr ByGeneration kTreePerChannel = {{
    {26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}}};
constexpr ByGeneration kNvlsTreePerChannel = {{
    {26.5, 18.5, 10}, {24, 23.6, 17.8}, {0, 57.7, 45.5}, {0, 96, 43.8}}};
constexpr std::array<double, 4> kNvlsEfficiency = {0, 0, .85, .74};
/// [protocol][log2(bytes / 64)]
constexpr std::array<std::array<double, 23>, 3> kTreeCorrection = {{
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9}}};
// clang-format on

template <typename Enum>
constexpr std::size_t index(Enum value) {
  return static_cast<std::size_t>(value);
}

double at(const ByAlgorithm& values, NcclAlgorithm algorithm, NcclProtocol protocol) {
  return values[index(algorithm)][index(protocol)];
}

double at(const ByGeneration& values, const NcclSystem& system) {
  return values[index(system.gpu)][static_cast<std::size_t>(std::min(system.nodes, 3) - 1)];
}

/// Returns LL's bandwidth limit. Rows of kLlMax are GPU generations on one node; on several nodes
/// the limit depends on the CPUs, and row 0 is for Intel, row 1 for all others.
double ll_max(const NcclSystem& system) {
  const std::size_t row =
      system.nodes == 1 ? index(system.gpu) : (system.cpu == NcclCpu::Intel ? 0U : 1U);
  return kLlMax[row][static_cast<std::size_t>(std::min(system.nodes, 3) - 1)];
}

int floor_log2(std::uint64_t value) {
  return static_cast<int>(std::bit_width(value)) - 1;
}

/// Returns the bandwidth of a channel in GB/s.
double channel_bandwidth(const NcclSystem& system, const NcclGraph& graph) {
  return system.nodes <= 2 ? graph.intra_gb_per_s : graph.inter_gb_per_s;
}

/// Returns algbw / busbw of algorithms that move 2(n-1)/n of the bytes, or (n-1)/n.
double ring_ratio(const NcclSystem& system, CollectiveKind kind) {
  return 1 / bus_factor(kind, system.ranks);
}

double ring_bandwidth(const NcclSystem& system, NcclProtocol protocol, CollectiveKind kind) {
  const double channels = system.ring.channels;
  double bus = channels * channel_bandwidth(system, system.ring);
  if (protocol == NcclProtocol::Ll) {
    bus = std::min(ll_max(system), .5 * bus);
  } else if (protocol == NcclProtocol::Ll128) {
    bus = std::min(.92 * bus, channels * at(kRingLl128PerChannel, system));
  }
  return bus * ring_ratio(system, kind);
}

double tree_bandwidth(const NcclSystem& system, NcclProtocol protocol) {
  constexpr double kLlShare = 1 / 3.8;
  const double channels = system.tree.channels;
  double bus = std::min(.92 * channels * channel_bandwidth(system, system.tree),
                        channels * at(kTreePerChannel, system));
  if (protocol == NcclProtocol::Ll) {
    bus = std::min(bus * kLlShare, ll_max(system));
  } else if (protocol == NcclProtocol::Ll128) {
    bus = std::min(bus * (system.nodes == 1 ? 7.0 / 9 : 120.0 / 128),
                   channels * at(kTreeLl128PerChannel, system));
  }
  return bus * (system.tree_pattern ? .85 : 1) * .5;
}

double nvls_bandwidth(const NcclSystem& system, NcclAlgorithm algorithm, NcclProtocol protocol) {
  const bool tree = algorithm == NcclAlgorithm::NvlsTree;
  if (!system.nvls || system.nvls->channels < 2 || protocol != NcclProtocol::Simple ||
      tree == (system.nodes == 1)) {
    return 0;
  }
  const double channels = system.nvls->channels;
  const double intra = system.nvls->intra_gb_per_s * kNvlsEfficiency[index(system.gpu)] *
                       (channels - 1) / channels * 2;
  const double inter = system.nvls->inter_gb_per_s * (tree && system.nodes == 2 ? 2 : 1);
  double bandwidth = std::min(intra, inter);
  if (tree) {
    bandwidth = std::min(bandwidth, at(kNvlsTreePerChannel, system));
  }
  return channels * bandwidth * ring_ratio(system, CollectiveKind::AllReduce);
}

double bandwidth(const NcclSystem& system,
                 NcclAlgorithm algorithm,
                 NcclProtocol protocol,
                 CollectiveKind kind) {
  if (algorithm != NcclAlgorithm::Ring && kind != CollectiveKind::AllReduce) {
    return 0;
  }
  switch (algorithm) {
    case NcclAlgorithm::Ring:
      return ring_bandwidth(system, protocol, kind);
    case NcclAlgorithm::Tree:
      return tree_bandwidth(system, protocol);
    case NcclAlgorithm::Nvls:
    case NcclAlgorithm::NvlsTree:
      return nvls_bandwidth(system, algorithm, protocol);
    case NcclAlgorithm::CollNetDirect:
    case NcclAlgorithm::CollNetChain:
      break;
  }
  return 0;
}

double latency(const NcclSystem& system,
               NcclAlgorithm algorithm,
               NcclProtocol protocol,
               CollectiveKind kind) {
  const bool simple = protocol == NcclProtocol::Simple;
  const int nodes = system.nodes;
  const int per_node = system.ranks / nodes;
  const double base = at(kBaseLatency, algorithm, protocol);
  const double intra = at(system.nvlink ? kNvLinkLatency : kPciLatency, algorithm, protocol);
  const double inter = at(kNetLatency, per_node == 1 ? NcclAlgorithm::Tree : algorithm, protocol) +
                       system.net_latency_us * (simple ? 2 : 1);
  const int levels = floor_log2(static_cast<std::uint64_t>(nodes));
  switch (algorithm) {
    case NcclAlgorithm::Ring: {
      const int crossing = ring_steps(kind, nodes);
      const double overhead =
          nodes == 1 ? 0 : (system.cpu == NcclCpu::Amd ? 2 : 1) * (simple ? 3 : 1);
      return base + (ring_steps(kind, system.ranks) - crossing) * std::max(intra, overhead) +
             crossing * inter;
    }
    case NcclAlgorithm::Tree:
      return base + 2 * ((per_node - 1) * intra + levels * inter);
    case NcclAlgorithm::CollNetDirect:
      return base + 2 * (std::min(1, per_node - 1) * intra + (per_node - 1) * .4) + inter;
    case NcclAlgorithm::CollNetChain:
      return base + 2 * (per_node - 1) * intra + inter;
    case NcclAlgorithm::Nvls:
      return intra + (nodes > 1 ? inter : 0);
    case NcclAlgorithm::NvlsTree:
      return base + intra + 2 * levels * inter;
  }
  return 0;
}

/// Returns the share of its bandwidth that a tree reaches at this size.
double tree_correction(NcclProtocol protocol, double bytes) {
  const auto blocks = static_cast<std::uint64_t>(bytes) >> 6;
  const auto& factors = kTreeCorrection[index(protocol)];
  const int log_size = blocks == 0 ? -1 : floor_log2(blocks);
  const bool covered = log_size >= 0 && log_size < static_cast<int>(factors.size());
  return covered ? factors[static_cast<std::size_t>(log_size)] : 1;
}

}  // namespace

std::string_view name_of(NcclAlgorithm algorithm) {
  return kAlgorithms[index(algorithm)];
}

std::string_view name_of(NcclProtocol protocol) {
  return kProtocols[index(protocol)];
}

std::string_view name_of(GpuGeneration generation) {
  return kGenerations[index(generation)];
}

GpuGeneration parse_gpu_generation(std::string_view name) {
  return enum_named<GpuGeneration>(kGenerations, "GPU generation", name);
}

std::span<const std::string> gpu_generation_names() {
  return kGenerations;
}

bool has_nccl_model(CollectiveKind kind) {
  return kind == CollectiveKind::AllReduce || kind == CollectiveKind::AllGather ||
         kind == CollectiveKind::ReduceScatter;
}

NcclTunings nccl_tunings(const NcclSystem& system, CollectiveKind kind) {
  NcclTunings table;
  for (std::size_t a = 0; a < table.size(); ++a) {
    for (std::size_t p = 0; p < table[a].size(); ++p) {
      const auto algorithm = static_cast<NcclAlgorithm>(a);
      const auto protocol = static_cast<NcclProtocol>(p);
      table[a][p] = {latency(system, algorithm, protocol, kind),
                     bandwidth(system, algorithm, protocol, kind)};
    }
  }
  return table;
}

std::optional<double> nccl_time_us(const NcclSystem& system,
                                   const NcclTunings& table,
                                   NcclAlgorithm algorithm,
                                   NcclProtocol protocol,
                                   double bytes,
                                   CollectiveKind kind) {
  NcclTuning entry = table[index(algorithm)][index(protocol)];
  if (entry.gb_per_s == 0) {
    return std::nullopt;
  }
  if (algorithm == NcclAlgorithm::Tree) {
    entry.gb_per_s *= tree_correction(protocol, bytes);
  }
  const double per_slice = bytes / (static_cast<double>(system.ring.channels) * system.ranks);
  if (algorithm == NcclAlgorithm::Ring && protocol == NcclProtocol::Simple && system.nodes > 1 &&
      kind == CollectiveKind::AllReduce && per_slice >= 64) {
    entry.latency_us *= system.gpu == GpuGeneration::Volta ? 1.9 : 1.4;
  }
  return entry.latency_us + bytes / (1000 * entry.gb_per_s);
}

NcclChoice nccl_choice(const NcclSystem& system, double bytes, CollectiveKind kind) {
  NcclChoice best;
  if (system.ranks == 1) {
    return best;
  }
  const NcclTunings table = nccl_tunings(system, kind);
  bool found = false;
  for (std::size_t a = 0; a < table.size(); ++a) {
    for (std::size_t p = 0; p < table[a].size(); ++p) {
      const auto algorithm = static_cast<NcclAlgorithm>(a);
      const auto protocol = static_cast<NcclProtocol>(p);
      const auto us = nccl_time_us(system, table, algorithm, protocol, bytes, kind);
      if (us && (!found || *us < best.us)) {
        best = {algorithm, protocol, *us};
        found = true;
      }
    }
  }
  return best;
}

NcclLaunch nccl_launch(const NcclSystem& system,
                       NcclAlgorithm algorithm,
                       NcclProtocol protocol,
                       double bytes,
                       int max_ctas) {
  constexpr double kWideRing = 12;  // Above these GB/s over all channels Simple has 512 threads.
  const bool ring = algorithm == NcclAlgorithm::Ring;
  const NcclGraph& graph = ring ? system.ring : system.tree;
  const bool wide = system.ring.channels * system.ring.intra_gb_per_s > kWideRing;
  NcclLaunch launch;
  launch.channels = std::clamp(graph.channels, 1, max_ctas);
  double bytes_per_thread = 8;
  if (protocol == NcclProtocol::Simple) {
    launch.threads = wide ? 512 : 256;
    bytes_per_thread = 64;
  } else {
    launch.threads = protocol == NcclProtocol::Ll ? 512 : 640;
    bytes_per_thread *= ring && protocol == NcclProtocol::Ll ? system.ranks : 1;
  }
  const auto starved = [&] { return bytes < launch.channels * launch.threads * bytes_per_thread; };
  while (launch.channels > 1 && starved()) {
    --launch.channels;
  }
  while (launch.threads % 128 == 0 && starved()) {
    launch.threads /= 2;
  }
  return launch;
}

}  // namespace stepsim
