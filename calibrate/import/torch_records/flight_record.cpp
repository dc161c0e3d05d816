#include "calibrate/import/torch_records/flight_record.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "calibrate/import/kineto/kineto_names.h"
#include "calibrate/samples/statistics.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_number.h"
#include "costmodel/io/json_file.h"

namespace stepsim {
namespace {

constexpr const char* kHowToDump =
    "expected the JSON of torch._C._distributed_c10d._dump_fr_trace_json() (NCCL: "
    "_dump_nccl_trace_json()), an object with \"entries\"";

/// The number behind "rank" in a file's name.
std::optional<int> rank_in_name(const std::string& file) {
  const std::string name = std::filesystem::path(file).filename().string();
  std::size_t at = name.rfind("rank");
  if (at == std::string::npos) {
    return std::nullopt;
  }
  at += 4;
  at += at < name.size() && (name[at] == '_' || name[at] == '-') ? 1 : 0;
  std::size_t end = at;
  while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end])) != 0) {
    ++end;
  }
  constexpr int kMostRanks = 1'000'000;
  const auto number = parse_number<int>(name.substr(at, end - at));
  return number && *number >= 0 && *number < kMostRanks ? number : std::nullopt;
}

/// The bytes of a list of tensors; absent where a size or a type is not known.
std::optional<std::int64_t> bytes_of(const Json& sizes, const Json& dtypes) {
  constexpr double kMost = 1e15;
  if (!sizes.is_array() || !dtypes.is_array() || sizes.empty() || sizes.size() != dtypes.size()) {
    return std::nullopt;
  }
  double bytes = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto element =
        dtypes[i].is_string() ? element_bytes(dtypes[i].get<std::string>()) : std::nullopt;
    if (!element || !sizes[i].is_array()) {
      return std::nullopt;
    }
    double elements = 1;
    for (const Json& size : sizes[i]) {
      if (!size.is_number_integer() || size.get<double>() < 0) {
        return std::nullopt;
      }
      elements *= size.get<double>();
    }
    bytes += elements * static_cast<double>(*element);
  }
  return bytes <= kMost ? std::optional(static_cast<std::int64_t>(bytes)) : std::nullopt;
}

FlightEntry read_entry(JsonReader entry) {
  FlightEntry result;
  // ["0", "default_pg"]: its name and what it is called.
  const Json& group = entry.get("process_group");
  if (!group.is_array() || group.empty() || !group[0].is_string()) {
    entry.fail("process_group", "expected a list that begins with the group's name");
  }
  result.group = group[0].get<std::string>();
  result.number = entry.integer("collective_seq_id");
  result.kind = collective_kind_of_call(entry.text("profiling_name"));
  result.state = entry.text_or("state", "");
  result.created_ns = entry.integer("time_created_ns");
  if (result.created_ns < 0) {
    entry.fail("time_created_ns", fmt::format("{} is negative", result.created_ns));
  }
  const bool gathers = result.kind == "all_gather";
  const char* sizes = gathers ? "output_sizes" : "input_sizes";
  const char* dtypes = gathers ? "output_dtypes" : "input_dtypes";
  if (entry.has(sizes) && entry.has(dtypes)) {
    result.bytes = bytes_of(entry.get(sizes), entry.get(dtypes));
  }
  if (entry.has("duration_ms") && entry.get("duration_ms").is_number()) {
    result.duration_ms = entry.not_negative("duration_ms");
  }
  return result;
}

FlightDump read_dump(const std::string& file, int place) {
  constexpr unsigned char kPickle = 0x80;
  const std::string text = read_text(file);
  if (!text.empty() && static_cast<unsigned char>(text.front()) == kPickle) {
    throw InputError(SourcePlace{file},
                     "a pickle, which only Python reads: python3 -c \"import json, pickle, sys; "
                     "json.dump(pickle.load(open(sys.argv[1], 'rb')), open(sys.argv[2], 'w'))\" "
                     "DUMP DUMP.json writes it as JSON (run that on dumps of your own only)");
  }
  const Json json = parse_json(text, file);
  if (!json.is_object() || !json.contains("entries")) {
    throw InputError(SourcePlace{file}, "{}", kHowToDump);
  }
  JsonReader reader(json, file, 0, "", &text);
  FlightDump dump;
  dump.file = file;
  dump.rank = rank_in_name(file).value_or(place);
  dump.version = reader.text_or("version", "");
  for (JsonReader& entry : reader.objects("entries")) {
    if (entry.boolean_or("is_p2p", false)) {
      ++dump.point_to_point;
    } else {
      dump.entries.push_back(read_entry(entry));
    }
  }
  if (dump.entries.empty()) {
    throw InputError(
        SourcePlace{file},
        "no collective in it; with gloo it is _dump_fr_trace_json() that has them, with "
        "NCCL TORCH_FR_BUFFER_SIZE=2000 keeps them");
  }
  std::ranges::stable_sort(dump.entries, {}, &FlightEntry::created_ns);
  return dump;
}

