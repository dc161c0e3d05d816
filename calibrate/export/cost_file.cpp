#include "calibrate/export/cost_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/io/json_lines.h"
#include "costmodel/network/collective_pricer.h"

namespace stepsim {

namespace {

constexpr int kSizesAnOctave = 4;
/// A price with this error is a guess: a small message, far below the smallest that was measured.
constexpr double kGuess = 1;

const std::vector<CostFileType>& cost_file_types() {
  static const std::vector<CostFileType> kAll = {{"Float", 4},
                                                 {"BFloat16", 2},
                                                 {"Half", 2},
                                                 {"Double", 8},
                                                 {"Long", 8},
                                                 {"Int", 4},
                                                 {"Byte", 1},
                                                 {"Char", 1},
                                                 {"Bool", 1},
                                                 {"Float8_e4m3fn", 1}};
  return kAll;
}

/// Returns what PyTorch's profiler calls the collective; the reader looks for a part of the name.
std::string_view collective_name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::AllGather:
      return "_allgather_base";
    case CollectiveKind::ReduceScatter:
      return "_reduce_scatter_base";
    case CollectiveKind::AllToAll:
      return "all_to_all";
    default:
      return "allreduce";
  }
}

/// Elements of a rank's output that make up a whole buffer; of a reduce-scatter it is a shard.
std::int64_t shards_of(CollectiveKind kind, std::size_t ranks) {
  return kind == CollectiveKind::ReduceScatter ? static_cast<std::int64_t>(ranks) : 1;
}

/// The numbers of output elements to price, ascending.
std::set<std::int64_t> sizes_of(const Profile& profile,
                                CollectiveKind kind,
                                const CostFileGroup& group,
                                const CostFileType& type,
                                Bytes largest) {
  std::set<std::int64_t> sizes;
  const std::int64_t last = largest.value() / type.bytes;
  for (int i = 0;; ++i) {
    const auto size =
        static_cast<std::int64_t>(std::llround(std::exp2(i / double{kSizesAnOctave})));
    if (size > last) {
      break;
    }
    sizes.insert(size);
  }
  const std::int64_t shards = shards_of(kind, group.ranks.size());
  for (const CollectiveCost& table : profile.collectives) {
    if (table.kind != name_of(kind) || table.ranks != static_cast<int>(group.ranks.size()) ||
        table.nodes != group.nodes) {
      continue;
    }
    for (const auto& knot : table.knots) {
      const auto size = static_cast<std::int64_t>(knot.first) / (type.bytes * shards);
      if (size > 0 && size <= last) {
        sizes.insert(size);
      }
    }
  }
  return sizes;
}

std::string ranks_text(const CostFileGroup& group) {
  return fmt::format("[{}]", fmt::join(group.ranks, ", "));
}

std::string group_configs(const CostFileChoice& choice) {
  std::string text;
  for (std::size_t i = 0; i < choice.groups.size(); ++i) {
    const CostFileGroup& group = choice.groups[i];
    text += fmt::format(
        "{}{{\"pg_name\": \"{}\", \"pg_desc\": \"{}\", \"backend_config\": \"cuda:nccl\", "
        "\"pg_size\": {}, \"ranks\": {}}}",
        i == 0 ? "" : ", ",
        i,
        i == 0 ? "default_pg" : "subgroup",
        group.ranks.size(),
        ranks_text(group));
  }
  return text;
}

/// One cost, as an event that begins at `begin_us`.
std::string cost_event(const CostFileRow& row,
                       const CostFileGroup& group,
                       const CostFileType& type,
                       std::int64_t size,
                       double begin_us,
                       double us) {
  const auto ranks = static_cast<std::int64_t>(group.ranks.size());
  const std::int64_t input = row.kind == CollectiveKind::AllGather
                                 ? (size + ranks - 1) / ranks
                                 : size * shards_of(row.kind, group.ranks.size());
  return fmt::format(
      R"({{"ph":"X","cat":"kernel","name":"ncclKernel_{}","pid":0,"tid":{},"ts":{:.3f},)"
      R"("dur":{:.3f},"args":{{"Collective name":"{}","In msg nelems":{},"Out msg nelems":{},)"
      R"("Group size":{},"dtype":"{}","Process Group Name":"{}","Process Group Ranks":"{}"}}}})",
      name_of(row.kind),
      row.group,
      begin_us,
      us,
      collective_name(row.kind),
      input,
      size,
      ranks,
      type.name,
      row.group,
      ranks_text(group));
}

