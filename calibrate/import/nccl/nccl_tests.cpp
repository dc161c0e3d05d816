#include "calibrate/import/nccl/nccl_tests.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "calibrate/import/nccl/nccl_json.h"
#include "calibrate/import/nccl/nccl_text.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/io/json_file.h"

namespace stepsim {
namespace {

constexpr std::size_t kLargestFile = std::size_t{256} << 20U;

/// Whether a text begins as an object or a list of objects; launchers' labels begin with "[1,0]".
bool is_json(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const std::size_t first = std::min(text.size(), text.find_first_not_of(kSpaces));
  const bool list = text.substr(first).starts_with('[');
  const std::size_t open = list ? text.find_first_not_of(kSpaces, first + 1) : first;
  return text.substr(std::min(text.size(), open)).starts_with('{');
}

/// What a file is that holds no table which is read, where its beginning tells; else empty.
std::string known_other_file(std::string_view text) {
  constexpr std::size_t kBeginning = 4096;
  const std::string_view begin = text.substr(0, kBeginning);
  const auto has = [&](std::string_view word) { return begin.find(word) != begin.npos; };
  const bool rccl_csv = has("numCycle,collective,");
  if (rccl_csv || (has("\"busBw\"") && has("\"inPlace\""))) {
    const bool shifted = rccl_csv && has("numCycle,collective,ranks,");
    return fmt::format(
        "a file that rccl-tests wrote itself (-x FILE -Z csv or json), which is not read{}; import "
        "the table that it prints: all_reduce_perf … | tee run.log",
        shifted ? " (its header also lacks the column nodes, so that names and values do not "
                  "belong together)"
                : "");
  }
  if (begin.starts_with("\x1f\x8b")) {
    return "packed by gzip: unpack it (gunzip)";
  }
  if (is_json(begin)) {
    return "no table of nccl-tests, but JSON of another form than the objects that nccl-tests "
           "writes with -J, which are read; "
           "import the table that it prints: all_reduce_perf … | tee run.log";
  }
  if (has("size(B)") && has("count(elems)")) {
    return "a table of AWS's nccom-test, which is not read; stepcal import step-times takes step "
           "times of such machines";
  }
  return "";
}

/// "run 2: GPUS=4, all_reduce, line 9"
std::string run_text(std::size_t number, const NcclSweep& sweep) {
  return fmt::format("run {} at line {}{}",
                     number,
                     sweep.table.line,
                     sweep.table.section.empty() ? "" : " (" + sweep.table.section + ")");
}

}  // namespace

NcclVerdict NcclImport::verdict() const {
  NcclVerdict worst = max_of(reasons, &NcclReason::weight, NcclVerdict::Accept);
  for (const NcclSweep& sweep : sweeps) {
    worst = std::max(worst, sweep.verdict());
  }
  return worst;
}

const NcclSweep* NcclImport::main_sweep() const {
  const auto found =
      std::ranges::find_if(sweeps, [](const auto& sweep) { return sweep.op == "all_reduce"; });
  return found != sweeps.end() ? &*found : sweeps.empty() ? nullptr : &sweeps.front();
}

bool NcclImport::has_several_runs() const {
  std::map<std::string, int> runs;
  return std::ranges::any_of(sweeps,
                             [&runs](const NcclSweep& sweep) { return ++runs[sweep.op] > 1; });
}

NcclImport import_nccl_text(const std::string& text,
                            const std::string& file,
                            const NcclStatements& statements,
                            std::optional<int> run) {
  NcclImport result;
  result.log = is_nccl_json(text) ? read_nccl_json(text, file) : read_nccl_text(text, file);
  std::vector<NcclTable> tables = std::exchange(result.log.tables, {});
  if (run) {
    if (*run < 1 || static_cast<std::size_t>(*run) > tables.size()) {
      throw InputError(SourcePlace{file}, "--run {}: it has {} runs", *run, tables.size());
    }
    tables = {tables[static_cast<std::size_t>(*run) - 1]};
  }
  for (NcclTable& table : tables) {
    result.sweeps.push_back(check_table(result.log, std::move(table), statements));
  }
  const bool no_rows = std::ranges::all_of(
      result.sweeps, [](const NcclSweep& sweep) { return sweep.table.rows.empty(); });
  const std::string other = no_rows ? known_other_file(text) : "";
  if (!other.empty()) {
    result.sweeps.clear();
    result.log.unread_rows = 0;
    result.reasons.push_back({"other_file", other, NcclVerdict::Refuse});
  } else if (result.sweeps.empty()) {
    result.reasons.push_back({"no_rows", "no table of nccl-tests", NcclVerdict::Refuse});
  }
  if (result.has_several_runs()) {
    std::string runs;
    constexpr std::size_t kMaxShown = 8;
    for (std::size_t i = 0; i < std::min(kMaxShown, result.sweeps.size()); ++i) {
      runs += (i > 0 ? ", " : "") + run_text(i + 1, result.sweeps[i]);
    }
    result.reasons.push_back({"multi_run",
                              fmt::format("several runs: {}{}; choose one with --run N",
                                          runs,
                                          result.sweeps.size() > kMaxShown ? ", …" : ""),
                              NcclVerdict::Refuse});
  }
  if (result.log.unread_rows > 0) {
    result.reasons.push_back(
        {"unread_rows",
         fmt::format("{} {} like rows of a table and could not be read; the first, {}",
                     result.log.unread_rows,
                     result.log.unread_rows == 1 ? "line looks" : "lines look",
                     result.log.first_unread_row),
         NcclVerdict::Warn});
  }
  if (!result.log.unknown_version.empty()) {
    result.reasons.push_back({"unknown_version", result.log.unknown_version, NcclVerdict::Warn});
  }
  return result;
}

NcclImport import_nccl_tests(const std::string& path,
                             const NcclStatements& statements,
                             std::optional<int> run) {
  return import_nccl_text(read_text(path, kLargestFile), path, statements, run);
}

}  // namespace stepsim
