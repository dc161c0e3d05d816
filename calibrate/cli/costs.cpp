#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "calibrate/cli/commands.h"
#include "calibrate/export/cost_file.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/number_selection.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/io/json_file.h"
#include "costmodel/io/json_lines.h"
#include "costmodel/terminal/table.h"

namespace stepsim {
namespace {

/// Ranks that a group may name; beyond any cluster.
constexpr int kMaxRank = 1 << 20;

/// Times of messages up to this size hardly depend on it.
constexpr Bytes kSmallMessage(32 << 10);

struct CostsOptions {
  std::string profile;
  std::string out;
  std::vector<std::string> groups;
  std::optional<int> per_node;
  std::vector<std::string> types;
  std::string up_to = "4 GiB";
};

constexpr const char* kCostsUsage =
    "usage: stepcal costs PROFILE --out FILE [options]\n\n"
    "Writes what collectives cost into the file that PyTorch's compiler reads: the overlap\n"
    "scheduler of Inductor (PyTorch 2.15) then knows how much compute hides a collective. A cost\n"
    "is the transfer without waiting for other ranks, at four sizes an octave. The profile is one\n"
    "of stepcal import nccl-tests, import kineto, fit or calibrate. Give every rank the same "
    "file.\n"
    "\n"
    "Without --group: ranks 0 .. n-1 for every n that was measured. PyTorch takes the costs of a\n"
    "group for any other of the same size and stride, if the file has only one such group: 0..7\n"
    "stands for 8..15, too.\n\n"
    "examples:\n"
    "  stepcal costs scenarios/profiles/h100_8x_published.json --out costs.json\n"
    "  stepcal costs mine.json --out costs.json --group 0..7 --group 0,8 --per-node 8\n";

/// The distance between neighbours, and the number of ranks: what PyTorch knows groups by where it
/// finds no costs of their own. Nothing where the distances differ.
std::optional<std::pair<int, std::size_t>> stride_and_size(const std::vector<int>& ranks) {
  const int stride = ranks[1] - ranks[0];
  for (std::size_t i = 2; i < ranks.size(); ++i) {
    if (ranks[i] - ranks[i - 1] != stride) {
      return std::nullopt;
    }
  }
  return std::pair(stride, ranks.size());
}

std::string group_name(const CostFileGroup& group) {
  const auto& ranks = group.ranks;
  return stride_and_size(ranks) == std::pair(1, ranks.size())
             ? fmt::format("{}..{}", ranks.front(), ranks.back())
             : fmt::format("{}", fmt::join(ranks, ","));
}

CostFileGroup parse_group(const CommandRequest& request, const std::string& text, int per_node) {
  CostFileGroup group;
  try {
    group.ranks = parse_selection(text, kMaxRank, "ranks");
  } catch (const InputError& error) {
    request.fail(fmt::format("--group: {}", error.what()));
  }
  if (group.ranks.size() < 2) {
    request.fail(fmt::format("--group {}: a group has two ranks or more", printable(text)));
  }
  std::set<int> nodes;
  for (const int rank : group.ranks) {
    nodes.insert(rank / per_node);
  }
  group.nodes = static_cast<int>(nodes.size());
  return group;
}

/// Notes on groups of which PyTorch takes neither for a third.
std::string group_notes(const std::vector<CostFileGroup>& groups) {
  std::string text;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const auto shape = stride_and_size(groups[i].ranks);
      if (shape && shape == stride_and_size(groups[j].ranks)) {
        text += fmt::format(
            "note: groups {} and {} have the same size and stride. PyTorch takes neither for a "
            "third such group; give only one of them if their costs are the same\n",
            group_name(groups[j]),
            group_name(groups[i]));
      }
    }
  }
  return text;
}

