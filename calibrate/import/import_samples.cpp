#include "calibrate/import/import_samples.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "calibrate/import/nccl/nccl_report.h"
#include "calibrate/samples/sample_writer.h"
#include "costmodel/base/input_error.h"
#include "costmodel/network/collective_cost.h"

namespace stepsim {
namespace {

bool has_price(const std::string& op) {
  const auto names = collective_kind_names();
  return std::ranges::find(names, op) != names.end();
}

/// The names of the devices in the rank lines, each once: "NVIDIA H100 80GB HBM3".
std::string devices_of(std::span<const NcclImport> imports) {
  std::set<std::string> names;
  for (const NcclImport& import : imports) {
    for (const NcclSweep& sweep : import.sweeps) {
      if (sweep.table.ranks) {
        for (const NcclRank& rank : *sweep.table.ranks) {
          names.insert(printable(rank.name));
        }
      }
    }
  }
  return names.empty() ? "not stated in the log" : fmt::format("{}", fmt::join(names, ", "));
}

Json import_json(const NcclImport& import, const NcclSweep& sweep) {
  Json json = {{"kind", "import"},
               {"op", sweep.op},
               {"ranks", *sweep.ranks},
               {"nodes", *sweep.nodes},
               {"source", "nccl-tests"},
               {"file", std::filesystem::path(import.log.file).filename().string()},
               {"line", sweep.table.line},
               {"type", sweep.used.front().type},
               {"ranks_from", sweep.ranks_from},
               {"device", devices_of(std::span(&import, 1))},
               {"verdict", name_of(import.verdict())},
               {"warnings", reasons_of(import, NcclVerdict::Warn)}};
  const auto put = [&json](const char* key, const std::string& value) {
    if (!value.empty()) {
      json[key] = value;
    }
  };
  put("nccl_version", import.log.nccl_version);
  put("nccl_tests_version", import.log.tests_version);
  put("measured_at", import.log.date);
  return json;
}

std::optional<double> us_of(const std::optional<NcclBlock>& block) {
  return block && block->time_us.value > 0 ? std::optional(block->time_us.value) : std::nullopt;
}

}  // namespace

Json import_header(const std::string& devices, const ImportOrigin& origin) {
  return {{"format", "stepsim-samples/1"},
          {"device", origin.device.empty() ? devices : origin.device},
          {"backend", devices == "CPU" ? "cpu" : "cuda"},  // all_reduce.py says CPU.
          {"imported_at", origin.date},
          {"command", origin.command}};
}

Json import_header(std::span<const NcclImport> imports, const ImportOrigin& origin) {
  return import_header(devices_of(imports), origin);
}

std::vector<ImportedCollective> collectives_of(std::span<const NcclImport> imports) {
  std::vector<ImportedCollective> collectives;
  std::map<std::tuple<std::string, int, int>, std::string> places;  // Of each kind of sweep.
  for (const NcclImport& import : imports) {
    for (const NcclSweep& sweep : import.sweeps) {
      // Only damaged rows, which the user has accepted, leave none to use.
      if (!has_price(sweep.op) || sweep.used.empty()) {
        continue;
      }
      const SourcePlace place{import.log.file, sweep.table.line};
      const auto [first, is_new] =
          places.emplace(std::tuple(sweep.op, *sweep.ranks, *sweep.nodes),
                         fmt::format("{}:{}", printable(place.file), place.line));
      if (!is_new) {
        throw InputError(place,
                         "a second {} of {} ranks on {} nodes, as in {}: give one of them, or make "
                         "a profile of each",
                         printable(sweep.op),
                         *sweep.ranks,
                         *sweep.nodes,
                         first->second);
      }
      ImportedCollective& collective = collectives.emplace_back();
      collective.about = import_json(import, sweep);
      for (const NcclRow& row : sweep.used) {
        collective.times.push_back({{sweep.op, *sweep.ranks, *sweep.nodes, row.bytes},
                                    {us_of(row.out_of_place), us_of(row.in_place)}});
      }
    }
  }
  return collectives;
}

SampleSet samples_of_imports(const Json& header, std::span<const ImportedCollective> imports) {
  SampleLog log;
  for (const ImportedCollective& import : imports) {
    log.add(import, "import");
  }
  SampleSet set = combine_samples(log);
  set.header = header;
  return set;
}

void write_imports(const std::string& path,
                   const Json& header,
                   std::span<const ImportedCollective> imports) {
  std::uintmax_t keep = 0;
  std::error_code ignored;
  const bool is_there = std::filesystem::is_regular_file(path, ignored) &&
                        std::filesystem::file_size(path, ignored) > 0;
  SampleLog log;
  if (is_there) {
    SampleFile file = read_sample_file(path, nullptr);
    keep = file.whole_bytes;
    log = std::move(file.log);
  }
  for (const ImportedCollective& import : imports) {
    log.add(import, path);  // Refuses what the file holds already.
  }
  SampleWriter writer(path, keep);
  if (!is_there) {
    writer.write(header.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  for (const ImportedCollective& import : imports) {
    for (const std::string& line : import_lines(import)) {
      writer.write(line);
    }
  }
}

}  // namespace stepsim
