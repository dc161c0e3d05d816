#include "calibrate/import/nccl/nccl_inspector.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "calibrate/samples/statistics.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/quantile.h"
#include "costmodel/io/json_lines.h"
#include "costmodel/network/collective_cost.h"

namespace stepsim {
namespace {

constexpr const char* kNotInspector =
    "is this a file of NCCL Inspector? One JSON object a line with \"header\", \"metadata\" and "
    "\"coll_perf\"; formats v4.0 to v4.3 are read";

/// The collectives of NCCL, and whether their lines count the bytes of one rank.
struct InspectorOp {
  const char* name;
  const char* op;
  bool of_one_rank;
};

constexpr std::array<InspectorOp, 6> kOps = {{{"AllReduce", "all_reduce", false},
                                              {"AllGather", "all_gather", true},
                                              {"ReduceScatter", "reduce_scatter", true},
                                              {"Broadcast", "broadcast", false},
                                              {"Reduce", "reduce", false},
                                              {"AlltoAll", "all_to_all", true}}};

/// What a line says of the communicator that the lines after it may leave out.
InspectorLine read_communicator(JsonReader header) {
  constexpr int kMostRanks = 1'000'000;
  InspectorLine line;
  line.communicator = header.text("id");
  line.name = header.text_or("comm_name", "unknown");
  line.ranks = header.integer_in("n_ranks", 1, kMostRanks);
  line.rank = header.integer_in("rank", 0, line.ranks - 1);
  line.nodes = header.has("nnodes") ? header.integer_in("nnodes", 1, line.ranks) : 1;
  return line;
}

void read_version(JsonReader& line, InspectorLog& log) {
  JsonReader metadata = line.object("metadata");
  const std::string version = metadata.text("inspector_output_format_version");
  constexpr std::array<const char*, 4> kKnown = {"v4.0", "v4.1", "v4.2", "v4.3"};
  if (std::ranges::find(kKnown, version) == kKnown.end()) {
    metadata.fail("inspector_output_format_version",
                  fmt::format("'{}' is not read; expected v4.0 to v4.3", printable(version)));
  }
  log.version = std::max(log.version, version);
}

InspectorLine read_collective(JsonReader perf, const InspectorLine& communicator) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 50U;
  constexpr double kHour = 3.6e9;
  InspectorLine line = communicator;
  const std::string name = perf.text("coll");
  const auto* known = std::ranges::find(kOps, name, &InspectorOp::name);
  line.op = known == kOps.end() ? name : known->op;
  line.number = perf.integer("coll_sn");
  line.bytes = perf.integer("coll_msg_size_bytes");
  if (line.bytes < 0 || line.bytes > kMostBytes) {
    perf.fail("coll_msg_size_bytes", fmt::format("{} is no size of a message", line.bytes));
  }
  if (known != kOps.end() && known->of_one_rank) {
    line.bytes *= line.ranks;
  }
  line.us = perf.not_negative("coll_exec_time_us");
  if (line.us > kHour) {
    perf.fail("coll_exec_time_us", fmt::format("{} us is more than an hour", line.us));
  }
  line.timed_by = perf.text_or("coll_timing_source", "");
  return line;
}

void read_file(const std::string& file, InspectorLog& log) {
  JsonLines lines(file, CutLine::Drop);
  std::optional<InspectorLine> communicator;
  while (lines.next()) {
    if (!lines.value().is_object()) {
      lines.fail(kNotInspector);
    }
    JsonReader line = lines.reader();
    if (line.has("header")) {
      communicator = read_communicator(line.object("header"));
    }
    if (line.has("metadata")) {
      read_version(line, log);
    }
    if (line.has("dump_stats")) {
      JsonReader stats = line.object("dump_stats");
      log.dropped += stats.integer_or("coll_dropped_since_last_dump", 0);
    }
    if (line.has("coll_perf")) {
      if (!communicator || log.version.empty()) {
        lines.fail(std::string("a collective before any line with \"header\" and \"metadata\": the "
                               "file's beginning is missing; ") +
                   kNotInspector);
      }
      log.lines.push_back(read_collective(line.object("coll_perf"), *communicator));
    } else if (line.has("p2p_perf")) {
      ++log.point_to_point;
    } else if (!line.has("dump_stats")) {
      lines.fail(kNotInspector);
    }
  }
}

/// Kind, ranks and nodes.
using SampleKey = std::tuple<std::string, int, int>;

Json import_json(const InspectorLog& log,
                 const SampleKey& key,
                 bool upper_bounds,
                 const std::vector<std::string>& warnings) {
  const auto files = mapped(log.files, [](const std::string& file) {
    return std::filesystem::path(file).filename().string();
  });
  Json json = {{"kind", "import"},
               {"op", std::get<0>(key)},
               {"ranks", std::get<1>(key)},
               {"nodes", std::get<2>(key)},
               {"source", "nccl-inspector " + log.version},
               {"file", fmt::format("{}", fmt::join(files, ", "))},
               {"type", "not recorded"},
               {"verdict", "accept"},
               {"warnings", warnings}};
  if (upper_bounds) {
    json["upper_bounds"] = true;
  }
  return json;
}

}  // namespace

