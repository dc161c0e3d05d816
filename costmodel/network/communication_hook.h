#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "costmodel/model/transformer.h"
#include "costmodel/network/collective_cost.h"

namespace stepsim {

/// What stands between a gradient bucket and the network: torch's DDP communication hooks, and
/// top-k with indices, which torch does not have. communication_hooks() describes each.
enum class CommunicationHook {
  None,
  AllReduce,
  Fp16,
  Bf16,
  PowerSgd,
  BatchedPowerSgd,
  TopK,
  QuantizePerTensor,
  QuantizePerChannel,
  PostLocalSgd,
  Noop
};

/// Settings of the hooks; the defaults are torch's. The fields are named as the keys of
/// [ddp.communication_hook].
struct HookOptions {
  int rank = 1;                         ///< PowerSGD: rank of the factors.
  std::int64_t start_iteration = 1000;  ///< Before it the hook is a plain all-reduce.
  double min_compression_rate = 2;      ///< PowerSGD: smaller gains stay uncompressed.
  double topk_fraction = 0.01;          ///< Top-k: share of a bucket's elements that is sent.
  int subgroup_ranks = 0;               ///< Post-local SGD: ranks that still reduce; 0: none do.
  std::int64_t period = 4;  ///< Post-local SGD: steps between averages of all parameters.
};

/// One collective of a bucket; a later one starts after the one before it has ended.
struct HookCollective {
  CollectiveKind kind = CollectiveKind::AllReduce;
  /// Size of the whole buffer, as in collective_cost.h. A collective of 0 bytes is issued, too.
  double bytes = 0;
  int ranks = 1;  ///< The number of ranks that take part.

  bool operator==(const HookCollective&) const = default;
};

/// A bucket as its hook sees it.
struct HookBucket {
  std::span<const std::vector<std::int64_t>> shapes;  ///< Shapes of its parameters.
  std::int64_t elements = 0;
  double element_size = 0;  ///< Bytes.
  int ranks = 1;

  [[nodiscard]] double bytes() const { return static_cast<double>(elements) * element_size; }
};

/// The copies that a hook makes of a bucket, and the order in which it sends.
enum class HookSchedule {
  Nothing,    ///< It sends nothing.
  Divided,    ///< It divides the bucket, then sends one collective after another.
  Cast,       ///< It divides and casts the bucket, sends it, and casts it back.
  LowRank,    ///< It sends two factors, the second after the first has arrived; PowerSGD.
  Selected,   ///< It sends the elements it selects, and adds up what all ranks selected.
  Quantized,  ///< It sends scales, then the quantized bucket, and adds up what has arrived.
};

/// One communication hook: all that differs from one hook to the next.
struct HookInfo {
  CommunicationHook hook = CommunicationHook::None;
  std::string_view name;  ///< The name in scenarios, such as "power_sgd".
  HookSchedule schedule = HookSchedule::Divided;
  /// The keys of [ddp.communication_hook] that it takes, beside `kind`. A hook that takes
  /// `start_iteration` is a plain all-reduce before it. One that takes `subgroup_ranks` reduces
  /// inside groups of so many ranks, one that takes `period` averages all parameters that often.
  std::vector<std::string> options;
  std::optional<Dtype> wire_dtype;  ///< What it sends, where that differs from the gradients.
  bool reads_shapes = false;        ///< Its volume depends on the shapes of the parameters.
  std::vector<HookCollective> (*collectives)(const HookBucket& bucket, const HookOptions& options);
  std::string_view help;  ///< What becomes of a bucket, for the documentation.
};

/// All hooks, in the order of the enumeration.
[[nodiscard]] const std::vector<HookInfo>& communication_hooks();
[[nodiscard]] const HookInfo& hook_info(CommunicationHook hook);
[[nodiscard]] bool takes_option(CommunicationHook hook, std::string_view key);
[[nodiscard]] std::string_view name_of(CommunicationHook hook);  ///< "none", "fp16", "power_sgd", …
/// Raises InputError for an unknown name, with the nearest known one.
[[nodiscard]] CommunicationHook parse_communication_hook(std::string_view name);

/// The schedule that the hook follows in this iteration, counted from 0.
[[nodiscard]] HookSchedule hook_schedule(CommunicationHook hook,
                                         const HookOptions& options,
                                         std::int64_t iteration);

/// The collectives of one bucket, in order. `shapes` are those of its parameters, `element_size`
/// the bytes of an element of the bucket; `iteration` counts from 0.
///
/// PowerSGD views a tensor as n x m (first dimension, rest), r = min(n, m, rank), and compresses
/// it where (n + m) r min_compression_rate < n m: one all-reduce of all that is left uncompressed,
/// one of the factors n r, one of the factors m r. Batched PowerSGD reduces two factors of
/// ceil(sqrt(elements)) x rank. The quantizing hooks gather a scale and a zero point (4 bytes each)
/// of every rank, then the bytes; per channel the elements are filled up to the next multiple of
/// 512, by a whole channel where there is nothing to fill. Top-k gathers ceil(fraction x elements)
/// values and as many indices, since ranks choose different elements.
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

/// True for the iterations after whose optimizer post-local SGD all-reduces every parameter over
/// all ranks: each period-th one, counted from start_iteration.
[[nodiscard]] bool averages_parameters(CommunicationHook hook,
                                       const HookOptions& options,
                                       std::int64_t iteration);

}  // namespace stepsim