CostFileChoice choice_of(const CommandRequest& request,
                         const CostsOptions& options,
                         const Profile& profile) {
  CostFileChoice choice;
  const int measured_per_node = ranks_per_node(profile);
  if (options.groups.empty()) {
    choice.groups = measured_groups(profile);
    if (choice.groups.empty()) {
      request.fail(
          "the profile has no measured collectives of several ranks; measure some "
          "(stepcal import nccl-tests), or name the ranks with --group");
    }
  }
  for (const std::string& text : options.groups) {
    choice.groups.push_back(
        parse_group(request, text, options.per_node.value_or(std::max(measured_per_node, 1))));
  }
  std::set<std::vector<int>> different;
  for (const CostFileGroup& group : choice.groups) {
    if (!different.insert(group.ranks).second) {
      request.fail(options.groups.empty()
                       ? fmt::format("the profile has ranks {} on several numbers of nodes; say "
                                     "with --group and --per-node which you have",
                                     group_name(group))
                       : fmt::format("--group {} is given twice", group_name(group)));
    }
  }
  choice.kinds = {
      CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::ReduceScatter};
  if (std::ranges::any_of(profile.collectives, [](const CollectiveCost& table) {
        return table.kind == name_of(CollectiveKind::AllToAll);
      })) {
    choice.kinds.push_back(CollectiveKind::AllToAll);
  }
  const std::vector<std::string> types =
      options.types.empty() ? std::vector<std::string>{"Float", "BFloat16"} : options.types;
  try {
    for (const std::string& type : types) {
      choice.types.push_back(parse_cost_file_type(type));
    }
  } catch (const InputError& error) {
    request.fail(fmt::format("--type: {}", error.what()));
  }
  try {
    choice.largest = parse_bytes(options.up_to);
  } catch (const InputError& error) {
    request.fail(fmt::format("--up-to: {}", error.what()));
  }
  return choice;
}

std::string costs_text(const CostFile& file,
                       const CostFileChoice& choice,
                       const std::string& out,
                       const Screen& screen) {
  std::string text = fmt::format("{} costs of {} group{} in {}: {}\n\n",
                                 file.costs,
                                 choice.groups.size(),
                                 choice.groups.size() == 1 ? "" : "s",
                                 printable(out),
                                 fmt::join(mapped(choice.types, &CostFileType::name), ", "));
  Table table({"collective", "ranks", "output", "", "time", "", "error", "priced by"});
  std::string refusals;
  for (const CostFileRow& row : file.rows) {
    const std::string name(name_of(row.kind));
    const std::string ranks = group_name(choice.groups[row.group]);
    if (row.sizes == 0) {
      refusals += fmt::format("left out: {} of ranks {}: {}\n", name, ranks, row.refusal);
      continue;
    }
    table.add({name,
               ranks,
               format_bytes(row.smallest),
               format_bytes(row.largest),
               format_duration(row.shortest_s),
               format_duration(row.longest_s),
               fmt::format("{:.0f} %", 100 * row.error),
               row.source});
  }
  text += table.text(screen) + refusals + group_notes(choice.groups);
  const bool flat = std::ranges::all_of(
      file.rows, [](const CostFileRow& row) { return row.smallest <= kSmallMessage; });
  if (!flat) {
    text +=
        "note: PyTorch takes messages below the smallest output in proportion to their bytes, "
        "which is too cheap; measure down to 1 KiB\n";
  }
  return text + fmt::format(
                    "\nnext: with torch._inductor.config.aten_distributed_optimizations as o:\n"
                    "  o.enable_overlap_scheduling = True\n"
                    "  o.profile_guided_estimations_profile_path = {}\n",
                    json_text(out));
}

Answer ask_costs(const CommandRequest& request, const CostsOptions& options) {
  require_given(request, options.profile, "profile");
  require_given(request, options.out, "file to write (--out)");
  if (options.per_node && *options.per_node < 1) {
    request.fail("--per-node: at least 1");
  }
  if (options.per_node && options.groups.empty()) {
    request.fail("--per-node goes with --group");
  }
  const Profile profile = read_profile(options.profile);
  const CostFileChoice choice = choice_of(request, options, profile);
  const CostFile file = inductor_costs(profile, choice);
  write_text_atomically(options.out, file.text);
  Answer answer;
  if (options.out != "-") {
    answer.text = [=](const Screen& screen) {
      return costs_text(file, choice, options.out, screen);
    };
  }
  return answer;
}

}  // namespace

StepcalCommand costs_command() {
  using O = CostsOptions;
  return question_row(
      "costs",
      "what collectives cost, for PyTorch's compiler",
      kCostsUsage,
      {option("profile", &O::profile, "PROFILE: with collectives").positional(1),
       option("out", &O::out, "FILE or -: the costs, as JSON").written(),
       option("group", &O::groups, "LIST: ranks of a process group, as 0..7 or 0,8; may repeat"),
       option("per-node",
              &O::per_node,
              "NUMBER: with --group, ranks of a node; else what was measured"),
       option("type",
              &O::types,
              "Float|BFloat16|Half|Double|Long|Int|Byte|Char|Bool|Float8_e4m3fn: an element "
              "type; may repeat; else Float and BFloat16"),
       option("up-to", &O::up_to, "BYTES: the largest output, as \"4 GiB\"")},
      ask_costs);
}

}  // namespace stepsim