InspectorLog read_inspector(const std::vector<std::string>& files) {
  InspectorLog log;
  log.files = files;
  for (const std::string& file : files) {
    read_file(file, log);
  }
  if (log.lines.empty() && log.point_to_point == 0) {
    throw InputError(SourcePlace{files.front()}, "no collective: {}", kNotInspector);
  }
  std::set<std::tuple<std::string, std::string, std::int64_t, int>> seen;
  std::erase_if(log.lines, [&](const InspectorLine& line) {
    const bool is_new = seen.emplace(line.communicator, line.op, line.number, line.rank).second;
    log.repeated += is_new ? 0 : 1;
    return !is_new;
  });
  return log;
}

std::vector<InspectorMatch> match_inspector(const InspectorLog& log) {
  std::map<std::tuple<std::string, std::string, std::int64_t>, InspectorMatch> matches;
  for (const InspectorLine& line : log.lines) {
    InspectorMatch& match = matches[{line.communicator, line.op, line.number}];
    const InspectorLine* other = match.first;
    if (other != nullptr && (other->bytes != line.bytes || other->ranks != line.ranks)) {
      throw InputError(
          "{} {} of communicator {}: {} bytes among {} ranks on rank {}, {} among {} on rank {}: "
          "the files are not of one run",
          printable(line.op),
          line.number,
          printable(line.communicator),
          other->bytes,
          other->ranks,
          other->rank,
          line.bytes,
          line.ranks,
          line.rank);
    }
    if (other == nullptr || line.rank < other->rank) {
      match.first = &line;
    }
    match.us[line.rank] = line.us;
  }
  return mapped(matches, [](auto& entry) {
    InspectorMatch match = entry.second;
    match.transfer_us =
        std::ranges::min_element(match.us, {}, [](const auto& one) { return one.second; })->second;
    return match;
  });
}

InspectorSamples inspector_samples(const InspectorLog& log,
                                   std::span<const InspectorMatch> matches,
                                   bool some_ranks) {
  struct OfSize {
    std::vector<double> complete;
    std::vector<double> bounds;
  };
  std::map<SampleKey, std::map<std::int64_t, OfSize>> found;
  std::map<std::string, int> refused;
  const auto priced = collective_kind_names();
  for (const InspectorMatch& match : matches) {
    const InspectorLine& line = *match.first;
    if (std::ranges::find(priced, line.op) == priced.end()) {
      ++refused[printable(line.op) + ": a profile has no place for it"];
    } else if (line.ranks < 2 || line.bytes < 1 || match.transfer_us <= 0) {
      ++refused[printable(line.op) + ": of one rank, without a size or shorter than 1 us"];
    } else {
      OfSize& size = found[{line.op, line.ranks, line.nodes}][line.bytes];
      (match.is_complete() ? size.complete : size.bounds).push_back(match.transfer_us);
    }
  }
  InspectorSamples samples;
  for (const auto& [key, sizes] : found) {
    ImportedCollective collective;
    bool upper_bounds = false;
    for (const auto& [bytes, times] : sizes) {
      std::optional<double> us;
      if (!times.complete.empty()) {
        us = median(times.complete);
      } else if (some_ranks) {
        us = *std::ranges::min_element(times.bounds);
        upper_bounds = true;
      } else {
        refused[fmt::format(
            "{} of {} ranks: lines of some ranks are missing, so that its times "
            "hold a wait; give the files of all ranks, or --accept missing_ranks "
            "to take the quickest of each size",
            std::get<0>(key),
            std::get<1>(key))] += static_cast<int>(times.bounds.size());
      }
      if (us) {
        collective.times.push_back(
            {{std::get<0>(key), std::get<1>(key), std::get<2>(key), bytes}, {us, {}}});
      }
    }
    std::vector<std::string> warnings = {
        "taken inside of a training: compute beside it slows it; whole microseconds"};
    if (upper_bounds) {
      warnings.push_back(
          fmt::format("{} of {} ranks: lines of some ranks are missing: the quickest of each size "
                      "counts, which "
                      "is an upper bound",
                      std::get<0>(key),
                      std::get<1>(key)));
      samples.warnings.push_back(warnings.back());
    }
    if (!collective.times.empty()) {
      collective.about = import_json(log, key, upper_bounds, warnings);
      samples.collectives.push_back(std::move(collective));
    }
  }
  for (const auto& [why, count] : refused) {
    samples.left_out.push_back(fmt::format("{} {}", count, why));
  }
  return samples;
}

}  // namespace stepsim
