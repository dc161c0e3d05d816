#pragma once

#include <optional>
#include <string>
#include <vector>

#include "costmodel/base/units.h"
#include "costmodel/compute/cost_model.h"
#include "costmodel/network/collective_cost.h"
#include "costmodel/network/collective_table.h"
#include "costmodel/network/fitted_links.h"
#include "costmodel/network/topology.h"

namespace stepsim {

/// What the price of a collective is made from.
enum class CollectiveSource {
  OneRank,            ///< Nothing: one rank sends nothing.
  MeasuredTable,      ///< A table of exactly these ranks and nodes.
  FittedLinks,        ///< Links fitted to step times.
  BeyondFittedLinks,  ///< The same, for more ranks or nodes than were timed.
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
  /// [draw] What other fits of the links make of the price, as factors; FittedLinks only. The error
  /// of the cost is then beside that.
  std::vector<double> draws = {};
};

/// How far a CollectivePricer goes beyond what was measured.
struct PricerLimits {
  double max_size_factor = 4;  ///< The limit in multiples of the largest measured size.
  double max_rank_factor = 2;  ///< The limit in multiples of the largest measured rank count.
};

/// The smallest error stated for another collective that is priced from an all-reduce. This is an
/// assumption, not a measurement.
inline constexpr double kUnmeasuredKindError = 0.30;

/// Prices collectives among any ranks. It uses the first of these sources that applies:
///
/// 1. a measured table of this kind for exactly these ranks and nodes;
/// 2. links that were fitted to step times;
/// 3. at least two measured tables of this kind for other numbers of ranks, all on one node or all
///    with the same number of ranks per node: between two of them the price is linear in
///    log2(ranks); beyond the largest it continues with the slope that all of them have over
///    log2(ranks);
/// 4. for kinds other than all-reduce, an all-reduce priced by 1 or 2, times the ratio of the two
///    kinds' bytes on a ring;
/// 5. the closed forms of the topology or NCCL's own model, with the error of analytic_error().
///
/// Within a table, table_cost() prices the size. Only source 1 is a measurement; the others are
/// marked unseen_shape, and all of their error counts as shared.
class CollectivePricer {
 public:
  /// `profile` is the name of the profile that `tables` come from; messages mention it.
  CollectivePricer(std::string profile,
                   const std::vector<CollectiveCost>& tables,
                   std::optional<Topology> topology = std::nullopt,
                   PricerLimits limits = {},
                   std::optional<FittedLinks> links = std::nullopt);

  /// Prices one collective of `bytes` (see CollectiveKind) from the last rank's arrival to its end.
  /// One rank costs nothing.
  /// Raises InputError: no source applies, or the size is too far outside the measured range. The
  /// message says what to measure or which key to write.
  [[nodiscard]] CollectivePrice price(CollectiveKind kind, Bytes bytes, int ranks, int nodes) const;

  /// Returns the same pricer with a network so many times as fast: every price is divided by it,
  /// whatever its source.
  [[nodiscard]] CollectivePricer at_speed(double speed) const;
  /// Returns the same pricer, which goes beyond the measured sizes as far as it is asked to.
  [[nodiscard]] CollectivePricer at_any_size() const;

  /// Returns CollectiveCost::spread of the measured table for exactly these ranks and nodes. It is
  /// empty, which means that every call takes the mean, when there is no such table.
  [[nodiscard]] std::vector<double> spread(CollectiveKind kind, int ranks, int nodes) const;

 private:
  using Tables = std::vector<const CollectiveCost*>;  ///< Ascending by ranks, without duplicates.

  /// price() of a network as it was measured or described.
  [[nodiscard]] CollectivePrice own_price(CollectiveKind kind,
                                          Bytes bytes,
                                          int ranks,
                                          int nodes) const;
  /// The table of exactly these ranks and nodes; null when there is none.
  [[nodiscard]] const CollectiveCost* exact(CollectiveKind kind, int ranks, int nodes) const;
  [[nodiscard]] CollectivePrice by_links(CollectiveKind kind,
                                         Bytes bytes,
                                         int ranks,
                                         int nodes) const;
  /// Prices by sources 1 and 3; nothing when no table of this kind reaches that far.
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
  double speed_ = 1;
  std::optional<FittedLinks> links_;
};

}  // namespace stepsim
