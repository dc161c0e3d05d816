#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "costmodel/network/collective_cost.h"

namespace stepsim {

/// What stands between a gradient bucket and the network: torch's DDP communication hooks, and
/// top-k with indices, which torch does not have.
enum class CommunicationHook {
  None,
  AllReduce,           ///< Divides first, then as None.
  Fp16,                ///< All-reduce in fp16.
  Bf16,                ///< All-reduce in bf16.
  PowerSgd,            ///< Low-rank factors of the matrices in the bucket.
  BatchedPowerSgd,     ///< Low-rank factors of the whole bucket, as one square.
  TopK,                ///< The largest elements, with 4-byte indices.
  QuantizePerTensor,   ///< One byte an element, one scale a bucket.
  QuantizePerChannel,  ///< One byte an element, one scale per 512.
  PostLocalSgd,        ///< From a step on inside the subgroup only.
  Noop                 ///< Nothing.
};
[[nodiscard]] std::string_view name_of(CommunicationHook hook);  ///< "none", "fp16", "power_sgd", …
/// Raises InputError for an unknown name, with the nearest known one.
[[nodiscard]] CommunicationHook parse_communication_hook(std::string_view name);

/// Settings of the hooks; the defaults are torch's.
struct HookOptions {
  int rank = 1;                         ///< PowerSGD: rank of the factors.
  std::int64_t start_iteration = 1000;  ///< PowerSGD, post-local SGD: plain all-reduce before it.
  double min_compression_rate = 2;      ///< PowerSGD: smaller gains stay uncompressed.
  double topk_fraction = 0.01;          ///< Top-k: share of a bucket's elements that is sent.
  int subgroup_ranks = 0;               ///< Post-local SGD: ranks that still reduce; 0: none do.
  std::int64_t period = 4;  ///< Post-local SGD: steps between averages of all parameters.
};

/// One collective of a bucket; a later one starts after the one before it has ended.
struct HookCollective {
  CollectiveKind kind = CollectiveKind::AllReduce;
  double bytes = 0;  ///< Of the whole buffer, as in collective_cost.h. May be 0: it is issued all
                     ///< the same.
  int ranks = 1;     ///< That take part.

  bool operator==(const HookCollective&) const = default;
};

/// The collectives of one bucket, in order. `shapes` are those of its parameters, `element_size`
/// the bytes of an element of the bucket, `iteration` counts from 0.
///
/// PowerSGD views a tensor as n x m (first dimension, rest), r = min(n, m, rank), and compresses
/// it where (n + m) r min_compression_rate < n m: one all-reduce of all that is left uncompressed,
/// one of the factors n r, one of the factors m r. The batched one reduces two factors of
/// ceil(sqrt(elements)) x rank. Quantised: an all-gather of a scale and a zero point (4 bytes each)
/// per rank, one of the bytes; per channel the elements are filled up to the next multiple of 512,
/// by a whole channel where there is nothing to fill. Top-k: ceil(fraction x elements) values and
/// as many indices, all-gathered, since ranks choose different elements.
/// Source: torch/distributed/algorithms/ddp_comm_hooks.
///
/// Raises:
///     InputError: an option outside its range (rank, rates, fraction in (0, 1]).
[[nodiscard]] std::vector<HookCollective> hook_collectives(
    CommunicationHook hook,
    const HookOptions& options,
    std::span<const std::vector<std::int64_t>> shapes,
    std::int64_t element_size,
    int ranks,
    std::int64_t iteration);

/// Bytes that one rank sends (and receives) for them in a ring.
[[nodiscard]] double bytes_on_wire_per_rank(std::span<const HookCollective> collectives);

/// True for the iterations after whose optimizer post-local SGD all-reduces every parameter over
/// all ranks: each period-th one, counted from start_iteration.
[[nodiscard]] bool averages_parameters(CommunicationHook hook,
                                       const HookOptions& options,
                                       std::int64_t iteration);

}  // namespace stepsim
