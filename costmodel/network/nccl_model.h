#pragma once

#include <array>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "costmodel/network/collective_cost.h"

namespace stepsim {

// This is NCCL's own tuning model, by which the library chooses an algorithm and a protocol, for
// all-reduces, all-gathers and reduce-scatters. Its times are lat + bytes / bw with the constants
// of NCCL 2.28.9 (tag v2.28.9-1, src/graph/tuning.cc, src/enqueue.cc); other versions have other
// constants.
//
// Compared with nccl-tests, its choice of algorithm is good and its times are rough: they are 8 to
// 14 % off on 8 x H100 with one process per GPU, up to 56 % too fast for small messages on 4 x H100
// in one process, and 8 to 53 % too fast on several nodes. All-gathers and reduce-scatters know the
// ring alone here: NVLink SHARP is left out, and so is PAT, which NCCL may choose for small buffers
// where every node has one rank.

enum class NcclAlgorithm { Tree, Ring, CollNetDirect, CollNetChain, Nvls, NvlsTree };
enum class NcclProtocol { Ll, Ll128, Simple };
/// The compute capabilities are, in this order, below 8.0, 8.x, 9.x, and 10.0 and up.
enum class GpuGeneration { Volta, Ampere, Hopper, Blackwell };
enum class NcclCpu { Intel, Amd, Mixed };

[[nodiscard]] std::string_view name_of(NcclAlgorithm algorithm);   ///< "Ring", "NVLSTree", …
[[nodiscard]] std::string_view name_of(NcclProtocol protocol);     ///< "LL", "LL128", "Simple"
[[nodiscard]] std::string_view name_of(GpuGeneration generation);  ///< "hopper", …
/// Raises InputError for an unknown name.
[[nodiscard]] GpuGeneration parse_gpu_generation(std::string_view name);
[[nodiscard]] std::span<const std::string> gpu_generation_names();

/// The graph that NCCL's search found, as NCCL_DEBUG_SUBSYS=GRAPH prints it. Bandwidths are GB/s
/// (1e9) per channel.
struct NcclGraph {
  int channels = 0;
  double intra_gb_per_s = 0;
  double inter_gb_per_s = 0;
};

/// The properties of a system that NCCL's model depends on.
struct NcclSystem {
  int ranks = 1;
  int nodes = 1;  ///< Each node has ranks / nodes ranks.
  GpuGeneration gpu = GpuGeneration::Hopper;
  NcclCpu cpu = NcclCpu::Intel;
  bool nvlink = true;  ///< True: NVLink connects the GPUs of a node; false: PCI does.
  NcclGraph ring;
  NcclGraph tree;
  bool tree_pattern = false;      ///< True: the tree graph has pattern TREE, not balanced or split.
  std::optional<NcclGraph> nvls;  ///< The graph of NVLink SHARP; absent: switched off.
  double net_latency_us = 0;      ///< Latency of the network plugin; 0 for the built-in ones.
};

/// One entry of the table that NCCL prints: time = latency_us + bytes / (1000 gb_per_s) in us.
struct NcclTuning {
  double latency_us = 0;
  double gb_per_s = 0;  ///< 0: this entry is not used.
};

/// [algorithm][protocol], in the order of the enumerations.
using NcclTunings = std::array<std::array<NcclTuning, 3>, 6>;

/// Tells whether the model has entries for this kind: all-reduce, all-gather, reduce-scatter.
[[nodiscard]] bool has_nccl_model(CollectiveKind kind);

/// Returns the entries for a collective over at least two ranks. CollNet has a latency but no
/// bandwidth, since the model has no switch that reduces; the same holds for NVLSTree on one node
/// and NVLS on several. An all-gather or reduce-scatter passes over the ranks once where an
/// all-reduce does twice: half of the steps, and only rings have a bandwidth.
[[nodiscard]] NcclTunings nccl_tunings(const NcclSystem& system,
                                       CollectiveKind kind = CollectiveKind::AllReduce);

/// Returns the microseconds of a single call, with NCCL's corrections for trees by size and for
/// all-reduce rings over several nodes; nothing when the entry is not used. `bytes` is the whole
/// buffer, see CollectiveKind.
[[nodiscard]] std::optional<double> nccl_time_us(const NcclSystem& system,
                                                 const NcclTunings& table,
                                                 NcclAlgorithm algorithm,
                                                 NcclProtocol protocol,
                                                 double bytes,
                                                 CollectiveKind kind = CollectiveKind::AllReduce);

struct NcclChoice {
  NcclAlgorithm algorithm = NcclAlgorithm::Ring;
  NcclProtocol protocol = NcclProtocol::Simple;
  double us = 0;
};

/// Returns the entry with the smallest time, the first one at a tie. One rank gets Ring, Simple and
/// 0 us.
[[nodiscard]] NcclChoice nccl_choice(const NcclSystem& system,
                                     double bytes,
                                     CollectiveKind kind = CollectiveKind::AllReduce);

/// The size of a collective's kernel launch.
struct NcclLaunch {
  int channels = 1;  ///< Thread blocks; there is one per channel.
  int threads = 0;   ///< Threads of each block.

  bool operator==(const NcclLaunch&) const = default;
};

/// Returns the launch of a Ring or Tree of `bytes`. As in NCCL, channels and then threads are
/// reduced while each thread would have fewer than 64 bytes (Simple; 32 KiB a channel with 512
/// threads), 8 bytes (LL, LL128), or 8 bytes for each rank (LL in a Ring). There are never more
/// channels than `max_ctas` (NCCL_MAX_CTAS).
[[nodiscard]] NcclLaunch nccl_launch(const NcclSystem& system,
                                     NcclAlgorithm algorithm,
                                     NcclProtocol protocol,
                                     double bytes,
                                     int max_ctas = std::numeric_limits<int>::max());

}  // namespace stepsim
