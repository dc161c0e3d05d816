#include "costmodel/network/collective_pricer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "costmodel/base/input_error.h"
#include "costmodel/compute/fit_errors.h"
#include "costmodel/compute/knots.h"
#include "costmodel/network/collective_table.h"

namespace stepsim {
namespace {

/// Returns "2 ranks" or "16 ranks on 2 nodes".
std::string group_text(int ranks, int nodes) {
  return nodes == 1 ? fmt::format("{} ranks", ranks)
                    : fmt::format("{} ranks on {} nodes", ranks, nodes);
}

/// Returns "2 nodes x 8", "nodes of 8+4 ranks", "10 ranks on 3 nodes" (a group that does not
/// divide) or "8 ranks on one node".
std::string layout_text(const Placement& placement, int ranks, int nodes) {
  if (nodes == 1) {
    return fmt::format("{} ranks on one node", ranks);
  }
  if (placement.ranks() == ranks && placement.nodes() == nodes && !placement.is_even()) {
    return fmt::format("nodes of {} ranks", text_of(placement));
  }
  return ranks % nodes == 0 ? fmt::format("{} nodes x {}", nodes, ranks / nodes)
                            : group_text(ranks, nodes);
}

std::string_view algorithm_text(CollectiveKind kind, CollectiveAlgorithm algorithm) {
  if (kind == CollectiveKind::AllToAll) {
    return "pairwise exchange";
  }
  switch (algorithm) {
    case CollectiveAlgorithm::FlatRing:
      return "flat ring";
    case CollectiveAlgorithm::Tree:
      return "double binary tree";
    case CollectiveAlgorithm::Hierarchical:
      return "two-level ring";
    case CollectiveAlgorithm::RecursiveDoubling:
      return "recursive doubling";
    case CollectiveAlgorithm::Rabenseifner:
      return "Rabenseifner";
    case CollectiveAlgorithm::Auto:
    case CollectiveAlgorithm::Ring:
    case CollectiveAlgorithm::Nccl:
      break;
  }
  return "ring";
}

/// Mean |error| of interpolation between ranks: what a curve in log2(ranks) can be off between two
/// points, 0.3 times the product of its distances from them over their sum, in doublings. It was
/// found on the ten triples of 8 .. 1024 ranks of one cluster
/// (boeschf/nccl-benchmark-on-alps-2025): 11 to 61 % by that measure of 0.7 to 1.7; 89 % of the 230
/// times are then in their 90 % intervals.
double interpolated_ranks_error(double below, double above) {
  constexpr double kLeast = 0.1;
  constexpr double kCurvature = 0.3;
  return std::max(kLeast, kCurvature * below * above / (below + above));
}

/// Mean |error| of extrapolation by a + b log2(ranks): 30 % for one doubling of the ranks, growing
/// with the root of the doublings, and half of that below 64 KiB. It was chosen by the interval
/// score, with 85 % coverage from 512 ranks on, on six extrapolations to 128 .. 1024 ranks of one
/// cluster (boeschf/nccl-benchmark-on-alps-2025), whose 90 % intervals then hold 91 % of 138 times.
/// They hold 20 of 21 times of another cluster (2160 ranks of Polaris from 8 and 32).
double extrapolated_ranks_error(double factor, Bytes bytes) {
  constexpr double kOfDoubling = 0.30;
  constexpr std::int64_t kSmall = std::int64_t{64} * 1024;
  return (bytes.value() < kSmall ? kOfDoubling / 2 : kOfDoubling) * std::sqrt(std::log2(factor));
}

/// Marks a cost that was not measured: its error is at least `least_error` and common to all uses.
void mark_unseen(Cost& cost, double least_error) {
  cost.unseen_shape = true;
  cost.relative_error = std::max(cost.relative_error, least_error);
  cost.shared_error = cost.relative_error;
}

/// Returns `a` with the larger error and extrapolation of the two costs.
Cost merged(Cost a, const Cost& b) {
  a.relative_error = std::max(a.relative_error, b.relative_error);
  if (b.extrapolation > a.extrapolation) {
    a.extrapolation = b.extrapolation;
    a.smaller = b.smaller;
  }
  return a;
}

/// Tells whether a table compares with a group: both are on one node, or both are on several nodes
/// with the same number of ranks per node.
bool alike(const CollectiveCost& table, int ranks, int nodes) {
  return nodes == 1 ? table.nodes == 1
                    : table.nodes > 1 && static_cast<std::int64_t>(table.ranks) * nodes ==
                                             static_cast<std::int64_t>(ranks) * table.nodes;
}

}  // namespace

CollectivePricer::CollectivePricer(std::string profile,
                                   const std::vector<CollectiveCost>& tables,
                                   std::optional<Topology> topology,
                                   PricerLimits limits,
                                   std::optional<FittedLinks> links)
    : profile_name_(std::move(profile)),
      topology_(std::move(topology)),
      limits_(limits),
      links_(std::move(links)) {
  for (const auto& table : tables) {
    if (!table.knots.empty() && table.ranks > 1) {
      tables_.push_back(table);
    }
  }
  const auto fewer_ranks = [](const CollectiveCost& a, const CollectiveCost& b) {
    return a.ranks < b.ranks;
  };
  std::ranges::stable_sort(tables_, fewer_ranks);
}

CollectivePrice CollectivePricer::price(CollectiveKind kind,
                                        Bytes bytes,
                                        int ranks,
                                        int nodes) const {
  CollectivePrice price = own_price(kind, bytes, ranks, nodes);
  price.cost.seconds /= speed_;
  return price;
}

CollectivePricer CollectivePricer::at_speed(double speed) const {
  CollectivePricer pricer = *this;
  pricer.speed_ *= speed;
  return pricer;
}

CollectivePrice CollectivePricer::own_price(CollectiveKind kind,
                                            Bytes bytes,
                                            int ranks,
                                            int nodes) const {
  if (nodes < 1 || ranks < nodes) {
    throw InputError("{} ranks do not fill {} nodes", ranks, nodes);
  }
  if (ranks == 1) {
    return {Cost{}, "one rank", CollectiveSource::OneRank};
  }
  if (links_ && exact(kind, ranks, nodes) == nullptr) {
    return by_links(kind, bytes, ranks, nodes);
  }
  if (auto found = measured(kind, bytes, ranks, nodes)) {
    return *std::move(found);
  }
  if (kind != CollectiveKind::AllReduce) {
    if (auto found = measured(CollectiveKind::AllReduce, bytes, ranks, nodes)) {
      found->cost.seconds *= bus_factor(kind, ranks) / bus_factor(CollectiveKind::AllReduce, ranks);
      mark_unseen(found->cost, kUnmeasuredKindError);
      found->text = "all_reduce by the bytes on a ring: " + found->text;
      return *std::move(found);
    }
  }
  if (topology_) {
    return analytic(kind, bytes, ranks, nodes);
  }
  refuse(kind, ranks, nodes);
}

CollectivePricer CollectivePricer::at_any_size() const {
  CollectivePricer pricer = *this;
  pricer.limits_.max_size_factor = std::numeric_limits<double>::infinity();
  return pricer;
}

const CollectiveCost* CollectivePricer::exact(CollectiveKind kind, int ranks, int nodes) const {
  const auto found = std::ranges::find_if(tables_, [&](const CollectiveCost& table) {
    return table.kind == name_of(kind) && table.ranks == ranks && table.nodes == nodes;
  });
  return found == tables_.end() ? nullptr : &*found;
}

CollectivePrice CollectivePricer::by_links(CollectiveKind kind,
                                           Bytes bytes,
                                           int ranks,
                                           int nodes) const {
  CollectivePrice price;
  const auto size = static_cast<double>(bytes.value());
  price.cost.seconds = fitted_collective_time(links_->fitted, kind, size, ranks, nodes);
  mark_unseen(price.cost, mean_absolute_of_sd(links_->run_error));
  price.draws = fitted_collective_ratios(*links_, kind, size, ranks, nodes);
  price.source = ranks > links_->ranks || nodes > links_->nodes
                     ? CollectiveSource::BeyondFittedLinks
                     : CollectiveSource::FittedLinks;
  price.text = fmt::format("links fitted to step times of up to {}",
                           group_text(links_->ranks, links_->nodes));
  return price;
}

std::optional<CollectivePrice> CollectivePricer::measured(CollectiveKind kind,
                                                          Bytes bytes,
                                                          int ranks,
                                                          int nodes) const {
  std::vector<const CollectiveCost*> near;
  for (const auto& table : tables_) {
    if (table.kind != name_of(kind) || !alike(table, ranks, nodes)) {
      continue;
    }
    if (table.ranks == ranks) {
      return CollectivePrice{table_cost(table, bytes, limits_.max_size_factor, profile_name_),
                             "measured table, " + group_text(ranks, nodes),
                             CollectiveSource::MeasuredTable};
    }
    if (near.empty() || near.back()->ranks != table.ranks) {
      near.push_back(&table);
    }
  }
  if (near.size() < 2 || ranks < near.front()->ranks) {
    return std::nullopt;
  }
  return ranks < near.back()->ranks ? between(near, bytes, ranks) : beyond(near, bytes, ranks);
}

CollectivePrice CollectivePricer::between(const Tables& tables, Bytes bytes, int ranks) const {
  const auto above =
      std::ranges::find_if(tables, [ranks](const auto* table) { return table->ranks > ranks; });
  const CollectiveCost& few = **(above - 1);
  const CollectiveCost& many = **above;
  const Cost low = table_cost(few, bytes, limits_.max_size_factor, profile_name_);
  const Cost high = table_cost(many, bytes, limits_.max_size_factor, profile_name_);
  const double weight = std::log2(static_cast<double>(ranks) / few.ranks) /
                        std::log2(static_cast<double>(many.ranks) / few.ranks);
  Cost cost = merged(low, high);
  cost.seconds = low.seconds + weight * (high.seconds - low.seconds);
  mark_unseen(cost,
              interpolated_ranks_error(std::log2(static_cast<double>(ranks) / few.ranks),
                                       std::log2(static_cast<double>(many.ranks) / ranks)));
  return {cost,
          fmt::format("interpolated between {} and {} ranks", few.ranks, many.ranks),
          CollectiveSource::InterpolatedRanks};
}

std::optional<CollectivePrice> CollectivePricer::beyond(const Tables& tables,
                                                        Bytes bytes,
                                                        int ranks) const {
  const CollectiveCost& largest = *tables.back();
  const double factor = static_cast<double>(ranks) / largest.ranks;
  if (factor > limits_.max_rank_factor) {
    return std::nullopt;
  }
  Cost cost;
  std::vector<std::pair<double, double>> seconds_by_log_ranks;
  for (const auto* table : tables) {
    const Cost one = table_cost(*table, bytes, limits_.max_size_factor, profile_name_);
    cost = merged(one, cost);
    seconds_by_log_ranks.emplace_back(std::log2(table->ranks), one.seconds);
  }
  cost.seconds += relative_slope(seconds_by_log_ranks) * std::log2(factor);
  if (factor > cost.extrapolation) {
    cost.extrapolation = factor;
    cost.smaller = false;
  }
  mark_unseen(cost, extrapolated_ranks_error(factor, bytes));
  return CollectivePrice{
      cost,
      fmt::format(
          "extrapolated by log2(ranks) from {} to {} ranks", tables.front()->ranks, largest.ranks),
      CollectiveSource::ExtrapolatedRanks};
}

CollectivePrice CollectivePricer::analytic(CollectiveKind kind,
                                           Bytes bytes,
                                           int ranks,
                                           int nodes) const {
  const AnalyticTime time =
      analytic_time(*topology_, kind, static_cast<double>(bytes.value()), ranks, nodes);
  Cost cost;
  cost.seconds = time.seconds;
  mark_unseen(cost, analytic_error(time.algorithm, static_cast<double>(bytes.value())));
  if (time.nccl) {
    return {cost,
            fmt::format("NCCL 2.28.9 tuning model: {}/{}",
                        name_of(time.nccl->algorithm),
                        name_of(time.nccl->protocol)),
            CollectiveSource::NcclModel};
  }
  return {cost,
          fmt::format("analytic: {}, {}",
                      algorithm_text(kind, time.algorithm),
                      layout_text(topology_->placement, ranks, nodes)),
          CollectiveSource::Analytic};
}

void CollectivePricer::refuse(CollectiveKind kind, int ranks, int nodes) const {
  std::vector<std::string> known;
  int largest = 0;
  for (const auto& table : tables_) {
    if (table.kind != name_of(kind)) {
      continue;
    }
    known.push_back(group_text(table.ranks, table.nodes));
    if (alike(table, ranks, nodes)) {
      largest = std::max(largest, table.ranks);
    }
  }
  const double factor = largest == 0 ? 0 : static_cast<double>(ranks) / largest;
  const std::string far = factor > limits_.max_rank_factor
                              ? fmt::format("; more than {} times the measured ranks is refused",
                                            limits_.max_rank_factor)
                              : "";
  throw InputError(
      "profile {} has no {} of {}; it has {}{}: measure it with: stepcal measure --plan PLAN.jsonl "
      "--out SAMPLES.jsonl, stepcal fit SAMPLES.jsonl --base PROFILE.json; or write the measured "
      "times in cluster.all_reduce or the links in [cluster.topology], as algorithm = \"nccl\" "
      "with "
      "channels and those of a data sheet",
      printable(profile_name_),
      name_of(kind),
      group_text(ranks, nodes),
      known.empty() ? "no other" : fmt::format("those of {}", fmt::join(known, ", ")),
      far);
}

std::vector<double> CollectivePricer::spread(CollectiveKind kind, int ranks, int nodes) const {
  const CollectiveCost* const found = exact(kind, ranks, nodes);
  return found == nullptr ? std::vector<double>{} : found->spread;
}

}  // namespace stepsim
