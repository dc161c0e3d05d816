#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "costmodel/base/units.h"
#include "costmodel/compute/cost_model.h"
#include "costmodel/network/collective_cost.h"
#include "costmodel/network/collective_table.h"
#include "costmodel/network/topology.h"

namespace stepsim {

/// What the price of a collective is made from.
enum class CollectiveSource {
  OneRank,            ///< Nothing: one rank sends nothing.
  MeasuredTable,      ///< A table of exactly these ranks and nodes.
  InterpolatedRanks,  ///< Tables of fewer and of more ranks.
  ExtrapolatedRanks,  ///< Tables of fewer ranks.
  Analytic,           ///< A closed form over the topology's links.
  NcclModel           ///< NCCL's own tuning model.
};

/// A price and where it comes from; the text is for reports: "measured table, 2 ranks",
/// "interpolated between 4 and 8 ranks", "analytic: two-level ring, 2 nodes x 8". A price made from
/// that of an all-reduce has the all-reduce's source, and its text says so.
struct CollectivePrice {
  Cost cost;
  std::string text;
  CollectiveSource source = CollectiveSource::OneRank;
};

/// How far a CollectivePricer goes beyond what was measured.
struct PricerLimits {
  double max_size_factor = 4;  ///< Times the largest measured size.
  double max_rank_factor = 2;  ///< Times the largest measured number of ranks.
};

/// Least error of a collective that is priced from an all-reduce. Not measured: an assumption.
inline constexpr double kUnmeasuredKindError = 0.30;

/// Prices collectives among any ranks from what is known, the best source first:
///
/// 1. a measured table of this kind for exactly these ranks and nodes;
/// 2. at least two measured tables of this kind for other numbers of ranks (on one node, or with
///    the same number of ranks per node on several): between two of them linear in log2(ranks);
///    beyond the largest on from there with the slope over log2(ranks) of all;
/// 3. for other kinds than all-reduce, an all-reduce found by 1 or 2, times the ratio of the bytes
///    on a ring;
/// 4. the closed forms of the topology or NCCL's own model, with analytic_error().
///
/// Sizes in tables: table_cost(). What is not measured is marked unseen_shape, and its error counts
/// as shared.
class CollectivePricer {
 public:
  /// `profile`: the name of the profile that `tables` come from, for messages.
  CollectivePricer(std::string profile,
                   const std::vector<CollectiveCost>& tables,
                   std::optional<Topology> topology = std::nullopt,
                   PricerLimits limits = {});

  /// One collective of `bytes` (see CollectiveKind) from the last arrival to the end; one rank
  /// costs nothing.
  /// Raises InputError: no source, or one that is refused outside its range; it says what to
  /// measure or which key to write.
  [[nodiscard]] CollectivePrice price(CollectiveKind kind, Bytes bytes, int ranks, int nodes) const;

  /// CollectiveCost::spread of the measured table for exactly these ranks and nodes; empty when
  /// there is none: always the mean.
  [[nodiscard]] std::vector<double> spread(CollectiveKind kind, int ranks, int nodes) const;

 private:
  using Tables = std::vector<const CollectiveCost*>;  ///< By ranks, ascending, each once.

  /// From tables of this kind, if they reach that far.
  [[nodiscard]] std::optional<CollectivePrice> measured(CollectiveKind kind,
                                                        Bytes bytes,
                                                        int ranks,
                                                        int nodes) const;
  [[nodiscard]] CollectivePrice between(const Tables& tables, Bytes bytes, int ranks) const;
  [[nodiscard]] std::optional<CollectivePrice> beyond(const Tables& tables,
                                                      Bytes bytes,
                                                      int ranks) const;
  [[nodiscard]] CollectivePrice analytic(CollectiveKind kind,
                                         Bytes bytes,
                                         int ranks,
                                         int nodes) const;
  [[noreturn]] void refuse(CollectiveKind kind, int ranks, int nodes) const;

  std::string profile_name_;
  std::vector<CollectiveCost> tables_;
  std::optional<Topology> topology_;
  PricerLimits limits_;
};

}  // namespace stepsim
