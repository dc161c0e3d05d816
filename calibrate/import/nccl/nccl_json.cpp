#include "calibrate/import/nccl/nccl_json.h"

#include <charconv>
#include <filesystem>
#include <set>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/trimmed.h"
#include "costmodel/io/json_file.h"

namespace stepsim {
namespace {

/// Six decimals are written.
constexpr double kHalfUnit = 5e-7;

bool is_present(JsonReader& reader, std::string_view key) {
  return reader.has(key) && !reader.get(key).is_null();
}

/// Absent for null and for "nan".
std::optional<NcclBlock> read_block(JsonReader& row, std::string_view key, NcclTable* table) {
  if (!is_present(row, key)) {
    return std::nullopt;
  }
  JsonReader object = row.object(key);
  const bool is_cpu = object.has("cpu_time");
  table->cpu_time = table->cpu_time || is_cpu;
  const char* time = is_cpu ? "cpu_time" : "time";
  for (const char* name : {time, "alg_bw", "bus_bw"}) {
    if (object.get(name).is_string()) {
      return std::nullopt;
    }
  }
  NcclBlock block;
  block.time_us = {object.number(time), kHalfUnit};
  block.algbw = {object.number("alg_bw"), kHalfUnit};
  block.busbw = {object.number("bus_bw"), kHalfUnit};
  if (block.time_us.value < 0) {
    object.fail(time, "is negative");
  }
  if (is_present(object, "nwrong")) {
    block.check = object.number("nwrong");
  }
  return block;
}

/// A number, or a text such as "    -1".
std::optional<std::int64_t> read_root(JsonReader& row) {
  if (!is_present(row, "root")) {
    return std::nullopt;
  }
  if (!row.get("root").is_string()) {
    return row.integer("root");
  }
  const std::string written = row.text("root");
  const std::string_view text = trimmed(written);
  std::int64_t value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

NcclRow read_row(JsonReader& reader, NcclTable* table) {
  NcclRow row;
  row.bytes = reader.integer("size");
  row.count = reader.integer("count");
  if (row.bytes < 0 || row.count < 0) {
    reader.fail("size", "is negative");
  }
  row.type = reader.text("type");
  row.redop = reader.text_or("redop", "none");
  row.root = read_root(reader);
  row.out_of_place = read_block(reader, "out_of_place", table);
  row.in_place = read_block(reader, "in_place", table);
  return row;
}

/// One rank a process, numbered as listed; `threads` and GPUs multiply them.
void read_devices(JsonReader& config, NcclTable* table) {
  constexpr int kMax = 1 << 20;
  std::vector<NcclRank> ranks;
  std::set<std::string> hosts;
  for (JsonReader& device : config.objects("devices")) {
    NcclRank rank;
    rank.rank = device.integer_in("rank", 0, kMax);
    rank.host = device.text_or("hostname", "");
    rank.group = is_present(device, "group") ? device.integer_in("group", 0, kMax) : 0;
    rank.device = is_present(device, "device") ? device.integer_in("device", 0, kMax) : 0;
    rank.name = device.text_or("device_info", "");
    hosts.insert(rank.host);
    ranks.push_back(std::move(rank));
  }
  const int per_process =
      config.integer_in("nthreads", 1, 1024) * config.integer_in("ngpus", 1, 1024);
  if (ranks.empty() || ranks.size() > static_cast<std::size_t>(kMax) / 16 ||
      per_process > kMax / static_cast<int>(ranks.size())) {
    config.fail("devices", "must list one process or more, and no more ranks than there can be");
  }
  table->stated_ranks = static_cast<int>(ranks.size()) * per_process;
  table->stated_nodes = static_cast<int>(hosts.size());
  table->ranks = std::make_shared<const std::vector<NcclRank>>(std::move(ranks));
}

void read_footer(JsonReader& root, NcclTable* table) {
  if (is_present(root, "out_of_bounds")) {
    JsonReader bounds = root.object("out_of_bounds");
    table->out_of_bounds = bounds.integer_or("count", 0);
    table->footer_failed = bounds.text_or("okay", "true") == "false";
  }
  if (is_present(root, "average_bus_bandwidth")) {
    JsonReader average = root.object("average_bus_bandwidth");
    if (average.get("bandwidth").is_number()) {
      table->avg_busbw = PrintedNumber{average.number("bandwidth"), kHalfUnit};
    }
  }
}

/// "all_reduce" of "/opt/build/all_reduce_perf".
std::string collective_of_program(JsonReader& root) {
  if (!is_present(root, "args") || root.get("args").empty()) {
    return "";
  }
  return nccl_collective_name(std::filesystem::path(root.texts("args").front()).filename());
}

}  // namespace

bool is_nccl_json(std::string_view text) {
  return trimmed(text).starts_with('{') && text.find("\"config\"") != std::string_view::npos &&
         text.find("\"nccl_version\"") != std::string_view::npos;
}

NcclLog read_nccl_json(const std::string& text, const std::string& file) {
  const Json json = parse_json(text, file);
  JsonReader root(json, file, 0, "", &text);
  NcclLog log;
  log.file = file;
  log.is_json = true;
  const std::int64_t version = root.integer("version");
  if (version != 2 && version != 3) {
    log.unknown_version = fmt::format("JSON version {}; known are 2 and 3", version);
  }
  log.date = root.text_or("start_time", "");
  const Json& nccl = root.get("nccl_version");
  log.nccl_version = nccl.is_string() ? nccl.get<std::string>() : nccl.dump();
  NcclTable table;
  table.collective = collective_of_program(root);
  table.has_header = true;
  table.has_root = true;
  table.check_column = "#wrong";
  JsonReader config = root.object("config");
  read_devices(config, &table);
  for (JsonReader& result : root.objects("results")) {
    table.rows.push_back(read_row(result, &table));
  }
  table.blocks =
      table.rows.empty() || (table.rows[0].out_of_place && table.rows[0].in_place) ? 2 : 1;
  read_footer(root, &table);
  if (is_present(root, "errors") && !root.get("errors").empty()) {
    log.failure = printable(root.get("errors").front().dump());
  }
  log.tables.push_back(std::move(table));
  return log;
}

}  // namespace stepsim
