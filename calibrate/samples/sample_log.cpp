#include "calibrate/samples/sample_log.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/network/collective_cost.h"
#include "costmodel/records/profile_format.h"

namespace stepsim {
namespace {

Op parse_op(JsonReader& reader) {
  Op op;
  op.op_class = parse_op_class(reader.text("op"));
  op.pass = parse_pass(reader.text("pass"));
  op.rows = reader.parsed("rows", parse_row_unit);
  op.n = reader.integer("n");
  op.k = reader.integer("k");
  op.heads = reader.integer("heads");
  op.kv_heads = reader.integer("kv_heads");
  op.head_dim = reader.integer("head_dim");
  op.causal = reader.boolean_or("causal", false);
  op.varlen = reader.boolean_or("varlen", false);
  op.window = reader.integer_or("window", 0);
  op.each = reader.integer_or("each", 1);
  op.keys = reader.integer_or("keys", 0);
  op.matrices = reader.integer_or("matrices", 1);
  op.dtype = parse_dtype(reader.text("dtype"));
  return op;
}

/// A list of microseconds as seconds; zero is what the clock says of an op too short for it.
std::vector<double> seconds_of(const JsonReader& reader, const char* key, const Json& list) {
  std::vector<double> seconds;
  for (const Json& value : list) {
    const double us = value.is_number() ? value.get<double>() : -1;
    constexpr double kLongestUs = 3.6e9;  // As profiles take them.
    if (!(us >= 0 && us <= kLongestUs)) {
      reader.fail(key, "must hold times in microseconds, from 0 to one hour");
    }
    seconds.push_back(us * 1e-6);
  }
  return seconds;
}

const Json& list_of(JsonReader& reader, const char* key) {
  const Json& list = reader.get(key);
  if (!list.is_array() || list.empty()) {
    reader.fail(key, "must be a list that is not empty");
  }
  return list;
}

constexpr int kMaxLoggedRanks = 1 << 24;

/// Collective, ranks and nodes of a line.
std::tuple<std::string, int, int> group_of(JsonReader& reader) {
  const std::string op(name_of(reader.parsed("op", parse_collective_kind)));
  const int ranks = reader.integer_in("ranks", 2, kMaxLoggedRanks);
  return {op, ranks, reader.integer_in("nodes", 1, ranks)};
}

}  // namespace

void SampleLog::add(const Json& line, const std::string& file, int number) {
  if (!line.is_object()) {
    throw InputError({file, number, 0, ""}, "a measurement must be a JSON object");
  }
  JsonReader reader(line, file, number, "");
  const std::string kind = reader.text("kind");
  if (kind == "pass") {
    add_pass(reader, file, number);
  } else if (kind == "step") {
    add_step(reader);
  } else if (kind == "all_reduce" || (kind == "collective" && reader.has("us"))) {
    add_measured(reader, kind);
  } else if (kind == "import") {
    add_import(reader, line);
  } else if (kind == "collective") {
    add_imported(reader);
  } else if (kind == "overlap") {
    add_overlap(reader);
  } else if (kind == "refused") {
    add_refused(reader);
  } else if (kind == "host") {
    add_host(reader, hosts_);
  } else if (kind == "meeting") {
    add_host(reader, meetings_);
  } else if (kind == "unit_host") {
    unit_hosts_.push_back(read_unit_host(reader));
  } else if (kind == "disturbed") {
    disturbed_.dropped += reader.integer_in("dropped", 0, kMaxInt);
    disturbed_.throttled += reader.integer_in("throttled", 0, kMaxInt);
    disturbed_.cooled_seconds += reader.number("cooled_seconds");
  } else if (kind == "prepared") {
    add_prepared(reader, file, number);
  } else if (kind == "sentinel") {
    sentinels_.push_back({reader.number("step_us") * 1e-6, reader.number("at_seconds")});
    last_at_ = std::max(last_at_, reader.number("at_seconds"));
  } else if (kind == "pass_end") {
    ended_.insert(reader.integer_in("pass", 0, kMaxInt));
    last_at_ = std::max(last_at_, reader.number("at_seconds"));
  } else {
    const std::array<std::string, 14> known = {"pass",
                                               "step",
                                               "all_reduce",
                                               "sentinel",
                                               "pass_end",
                                               "import",
                                               "collective",
                                               "overlap",
                                               "prepared",
                                               "refused",
                                               "host",
                                               "meeting",
                                               "unit_host",
                                               "disturbed"};
    reader.fail("kind", unknown_name("kind of line", printable(kind), known));
  }
}

void SampleLog::add(const ImportedCollective& import, const std::string& file) {
  JsonReader reader(*import.about, file, 0, "");
  add_import(reader, *import.about);
  for (const auto& [size, time] : import.times) {
    add_time(reader, size, time);
  }
}

/// The most times that a step runs one op.
constexpr int kMostRunsOfAnOp = 1'000'000;

void SampleLog::add_pass(JsonReader& reader, const std::string& file, int number) {
  PassOps ops;
  for (const Json& entry : list_of(reader, "ops")) {
    if (!entry.is_object()) {
      reader.fail("ops", "must hold objects");
    }
    JsonReader member(entry, file, number, "ops");
    const Op op = parse_op(member);
    const auto [place, is_new] = op_index_.emplace(op_key(op), ops_.size());
    if (is_new) {
      ops_.push_back(op);
    }
    ops.op.push_back(place->second);
    ops.counts.push_back(member.integer_in("count", 1, kMostRunsOfAnOp));
  }
  passes_[reader.integer_in("pass", 0, kMaxInt)] = std::move(ops);
}

/// Each line names all plans that its process has built so far.
void SampleLog::add_prepared(JsonReader& reader, const std::string& file, int number) {
  std::vector<double> seconds;
  for (const Json& plan : list_of(reader, "plans")) {
    if (!plan.is_object()) {
      reader.fail("plans", "must hold objects");
    }
    seconds.push_back(JsonReader(plan, file, number, "plans").number("seconds"));
  }
  if (seconds.size() >= plan_seconds_.size()) {
    plan_seconds_ = std::move(seconds);
  }
}

PointLog& SampleLog::point_of(const BatchShape& batch) {
  const auto [place, is_new] =
      point_index_.emplace(std::pair(batch.samples, batch.max_length), points_.size());
  if (is_new) {
    points_.emplace_back();
    points_.back().batch = batch;
  }
  return points_[place->second];
}

void SampleLog::add_step(JsonReader& reader) {
  const int pass = reader.integer_in("pass", 0, kMaxInt);
  const auto ops = passes_.find(pass);
  if (ops == passes_.end()) {
    reader.fail("pass", "the list of this pass's ops is missing above");
  }
  const BatchShape batch{reader.integer_in("samples", 1, kMaxInt),
                         reader.integer_in("max_length", 1, kMaxInt),
                         reader.integer("useful_tokens"),
                         reader.not_negative("sum_squares")};
  if (batch.useful_tokens < 0 || batch.useful_tokens > batch.samples * batch.max_length) {
    reader.fail("useful_tokens", "must be from 0 to samples x max_length");
  }
  PointLog& point = point_of(batch);
  for (const Json& row : list_of(reader, "op_us")) {
    const std::vector<double> seconds = seconds_of(reader, "op_us", row);
    if (seconds.size() != ops->second.op.size()) {
      reader.fail("op_us",
                  fmt::format("{} times for {} ops", seconds.size(), ops->second.op.size()));
    }
    double total = 0;
    for (std::size_t i = 0; i < seconds.size(); ++i) {
      const std::size_t op = ops->second.op[i];
      point.op_seconds[op].push_back(seconds[i]);
      point.op_runs[op] += ops->second.counts[i];
      total += seconds[i] * ops->second.counts[i];
    }
    point.step_seconds.push_back(total);
    ++measurements_;
  }
  point.ranks_of_pass[pass].insert(reader.integer_in("rank", 0, kMaxInt));
  last_at_ = std::max(last_at_, reader.number("at_seconds"));
}

void SampleLog::add_measured(JsonReader& reader, const std::string& kind) {
  // Lines of kind "all_reduce" are of stepcal 0.1 and from one machine.
  const auto group = kind == "all_reduce"
                         ? std::tuple(kind, reader.integer_in("ranks", 1, kMaxLoggedRanks), 1)
                         : group_of(reader);
  if (import_groups_.count(group) > 0) {
    const auto& [op, ranks, nodes] = group;
    reader.fail("ranks",
                fmt::format("{} of {} ranks on {} nodes is imported above", op, ranks, nodes));
  }
  CollectiveTask task;
  task.kind = parse_collective_kind(std::get<0>(group));
  task.bytes = reader.integer("bytes");
  task.pipelined = reader.boolean_or("pipelined", false);
  std::vector<double>& all =
      measured_[{std::tuple_cat(group, std::tuple(task.bytes)), task.pipelined}];
  for (const double seconds : seconds_of(reader, "us", list_of(reader, "us"))) {
    all.push_back(seconds);
    ++measurements_;
  }
  collectives_done_.emplace(reader.integer_in("pass", 0, kMaxInt), task);
}

void SampleLog::add_import(JsonReader& reader, const Json& line) {
  const auto group = group_of(reader);
  const auto& [op, ranks, nodes] = group;
  const bool measured = std::ranges::any_of(measured_, [&group](const auto& entry) {
    const auto& [one_op, one_ranks, one_nodes, bytes] = entry.first.first;
    return std::tuple(one_op, one_ranks, one_nodes) == group;
  });
  if (measured || !import_groups_.insert(group).second) {
    reader.fail("op",
                fmt::format("a second {} of {} ranks on {} nodes; keep them in files of their own",
                            op,
                            ranks,
                            nodes));
  }
  imports_->push_back(line);
}

void SampleLog::add_imported(JsonReader& reader) {
  const auto group = group_of(reader);
  if (import_groups_.count(group) == 0) {
    reader.fail("op", "the line of this import is missing above");
  }
  const std::int64_t bytes = reader.integer("bytes");
  ImportedTime time;
  for (const auto& [key, value] : {std::pair("out_of_place_us", &time.out_of_place_us),
                                   std::pair("in_place_us", &time.in_place_us)}) {
    if (reader.has(key)) {
      *value = reader.number(key);
    }
  }
  add_time(reader, std::tuple_cat(group, std::tuple(bytes)), time);
}

void SampleLog::add_time(const JsonReader& reader,
                         const ImportedSize& size,
                         const ImportedTime& time) {
  if (std::get<std::int64_t>(size) < 1) {
    reader.fail("bytes", "must be 1 or more");
  }
  for (const auto& [key, value] : {std::pair("out_of_place_us", time.out_of_place_us),
                                   std::pair("in_place_us", time.in_place_us)}) {
    constexpr double kLongestUs = 3.6e9;  // As profiles take them.
    if (value && !(*value > 0 && *value <= kLongestUs)) {
      reader.fail(key, "must be above 0, and no longer than one hour");
    }
  }
  if (!time.out_of_place_us && !time.in_place_us) {
    reader.fail("bytes", "neither out_of_place_us nor in_place_us is there");
  }
  imported_[size].push_back(time);
  ++measurements_;
}

void SampleLog::add_overlap(JsonReader& reader) {
  constexpr int kMaxChannels = 1 << 16;
  static const std::array<std::string, 3> kWork = {"gemm", "attention", "memory"};
  OverlapSample sample;
  sample.channels = reader.integer_in("channels", 1, kMaxChannels);
  sample.collective_bytes = reader.integer("collective_bytes");
  if (sample.collective_bytes < 1) {
    reader.fail("collective_bytes", "must be 1 or more");
  }
  sample.compute = reader.text("compute");
  if (std::ranges::find(kWork, sample.compute) == kWork.end()) {
    reader.fail("compute", unknown_name("compute", printable(sample.compute), kWork));
  }
  if (reader.has("compute_blocks")) {
    sample.compute_blocks = reader.integer_in("compute_blocks", 1, std::numeric_limits<int>::max());
  }
  for (const auto& [key, seconds] : {std::pair("collective_alone_us", &sample.collective_alone),
                                     std::pair("collective_beside_us", &sample.collective_beside),
                                     std::pair("compute_alone_us", &sample.compute_alone),
                                     std::pair("compute_beside_us", &sample.compute_beside)}) {
    if (seconds == &sample.collective_beside && !reader.has(key)) {
      continue;  // A stand-in took the collective's place.
    }
    *seconds = reader.number(key) * 1e-6;
    if (!(*seconds > 0)) {
      reader.fail(key, "must be above 0");
    }
  }
  overlaps_.push_back(std::move(sample));
  ++measurements_;
}

void SampleLog::add_refused(JsonReader& reader) {
  const RefusedPoint refused{
      {reader.integer_in("samples", 0, kMaxInt), reader.integer_in("max_length", 0, kMaxInt)},
      reader.text("why")};
  if (!is_refused(refused.point)) {
    refused_.push_back(refused);
  }
}

void SampleLog::add_host(JsonReader& reader, std::vector<HostSample>& samples) {
  HostSample host;
  host.point = {reader.integer_in("samples", 1, kMaxInt),
                reader.integer_in("max_length", 1, kMaxInt)};
  host.ops = reader.integer_in("ops", 1, kMostRunsOfAnOp);
  if (reader.has("copies")) {
    host.copies = reader.integer_in("copies", 0, host.ops - 1);
  }
  host.round = reader.integer_in("pass", 0, kMaxInt);
  for (const auto& [key, seconds] : {std::pair("forward_us", &host.forward_seconds),
                                     std::pair("backward_us", &host.backward_seconds),
                                     std::pair("optimizer_us", &host.optimizer_seconds)}) {
    *seconds = reader.number(key) * 1e-6;  // A meeting's is a difference.
  }
  samples.push_back(host);
}

bool SampleLog::is_refused(const GridPoint& point) const {
  return std::ranges::find(refused_, point, &RefusedPoint::point) != refused_.end();
}

const PointLog* SampleLog::find(const GridPoint& point) const {
  const auto place = point_index_.find({point.samples, point.length});
  return place == point_index_.end() ? nullptr : &points_[place->second];
}

bool SampleLog::has_all_ranks(const GridPoint& point, int pass, int ranks) const {
  const PointLog* log = find(point);
  if (log == nullptr) {
    return false;
  }
  const auto place = log->ranks_of_pass.find(pass);
  return place != log->ranks_of_pass.end() &&
         place->second.size() >= static_cast<std::size_t>(ranks);
}

bool SampleLog::has_collective(const CollectiveTask& task, int pass) const {
  return collectives_done_.count({pass, task}) > 0;
}

}  // namespace stepsim
