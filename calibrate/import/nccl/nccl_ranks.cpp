#include "calibrate/import/nccl/nccl_ranks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <fmt/core.h>

namespace stepsim {
namespace {

/// Below this algbw its printed places say too little.
constexpr double kTellingAlgbw = 0.5;

void narrow(const std::optional<NcclBlock>& block, std::optional<BusFactor>* factor) {
  if (!block || block->algbw.value <= kTellingAlgbw) {
    return;
  }
  const double lo =
      (block->busbw.value - block->busbw.half_unit) / (block->algbw.value + block->algbw.half_unit);
  const double hi =
      (block->busbw.value + block->busbw.half_unit) / (block->algbw.value - block->algbw.half_unit);
  if (!*factor) {
    *factor = BusFactor{lo, hi};
    return;
  }
  (*factor)->lo = std::max((*factor)->lo, lo);
  (*factor)->hi = std::min((*factor)->hi, hi);
}

bool all_ranks_listed(const NcclTable& table, int ranks) {
  return !table.ranks_elided && static_cast<int>(table.ranks->size()) >= ranks;
}

std::int64_t bytes_of_type(const std::string& type) {
  static const std::map<std::string, std::int64_t> kSizes = {{"char", 1},
                                                             {"int8", 1},
                                                             {"uint8", 1},
                                                             {"half", 2},
                                                             {"bfloat16", 2},
                                                             {"float", 4},
                                                             {"int", 4},
                                                             {"int32", 4},
                                                             {"uint32", 4},
                                                             {"double", 8},
                                                             {"int64", 8},
                                                             {"uint64", 8}};
  const auto found = kSizes.find(type);
  return found == kSizes.end() ? 1 : found->second;
}

/// True when the size is a multiple of the count: the buffers of all ranks together.
bool counts_all_ranks(const NcclTable& table) {
  return std::ranges::any_of(table.rows, [](const NcclRow& row) {
    return row.count > 0 && row.bytes / row.count >= 2 * bytes_of_type(row.type);
  });
}

/// True where results in place were never checked, and those out of place were: only programs that
/// cannot work in place do so.
bool checks_one_place(const NcclTable& table) {
  const auto checks_one = [](const NcclRow& row) {
    return row.out_of_place && row.out_of_place->check && row.in_place && !row.in_place->check &&
           !row.in_place->check_unreadable;
  };
  return !table.rows.empty() && std::ranges::all_of(table.rows, checks_one);
}

}  // namespace

std::optional<BusFactor> bus_factor_of(std::span<const NcclRow> rows) {
  std::optional<BusFactor> factor;
  for (const NcclRow& row : rows) {
    narrow(row.out_of_place, &factor);
    narrow(row.in_place, &factor);
  }
  return factor;
}

std::optional<int> RankRange::only() const {
  const double first = std::ceil(lo);
  constexpr double kMax = 1 << 24;
  return first >= 1 && first <= kMax && first == std::floor(hi)
             ? std::optional(static_cast<int>(first))
             : std::nullopt;
}

std::optional<RankRange> ranks_of_factor(const BusFactor& factor, const std::string& op) {
  constexpr double kEndless = 1e18;
  const auto over = [](double above, double below) { return below > 0 ? above / below : kEndless; };
  if (op == "all_reduce" && factor.hi < 1 && factor.lo > 0) {
    return RankRange{over(1 + factor.lo, 1 - factor.lo), over(1 + factor.hi, 1 - factor.hi)};
  }
  if (op == "all_reduce") {
    return RankRange{over(2, 2 - factor.lo), over(2, 2 - factor.hi)};
  }
  if (op == "reduce_scatter" || op == "all_gather" || op == "all_to_all") {
    return RankRange{over(1, 1 - factor.lo), over(1, 1 - factor.hi)};
  }
  return std::nullopt;
}

std::optional<int> listed_ranks(const NcclTable& table) {
  if (!table.ranks || table.ranks->empty()) {
    return std::nullopt;
  }
  int highest = 0;
  std::map<int, int> group_sizes;
  for (const NcclRank& rank : *table.ranks) {
    highest = std::max(highest, rank.rank);
    ++group_sizes[rank.group];
  }
  if (group_sizes.size() > 1 && all_ranks_listed(table, highest + 1)) {
    return group_sizes.begin()->second;  // Each group is a communicator of its own.
  }
  return highest + 1;
}

std::optional<int> listed_nodes(const NcclTable& table, int ranks) {
  if (!table.ranks || table.ranks->empty()) {
    return std::nullopt;
  }
  std::map<std::string, int> hosts;
  int per_node = 1;
  const int group = table.ranks->front().group;
  for (const NcclRank& rank : *table.ranks) {
    if (rank.group == group) {
      per_node = std::max({per_node, ++hosts[rank.host], rank.device + 1});
    }
  }
  if (all_ranks_listed(table, ranks)) {
    return static_cast<int>(hosts.size());
  }
  return (ranks - 1) / std::min(per_node, ranks) + 1;
}

bool shares_gpu(const NcclTable& table) {
  if (!table.ranks) {
    return false;
  }
  std::set<std::pair<std::string, std::string>> seen;
  return std::ranges::any_of(*table.ranks, [&seen](const NcclRank& rank) {
    return rank.bus_id.find(':') != std::string::npos &&
           !seen.emplace(rank.host, rank.bus_id).second;
  });
}

std::string collective_of(const NcclTable& table) {
  if (!table.collective.empty() || table.rows.empty()) {
    return table.collective;
  }
  const NcclRow& row = table.rows.back();
  const bool reduces = row.redop != "none";
  const auto factor = bus_factor_of(table.rows);
  const bool below_one = factor && factor->hi < 1;
  if (row.root.value_or(-1) >= 0) {
    return reduces ? "reduce" : below_one || counts_all_ranks(table) ? "" : "broadcast";
  }
  if (!reduces || checks_one_place(table)) {
    return "";  // All-gather, all-to-all or sendrecv.
  }
  if (below_one || counts_all_ranks(table)) {
    return counts_all_ranks(table) ? "reduce_scatter" : "all_reduce";
  }
  return "all_reduce";
}

bool rows_can_be(const std::string& op, const NcclTable& table) {
  const NcclRow& row = table.rows.back();
  const bool has_redop = op == "all_reduce" || op == "reduce_scatter" || op == "reduce";
  const bool has_root = op == "broadcast" || op == "reduce";
  return (row.redop != "none") == has_redop && (!row.root || (*row.root >= 0) == has_root) &&
         !(op == "all_reduce" && (counts_all_ranks(table) || checks_one_place(table))) &&
         !(op == "broadcast" && counts_all_ranks(table));
}

std::string text_of(const RankRange& range) {
  constexpr double kMany = 1e6;
  if (range.lo > kMany) {
    return "no number of ranks";
  }
  return range.hi > kMany ? fmt::format("{:.2f} ranks or more", range.lo)
                          : fmt::format("{:.2f} to {:.2f} ranks", range.lo, range.hi);
}

}  // namespace stepsim
