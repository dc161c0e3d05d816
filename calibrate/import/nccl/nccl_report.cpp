#include "calibrate/import/nccl/nccl_report.h"

#include <algorithm>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/io/json_optional.h"
#include "costmodel/terminal/table.h"

namespace stepsim {
namespace {

constexpr const char* kImportFormat = "stepsim-nccl-import/1";

Json block_time(const std::optional<NcclBlock>& block) {
  return block ? Json(block->time_us.value) : Json(nullptr);
}

void append_rows(const NcclSweep& sweep, std::optional<int> run, Json* rows) {
  for (const NcclRow& row : sweep.table.rows) {
    Json json = {{"bytes", row.bytes},
                 {"out_of_place_us", block_time(row.out_of_place)},
                 {"in_place_us", block_time(row.in_place)}};
    if (run) {
      json["run"] = *run;
    }
    rows->push_back(std::move(json));
  }
}

Json table_json(const NcclSweep& sweep) {
  Json json = {{"op", sweep.op},
               {"section", sweep.table.section},
               {"line", sweep.table.line},
               {"ranks", or_null(sweep.ranks)},
               {"rows", sweep.table.rows.size()},
               {"rows_used", sweep.used.size()},
               {"root_column", sweep.table.has_root},
               {"blocks", sweep.table.blocks},
               {"check_column", sweep.table.check_column},
               {"printed_time_unit", sweep.table.milliseconds ? "ms" : "us"}};
  return json;
}

std::string nodes_text(const NcclSweep& sweep) {
  return sweep.nodes ? fmt::format("{}{}", *sweep.nodes, sweep.nodes_assumed ? "?" : "") : "?";
}

std::string sizes_text(const NcclSweep& sweep) {
  const auto smaller = [](const auto& a, const auto& b) { return a.bytes < b.bytes; };
  if (sweep.used.empty()) {
    return "-";
  }
  const auto [lo, hi] = std::minmax_element(sweep.used.begin(), sweep.used.end(), smaller);
  return fmt::format("{} .. {}", format_bytes(Bytes(lo->bytes)), format_bytes(Bytes(hi->bytes)));
}

Paint paint_of(NcclVerdict verdict) {
  return verdict == NcclVerdict::Refuse ? Paint::Bad
         : verdict == NcclVerdict::Warn ? Paint::Warning
                                        : Paint::Plain;
}

}  // namespace

std::vector<std::string> reasons_of(const NcclImport& import, NcclVerdict weight) {
  std::vector<std::string> texts;
  const auto add = [&](const NcclReason& reason) {
    const std::string text = reason.code + ": " + reason.message;
    if (reason.weight == weight && std::ranges::find(texts, text) == texts.end()) {
      texts.push_back(text);
    }
  };
  std::ranges::for_each(import.reasons, add);
  for (const NcclSweep& sweep : import.sweeps) {
    std::ranges::for_each(sweep.reasons, add);
  }
  return texts;
}

std::string nccl_report(std::span<const NcclImport> imports, const Screen& screen) {
  Table table({"file", "ranks", "nodes", "collective", "rows", "sizes", "peak GB/s", "verdict"});
  std::string reasons;
  for (const NcclImport& import : imports) {
    const std::string file = printable(import.log.file);
    for (const NcclSweep& sweep : import.sweeps) {
      const NcclVerdict verdict = std::max(
          sweep.verdict(), import.has_several_runs() ? NcclVerdict::Refuse : NcclVerdict::Accept);
      table.add({file,
                 sweep.ranks ? std::to_string(*sweep.ranks) : "?",
                 nodes_text(sweep),
                 sweep.op.empty() ? "?" : printable(sweep.op),
                 std::to_string(sweep.table.rows.size()),
                 sizes_text(sweep),
                 fmt::format("{:.2f}", sweep.peak_busbw),
                 std::string(name_of(verdict))},
                paint_of(verdict));
    }
    if (import.sweeps.empty()) {
      table.add({file, "?", "?", "?", "0", "-", "-", std::string(name_of(import.verdict()))},
                paint_of(import.verdict()));
    }
    for (const NcclVerdict weight : {NcclVerdict::Refuse, NcclVerdict::Warn}) {
      for (const std::string& reason : reasons_of(import, weight)) {
        reasons += imports.size() > 1 ? file + ": " : "";
        reasons += fmt::format("{}: {}\n", name_of(weight), reason);
      }
    }
  }
  return table.text(screen) + reasons + "peak: bus bandwidth of nccl-tests, the best block\n";
}

Json nccl_json(const NcclImport& import) {
  const NcclSweep* sweep = import.main_sweep();
  const bool several = import.has_several_runs();
  Json json = {{"format", kImportFormat},
               {"file", import.log.file},
               {"verdict", name_of(import.verdict())},
               {"op", sweep == nullptr || sweep->op.empty() ? Json(nullptr) : Json(sweep->op)},
               {"ranks", sweep == nullptr || several ? Json(nullptr) : or_null(sweep->ranks)},
               {"nodes", nullptr}};
  if (sweep != nullptr && !several) {
    json["ranks_from"] = sweep->ranks_from;
    if (!sweep->nodes_assumed) {
      json["nodes"] = or_null(sweep->nodes);
    }
    if (sweep->factor_ranks) {
      json["ranks_from_factor"] = {sweep->factor_ranks->lo, sweep->factor_ranks->hi};
    }
  }
  json["rows"] = Json::array();
  int run = 0;
  for (const NcclSweep& one : import.sweeps) {
    ++run;
    if (several || &one == sweep) {
      append_rows(one, several ? std::optional(run) : std::nullopt, &json["rows"]);
    }
  }
  json["refused"] = reasons_of(import, NcclVerdict::Refuse);
  json["warnings"] = reasons_of(import, NcclVerdict::Warn);
  json["notes"] = reasons_of(import, NcclVerdict::Accept);
  if (sweep != nullptr && !several) {
    json["peak_busbw_gb_per_s"] = sweep->peak_busbw;
    json["block_difference"] = or_null(sweep->block_difference);
  }
  json["tables"] = mapped(import.sweeps, table_json);
  json["nccl_version"] = import.log.nccl_version;
  json["nccl_tests_version"] = import.log.tests_version;
  json["date"] = import.log.date;
  return json;
}

Json nccl_json(std::span<const NcclImport> imports) {
  if (imports.size() == 1) {
    return nccl_json(imports.front());
  }
  Json json = {{"format", kImportFormat}, {"logs", Json::array()}};
  for (const NcclImport& import : imports) {
    json["logs"].push_back(nccl_json(import));
  }
  return json;
}

}  // namespace stepsim
