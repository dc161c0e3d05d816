#pragma once

#include <array>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace stepsim {

// NCCL's own tuning model for all-reduce: what the library believes when it chooses an algorithm
// and a protocol. Its times are lat + bytes / bw with constants of NCCL 2.28.9 (tag v2.28.9-1,
// src/graph/tuning.cc, src/enqueue.cc); other versions have other constants.
//
// Against nccl-tests its choice of algorithm is good and its times are rough: on 8 x H100 with one
// process per GPU 8 .. 14 % off, on 4 x H100 in one process up to 56 % too fast for small messages,
// on several nodes 8 .. 53 % too fast.

enum class NcclAlgorithm { Tree, Ring, CollNetDirect, CollNetChain, Nvls, NvlsTree };
enum class NcclProtocol { Ll, Ll128, Simple };
/// Compute capability below 8.0, 8.x, 9.x, 10.0 and up.
enum class GpuGeneration { Volta, Ampere, Hopper, Blackwell };
enum class NcclCpu { Intel, Amd, Mixed };

[[nodiscard]] std::string_view name_of(NcclAlgorithm algorithm);   ///< "Ring", "NVLSTree", …
[[nodiscard]] std::string_view name_of(NcclProtocol protocol);     ///< "LL", "LL128", "Simple"
[[nodiscard]] std::string_view name_of(GpuGeneration generation);  ///< "hopper", …
/// Raises InputError for an unknown name.
[[nodiscard]] GpuGeneration parse_gpu_generation(std::string_view name);
[[nodiscard]] std::span<const std::string> gpu_generation_names();

/// What NCCL's search found, as NCCL_DEBUG_SUBSYS=GRAPH prints it. Bandwidths in GB/s (1e9) for
/// each channel.
struct NcclGraph {
  int channels = 0;
  double intra_gb_per_s = 0;
  double inter_gb_per_s = 0;
};

struct NcclSystem {
  int ranks = 1;
  int nodes = 1;  ///< Each with ranks / nodes ranks.
  GpuGeneration gpu = GpuGeneration::Hopper;
  NcclCpu cpu = NcclCpu::Intel;
  bool nvlink = true;  ///< Inside the nodes; else PCI.
  NcclGraph ring;
  NcclGraph tree;
  bool tree_pattern = false;      ///< The tree graph is of pattern TREE (else balanced or split).
  std::optional<NcclGraph> nvls;  ///< NVLink SHARP; nothing: switched off.
  double net_latency_us = 0;      ///< Of the network plugin; 0 for the built-in ones.
};

/// One entry of the table that NCCL prints: time = latency_us + bytes / (1000 gb_per_s) in us.
struct NcclTuning {
  double latency_us = 0;
  double gb_per_s = 0;  ///< 0: not used.
};

/// [algorithm][protocol], in the order of the enumerations.
using NcclTable = std::array<std::array<NcclTuning, 3>, 6>;

/// The entries for all-reduce over at least two ranks. CollNet has its latency but no bandwidth, as
/// without a switch that reduces; so have NVLSTree on one node and NVLS on several.
[[nodiscard]] NcclTable nccl_all_reduce_table(const NcclSystem& system);

/// Microseconds of a single call, with the corrections for trees by size and for rings over several
/// nodes; nothing when the entry is not used.
[[nodiscard]] std::optional<double> nccl_time_us(const NcclSystem& system,
                                                 const NcclTable& table,
                                                 NcclAlgorithm algorithm,
                                                 NcclProtocol protocol,
                                                 double bytes);

struct NcclChoice {
  NcclAlgorithm algorithm = NcclAlgorithm::Ring;
  NcclProtocol protocol = NcclProtocol::Simple;
  double us = 0;
};

/// The entry with the smallest time, the first at a tie; Ring, Simple and 0 us for one rank.
[[nodiscard]] NcclChoice nccl_all_reduce(const NcclSystem& system, double bytes);

/// Blocks (one per channel) and threads of each that a collective is launched with.
struct NcclLaunch {
  int channels = 1;
  int threads = 0;

  bool operator==(const NcclLaunch&) const = default;
};

/// Launch of a Ring or Tree of `bytes`: channels, then threads, are lowered while each thread would
/// have less than 64 bytes (Simple: 32 KiB a channel with 512 threads) or 8 (LL, LL128; 8 for each
/// rank with Ring and LL). Never more channels than `max_ctas` (NCCL_MAX_CTAS).
[[nodiscard]] NcclLaunch nccl_launch(const NcclSystem& system,
                                     NcclAlgorithm algorithm,
                                     NcclProtocol protocol,
                                     double bytes,
                                     int max_ctas = std::numeric_limits<int>::max());

}  // namespace stepsim
