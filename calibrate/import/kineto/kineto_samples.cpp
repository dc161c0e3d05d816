#include "calibrate/import/kineto/kineto_samples.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/io/json_file.h"
#include "costmodel/network/collective_cost.h"

namespace stepsim {
namespace {

/// Collective and ranks.
using CallGroup = std::pair<std::string, int>;
using Matches = std::vector<const KinetoMatch*>;

std::int64_t world_size(std::span<const KinetoTrace> traces) {
  return traces.front().header.world_size.value_or(static_cast<std::int64_t>(traces.size()));
}

int stated_nodes(std::span<const KinetoTrace> traces, std::optional<int> nodes) {
  const int devices = traces.front().header.devices;
  if (!nodes && devices > 0 && world_size(traces) > devices) {
    throw InputError(SourcePlace{traces.front().file},
                     "{} ranks, and {} devices where this one ran: say on how many "
                     "nodes with --nodes",
                     world_size(traces),
                     devices);
  }
  return nodes.value_or(1);
}

/// Why no sample can be made of a match; empty when one can.
std::string refusal(const KinetoMatch& match, std::int64_t world, int nodes) {
  const auto priced = collective_kind_names();
  if (std::ranges::find(priced, match.kind) == priced.end()) {
    return "a profile has no place for it";
  }
  if (!match.complete) {
    return "traces of other ranks are missing, so that its times are upper bounds";
  }
  if (match.group_size < 2) {
    return "one rank alone";
  }
  if (nodes > 1 && match.group_size < world) {
    return "of a part of the ranks, on how many of the nodes is not known";
  }
  if (!match.bytes || *match.bytes < 1) {
    return "its size is not recorded";
  }
  if (match.transfer_ns <= 0) {
    return "ends on one rank before it starts on another: the clocks differ";
  }
  return "";
}

Json import_json(std::span<const KinetoTrace> traces,
                 const KinetoMatches& matches,
                 const CallGroup& group,
                 int nodes,
                 const Matches& times) {
  std::vector<std::string> files;
  std::vector<std::string> warnings = {"taken inside training steps: compute beside it slows it"};
  for (const KinetoTrace& trace : traces) {
    files.push_back(std::filesystem::path(trace.file).filename().string());
  }
  if (!traces.front().header.fractional_times) {
    warnings.emplace_back("times of whole microseconds");
  }
  if (std::ranges::any_of(matches.shift_ns, [](auto s) { return s != 0; })) {
    warnings.emplace_back("clocks aligned by the ends of collectives");
  }
  return {{"kind", "import"},
          {"op", group.first},
          {"ranks", group.second},
          {"nodes", nodes},
          {"source", "kineto"},
          {"file", fmt::format("{}", fmt::join(files, ", "))},
          {"type", times.front()->dtype},
          {"device", printable(traces.front().header.device)},
          {"nccl_version", printable(traces.front().header.nccl_version)},
          {"verdict", "accept"},
          {"warnings", warnings}};
}

}  // namespace

void require_samples(const KinetoSamples& samples,
                     std::span<const KinetoTrace> traces,
                     const std::string& no_steps) {
  if (samples.groups.empty()) {
    throw InputError(SourcePlace{traces.front().file},
                     "{}{}",
                     samples.left_out.empty() ? "holds no collectives to make samples of"
                                              : fmt::format("no collective can be taken: {}",
                                                            fmt::join(samples.left_out, "; ")),
                     no_steps.empty() ? "" : "; and compute goes into no profile: " + no_steps);
  }
}

KinetoSamples kineto_samples(std::span<const KinetoTrace> traces,
                             const KinetoMatches& matches,
                             std::optional<int> nodes) {
  KinetoSamples result;
  std::map<CallGroup, Matches> groups;
  std::map<std::pair<std::string, std::string>, int> refused;  // Collective and reason.
  const int on = stated_nodes(traces, nodes);
  for (const KinetoMatch& match : matches.matches) {
    const std::string reason = refusal(match, world_size(traces), on);
    if (reason.empty()) {
      groups[{match.kind, match.group_size}].push_back(&match);
    } else {
      ++refused[{match.kind, reason}];
    }
  }
  for (const auto& [what, count] : refused) {
    result.left_out.push_back(fmt::format("{} {}: {}", count, printable(what.first), what.second));
  }
  const std::string& device = traces.front().header.device;
  result.device = device.empty() ? "not stated in the trace" : printable(device);
  for (const auto& [group, times] : groups) {
    ImportedCollective collective = {import_json(traces, matches, group, on, times), {}};
    std::set<std::int64_t> sizes;
    for (const KinetoMatch* match : times) {
      sizes.insert(*match->bytes);
      collective.times.push_back({{group.first, group.second, on, *match->bytes},
                                  {{}, static_cast<double>(match->transfer_ns) * 1e-3}});
    }
    result.collectives.push_back(std::move(collective));
    result.groups.push_back(fmt::format("{} of {} ranks on {} node{}: {} times, {} sizes",
                                        group.first,
                                        group.second,
                                        on,
                                        on == 1 ? "" : "s",
                                        times.size(),
                                        sizes.size()));
  }
  return result;
}

}  // namespace stepsim