/// Takes one more price into what is said of a collective; prices come in order of their sizes.
void widen(const CollectivePrice& price, Bytes output, CostFileRow* row) {
  if (row->sizes++ == 0) {
    row->smallest = output;
    row->shortest_s = price.cost.seconds;
  }
  row->largest = output;
  row->longest_s = price.cost.seconds;
  row->source = price.text;
  row->error = price.cost.relative_error;
}

}  // namespace

CostFileType parse_cost_file_type(const std::string& name) {
  const auto& all = cost_file_types();
  const auto found = std::ranges::find(all, name, &CostFileType::name);
  if (found == all.end()) {
    throw InputError(unknown_name("type", name, mapped(all, &CostFileType::name)));
  }
  return *found;
}

std::vector<CostFileGroup> measured_groups(const Profile& profile) {
  std::set<std::pair<int, int>> sizes;
  for (const CollectiveCost& table : profile.collectives) {
    if (table.ranks > 1) {
      sizes.emplace(table.ranks, table.nodes);
    }
  }
  std::vector<CostFileGroup> groups;
  for (const auto& [ranks, nodes] : sizes) {
    CostFileGroup group;
    group.nodes = nodes;
    for (int rank = 0; rank < ranks; ++rank) {
      group.ranks.push_back(rank);
    }
    groups.push_back(group);
  }
  return groups;
}

int ranks_per_node(const Profile& profile) {
  int most = 0;
  for (const CollectiveCost& table : profile.collectives) {
    most = std::max(most, (table.ranks + table.nodes - 1) / table.nodes);
  }
  return most;
}

CostFile inductor_costs(const Profile& profile, const CostFileChoice& choice) {
  const CollectivePricer pricer(profile.name, profile.collectives, std::nullopt, {}, profile.links);
  CostFile file;
  std::string events;
  double begin_us = 0;
  // All sizes of one collective of one type. Those too far from the measured ones are left out.
  const auto add = [&](CostFileRow* row, const CostFileType& type) {
    const CostFileGroup& group = choice.groups[row->group];
    const bool first_type = type.name == choice.types.front().name;
    for (const std::int64_t size : sizes_of(profile, row->kind, group, type, choice.largest)) {
      const Bytes output(size * type.bytes);
      CollectivePrice price;
      try {
        price = pricer.price(row->kind,
                             output * shards_of(row->kind, group.ranks.size()),
                             static_cast<int>(group.ranks.size()),
                             group.nodes);
      } catch (const InputError& error) {
        row->refusal = error.what();
        continue;
      }
      if (price.cost.relative_error >= kGuess) {
        continue;
      }
      const double us = price.cost.seconds * 1e6;
      events += file.costs++ == 0 ? "\n" : ",\n";
      events += cost_event(*row, group, type, size, begin_us, us);
      begin_us += us;
      if (first_type) {
        widen(price, output, row);
      }
    }
  };
  for (std::size_t group = 0; group < choice.groups.size(); ++group) {
    for (const CollectiveKind kind : choice.kinds) {
      CostFileRow row;
      row.kind = kind;
      row.group = group;
      for (const CostFileType& type : choice.types) {
        add(&row, type);
      }
      file.rows.push_back(row);
    }
  }
  if (file.costs == 0) {
    throw InputError(file.rows.empty() ? "there is no collective to price"
                                       : file.rows.front().refusal);
  }
  int world = 0;
  for (const CostFileGroup& group : choice.groups) {
    world = std::max(world, group.ranks.back() + 1);
  }
  file.text = fmt::format(
      "{{\n\"schemaVersion\": 1,\n\"traceName\": {},\n\"distributedInfo\": {{\"backend\": "
      "\"nccl\", \"rank\": 0, \"world_size\": {}, \"pg_count\": {}, \"pg_config\": [{}]}},\n"
      "\"displayTimeUnit\": \"ms\",\n\"traceEvents\": [{}\n]}}\n",
      json_text("costs by stepcal, profile " + profile.name),
      world,
      choice.groups.size(),
      group_configs(choice),
      events);
  return file;
}

}  // namespace stepsim
