// Are the published logs read as their expected outcomes say? Those without a text are printed
// again from their figures, in the forms of nccl-tests.
#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "calibrate/import/nccl/nccl_report.h"
#include "calibrate/import/nccl/nccl_tests.h"
#include "costmodel/io/json_file.h"
#include "tests/costmodel/network/nccl_sweeps.h"
#include "tests/test_data.h"

namespace stepsim {
namespace {

using Rows = std::vector<std::vector<std::string>>;

constexpr std::size_t kBytes = 6;  // Columns of figures.csv.
constexpr std::size_t kOutTime = 7;
constexpr std::size_t kInTime = 8;

/// [log]: lines of figures.csv, as fields.
std::map<std::string, Rows> read_figures(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  std::map<std::string, Rows> logs;
  while (std::getline(file, line)) {
    const auto fields = test::csv_fields(line);
    logs[fields[0]].push_back(fields);
  }
  return logs;
}

void check_expected(const NcclImport& import, const Json& expected, const Rows& figures) {
  const Json found = nccl_json(import);
  CHECK(found["verdict"] == expected["verdict"]);
  CHECK(found["ranks"] == expected["ranks"]);
  REQUIRE(found["rows"].size() == expected["all_reduce_rows"].get<std::size_t>());
  REQUIRE(found["rows"].size() == figures.size());
  for (std::size_t i = 0; i < figures.size(); ++i) {
    const Json& row = found["rows"][i];
    CHECK(row["bytes"] == std::stoll(figures[i][kBytes]));
    CHECK(row["out_of_place_us"].get<double>() == std::stod(figures[i][kOutTime]));
    CHECK(row["in_place_us"].get<double>() == std::stod(figures[i][kInTime]));
  }
  if (!expected["ranks_from_factor"].is_null() && !found["ranks"].is_null()) {
    for (const std::size_t i : {0U, 1U}) {
      const double wanted = expected["ranks_from_factor"][i];
      CHECK(std::abs(found["ranks_from_factor"][i].get<double>() - wanted) <= 0.011);
    }
  }
}

/// The reasons in the text; the expected ones also know what a page said around it.
void check_refusal(const NcclImport& import, const Json& expected) {
  std::string all;
  for (const NcclVerdict weight : {NcclVerdict::Accept, NcclVerdict::Warn, NcclVerdict::Refuse}) {
    for (const std::string& reason : reasons_of(import, weight)) {
      all += reason + "\n";
    }
  }
  for (const Json& reason : expected["reasons"]) {
    const auto code = reason["code"].get<std::string>();
    if (code != "forced_algorithm" && code != "header_partial") {
      CAPTURE(code);
      CHECK(all.find(code + ":") != std::string::npos);
    }
  }
}

/// Prints a log anew, as nccl-tests would: with rank lines where the original had them.
std::string printed(const Json& expected, const Rows& figures, const std::string& label) {
  std::string text;
  const auto line = [&](const std::string& content) { text += label + content + "\n"; };
  const bool old = figures.empty() || !expected["tables"][0]["root_column"].get<bool>();
  const bool in_ms = !figures.empty() && expected["time_unit"] == "ms";
  const int ranks = expected["ranks"];
  const int per_node = expected["gpus_per_node"].is_null() ? 8 : int(expected["gpus_per_node"]);
  if (!expected["ranks_listed"].is_null()) {
    line("# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20");
    line("# Using devices");
    const int listed = expected["ranks_listed"];
    for (int rank = ranks - std::min(listed, ranks); rank < ranks; ++rank) {
      line(fmt::format("#  Rank {:2} Group  0 Pid {:6} on {:>10} device {:2} [0x{:02x}] NVIDIA X",
                       rank,
                       1000 + rank,
                       fmt::format("<host{}>", rank / per_node),
                       rank % per_node,
                       rank % per_node));
    }
  }
  if (in_ms) {
    line("#  bytes  N  type  op  time  algbw  busbw  res  time  algbw  busbw  res");
  } else {
    const std::string block = fmt::format("time  algbw  busbw  {}", old ? "error" : "#wrong");
    line(fmt::format("#   size  count  type  redop  {}  {}  {}", old ? "" : "root", block, block));
  }
  for (const auto& row : figures) {
    const auto time = [&](const std::string& us) {
      return in_ms ? fmt::format("{:.3f}", std::stod(us) / 1000) : us;
    };
    const auto check = [](const std::string& value) { return value.empty() ? "N/A" : value; };
    line(
        fmt::format("{}{:>12}  {:>12}  {:>8}  {:>6}{}  {:>7}  {:>6}  {:>6}  {:>5}  {:>7}  {:>6}  "
                    "{:>6}  {:>5}",
                    in_ms ? "#" : "",
                    row[kBytes],
                    std::stoll(row[kBytes]) / 4,
                    row[15],
                    row[16],
                    old ? "" : "      -1",
                    time(row[kOutTime]),
                    row[9],
                    row[10],
                    check(row[13]),
                    time(row[kInTime]),
                    row[11],
                    row[12],
                    check(row[14])));
  }
  if (!expected["avg_busbw_printed"].is_null()) {
    const bool failed = !expected["wrong"].empty();
    line(std::string("# Out of bounds values : ") + (failed ? "2 FAILED" : "0 OK"));
    line(fmt::format("# Avg bus bandwidth    : {} ", expected["avg_busbw_printed"].get<double>()));
  }
  if (figures.empty()) {
    text += "host0: Test CUDA failure common.cu:502 'out of memory'\n";
  }
  return text;
}

}  // namespace

TEST_CASE("published logs: ranks, rows and verdicts are as expected, and all reasons are named") {
  const auto path = test::data_file("nccl_logs/expected.json");
  if (!path) {
    return;
  }
  const std::string folder = path->substr(0, path->rfind('/') + 1);
  const auto figures = read_figures(folder + "figures.csv");
  int read = 0;
  const Json logs = parse_json(read_text(*path), *path);
  for (const auto& [name, expected] : logs.items()) {
    if (expected["file"].is_null()) {
      continue;
    }
    const auto& at_name = name;  // Clang 14 captures no structured bindings.
    CAPTURE(at_name);
    const NcclImport import =
        import_nccl_tests(folder + expected["file"].get<std::string>(), {}, std::nullopt);
    check_expected(import, expected, figures.at(name));
    check_refusal(import, expected);
    ++read;
  }
  CHECK(read == 18);
}

TEST_CASE("logs whose figures alone are published, printed in the forms of nccl-tests") {
  const auto path = test::data_file("nccl_logs/expected.json");
  if (!path) {
    return;
  }
  auto figures = read_figures(path->substr(0, path->rfind('/') + 1) + "figures.csv");
  int read = 0;
  const Json logs = parse_json(read_text(*path), *path);
  for (const auto& [name, expected] : logs.items()) {
    if (!expected["file"].is_null()) {
      continue;
    }
    for (const std::string label : {"", "0: ", "   0: ", "[1,0]<stdout>:", "[0]"}) {
      const auto& at_name = name;  // Clang 14 captures no structured bindings.
      CAPTURE(at_name);
      CAPTURE(label);
      const std::string text = printed(expected, figures[name], label);
      check_expected(import_nccl_text(text, name, {}, std::nullopt), expected, figures[name]);
    }
    ++read;
  }
  CHECK(read == 26);
}

}  // namespace stepsim