auto signature(const FlightEntry& entry) {
  return std::tuple(entry.group, entry.kind, entry.bytes);
}

/// How many entries at the end repeat those `period` before them, with the first of these.
std::size_t repeated(const std::vector<FlightEntry>& entries, std::size_t period) {
  std::size_t i = entries.size();
  while (i > period && signature(entries[i - 1]) == signature(entries[i - 1 - period])) {
    --i;
  }
  return entries.size() - i + period;
}

double ms_between(const FlightEntry& a, const FlightEntry& b) {
  return static_cast<double>(b.created_ns - a.created_ns) * 1e-6;
}

}  // namespace

std::vector<FlightDump> read_flight_dumps(const std::vector<std::string>& files) {
  std::vector<FlightDump> dumps;
  for (const std::string& file : files) {
    dumps.push_back(read_dump(file, static_cast<int>(dumps.size())));
    for (std::size_t i = 0; i + 1 < dumps.size(); ++i) {
      if (dumps[i].rank == dumps.back().rank) {
        throw InputError(
            SourcePlace{file},
            "a second dump of rank {}, as {}: a name like dump_rank1.json says the rank",
            dumps.back().rank,
            printable(dumps[i].file));
      }
    }
  }
  std::ranges::sort(dumps, {}, &FlightDump::rank);
  return dumps;
}

FlightSteps flight_steps(const FlightDump& dump) {
  constexpr std::size_t kTimes = 3;
  constexpr std::size_t kLongest = 4000;  // Collectives of a step.
  const std::vector<FlightEntry>& entries = dump.entries;
  FlightSteps steps;
  std::size_t most = 0;
  for (std::size_t period = 1; period <= std::min(kLongest, entries.size() / kTimes); ++period) {
    const std::size_t covered = repeated(entries, period);
    if (covered >= kTimes * period && covered > most) {
      most = covered;
      steps.period = period;
    }
  }
  if (steps.period == 0) {
    return steps;
  }
  const std::size_t begin = entries.size() - most;
  double longest = -1;
  for (std::size_t phase = 0; phase < steps.period; ++phase) {
    std::vector<double> pauses;
    for (std::size_t i = begin + phase; i < entries.size(); i += steps.period) {
      if (i > begin) {
        pauses.push_back(ms_between(entries[i - 1], entries[i]));
      }
    }
    if (!pauses.empty() && median(pauses) > longest) {
      longest = median(pauses);
      steps.first = begin + phase;
    }
  }
  for (std::size_t i = steps.first; i + steps.period < entries.size(); i += steps.period) {
    steps.step_ms.push_back(ms_between(entries[i], entries[i + steps.period]));
  }
  return steps;
}

FlightSkew flight_skew(std::span<const FlightDump> dumps, std::span<const FlightSteps> steps) {
  std::map<std::pair<std::string, std::int64_t>, std::map<int, const FlightEntry*>> all;
  for (std::size_t d = 0; d < dumps.size(); ++d) {
    const std::size_t from = steps[d].period > 0 ? steps[d].first : 0;
    for (std::size_t i = from; i < dumps[d].entries.size(); ++i) {
      const FlightEntry& entry = dumps[d].entries[i];
      all[{entry.group, entry.number}].emplace(dumps[d].rank, &entry);
    }
  }
  FlightSkew skew;
  std::vector<double> spreads;
  for (const auto& [key, of_ranks] : all) {
    if (of_ranks.size() < dumps.size() || dumps.size() < 2) {
      continue;
    }
    const auto& [first_rank, first] = *of_ranks.begin();
    const auto other = std::ranges::find_if(of_ranks, [&first = first](const auto& one) {
      return signature(*one.second) != signature(*first);
    });
    if (other != of_ranks.end()) {
      if (skew.parted.empty()) {
        skew.parted = fmt::format(
            "collective {} of group {}: {} of {} bytes on rank {}, {} of {} "
            "on rank {}",
            key.second,
            printable(key.first),
            printable(first->kind),
            first->bytes.value_or(-1),
            first_rank,
            printable(other->second->kind),
            other->second->bytes.value_or(-1),
            other->first);
      }
      continue;
    }
    const auto created = [](const auto& one) { return one.second->created_ns; };
    const auto earliest = std::ranges::min_element(of_ranks, {}, created);
    const auto latest = std::ranges::max_element(of_ranks, {}, created);
    spreads.push_back(ms_between(*earliest->second, *latest->second));
    ++skew.last[latest->first];
  }
  skew.matched = spreads.size();
  if (!spreads.empty()) {
    skew.median_ms = median(spreads);
    skew.longest_ms = *std::ranges::max_element(spreads);
  }
  return skew;
}

}  // namespace stepsim
