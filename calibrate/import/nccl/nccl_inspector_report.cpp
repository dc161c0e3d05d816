#include "calibrate/import/nccl/nccl_inspector_report.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "calibrate/samples/statistics.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/terminal/table.h"

namespace stepsim {
namespace {

/// The table of kinds and sizes.
std::string sizes_text(std::span<const InspectorMatch> matches, const Screen& screen) {
  struct OfSize {
    int times = 0;
    bool is_bound = false;
    std::vector<double> transfers;
    std::vector<double> recorded;
  };
  std::map<std::tuple<std::string, int, int, std::int64_t>, OfSize> sizes;
  for (const InspectorMatch& match : matches) {
    const InspectorLine& line = *match.first;
    OfSize& size = sizes[{line.op, line.ranks, line.nodes, line.bytes}];
    ++size.times;
    size.is_bound = size.is_bound || !match.is_complete();
    size.transfers.push_back(match.transfer_us);
    for (const auto& [rank, us] : match.us) {
      size.recorded.push_back(us);
    }
  }
  Table table({"collective", "ranks", "nodes", "bytes", "times", "transfer us", "recorded us"});
  bool any_bound = false;
  for (const auto& [key, size] : sizes) {
    const auto& [op, ranks, nodes, bytes] = key;
    const auto [lo, hi] = std::ranges::minmax(size.recorded);
    any_bound = any_bound || size.is_bound;
    table.add({printable(op),
               std::to_string(ranks),
               std::to_string(nodes),
               std::to_string(bytes),
               std::to_string(size.times),
               fmt::format("{}{:.0f}", size.is_bound ? "<= " : "", median(size.transfers)),
               lo == hi ? fmt::format("{:.0f}", lo) : fmt::format("{:.0f} .. {:.0f}", lo, hi)});
  }
  return table.text(screen) +
         "transfer: the least over the ranks, in the median; bytes: of the whole buffer\n" +
         (any_bound ? "<=: lines of some ranks are missing, and the last to arrive may be one of "
                      "them\n"
                    : "");
}

/// What each rank waited in collectives that all of their ranks have lines of.
std::string ranks_text(std::span<const InspectorMatch> matches, const Screen& screen) {
  struct OfRank {
    int times = 0;
    int last = 0;
    double all_us = 0;
    double waiting_us = 0;
  };
  std::map<std::pair<std::string, int>, OfRank> ranks;
  std::set<std::string> names;
  for (const InspectorMatch& match : matches) {
    if (!match.is_complete() || match.first->ranks < 2) {
      continue;
    }
    for (const auto& [rank, us] : match.us) {
      OfRank& of_rank = ranks[{match.first->communicator, rank}];
      ++of_rank.times;
      of_rank.last += us == match.transfer_us ? 1 : 0;
      of_rank.all_us += us;
      of_rank.waiting_us += us - match.transfer_us;
    }
    names.insert(match.first->communicator);
  }
  if (ranks.empty()) {
    return "";
  }
  Table table({"communicator", "rank", "collectives", "waiting ms", "of their time", "came last"});
  for (const auto& [key, rank] : ranks) {
    table.add({printable(key.first),
               std::to_string(key.second),
               std::to_string(rank.times),
               fmt::format("{:.3f}", rank.waiting_us * 1e-3),
               fmt::format("{:.0f} %", rank.all_us > 0 ? 100 * rank.waiting_us / rank.all_us : 0),
               std::to_string(rank.last)});
  }
  return "\n" + table.text(screen) +
         "waiting: beyond the least of all ranks. Who came last, for whom the others waited, waits "
         "least\n";
}

}  // namespace

std::string inspector_report(const InspectorLog& log,
                             std::span<const InspectorMatch> matches,
                             const Screen& screen) {
  std::string text = sizes_text(matches, screen) + ranks_text(matches, screen) + "\n";
  if (log.dropped > 0) {
    text += fmt::format(
        "warning: Inspector dropped {} collectives, since more ran between two dumps than it "
        "keeps: set NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS lower\n",
        log.dropped);
  }
  if (log.repeated > 0) {
    text += fmt::format("warning: {} lines repeat a collective of their rank and are left out\n",
                        log.repeated);
  }
  std::set<std::string> sources;
  for (const InspectorLine& line : log.lines) {
    sources.insert(line.timed_by);
  }
  sources.erase("kernel_gpu");
  sources.erase("");
  for (const std::string& source : sources) {
    text += fmt::format(
        "warning: times of the source '{}' are the host's, which are longer than the GPU's\n",
        printable(source));
  }
  if (log.point_to_point > 0) {
    text += fmt::format("note: sends and receives are left out, {} of them\n", log.point_to_point);
  }
  return text + "note: Inspector keeps no collective below 8192 bytes, and no element type\n";
}

Json inspector_json(const InspectorLog& log, std::span<const InspectorMatch> matches) {
  Json json = {{"format", "stepsim-nccl-inspector/1"},
               {"version", log.version},
               {"collectives", Json::array()},
               {"point_to_point", log.point_to_point},
               {"dropped", log.dropped},
               {"repeated", log.repeated}};
  for (const InspectorMatch& match : matches) {
    const InspectorLine& line = *match.first;
    Json one = {{"communicator", line.communicator},
                {"name", line.name},
                {"op", line.op},
                {"number", line.number},
                {"ranks", line.ranks},
                {"nodes", line.nodes},
                {"bytes", line.bytes},
                {"transfer_us", match.transfer_us},
                {"complete", match.is_complete()},
                {"waiting_us", Json::object()}};
    for (const auto& [rank, us] : match.us) {
      one["waiting_us"][std::to_string(rank)] = us - match.transfer_us;
    }
    json["collectives"].push_back(std::move(one));
  }
  return json;
}

}  // namespace stepsim
