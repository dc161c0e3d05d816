#include "costmodel/records/run_record.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "costmodel/io/json_lines.h"
#include "costmodel/io/json_row.h"

namespace stepsim {
namespace {

constexpr std::string_view kRunRecordFormat = "stepsim-run-record/1";

/// The members of the header that RunRecord::training holds.
constexpr std::array<const char*, 10> kTraining = {"model",
                                                   "wrappers",
                                                   "ddp",
                                                   "parallel",
                                                   "autocast",
                                                   "optimizer",
                                                   "loader",
                                                   "calibration",
                                                   "unit_host",
                                                   "sentinel_model"};

std::string record_header(const RunRecord& record) {
  Json header;
  header["format"] = kRunRecordFormat;
  header["scenario"] = record.scenario;
  header["policy"] = record.policy;
  if (!record.plan_profile.empty()) {
    header["plan_profile"] = record.plan_profile;
    header["plan_profile_id"] = record.plan_profile_id;
  }
  header["world_size"] = record.world_size;
  header["backend"] = record.backend;
  header["device"] = record.device;
  if (!record.host.empty()) {
    header["host"] = record.host;
  }
  header["started_at"] = record.started_at;
  header["warmup_steps"] = record.warmup_steps;
  header["repeats"] = record.repeats;
  if (record.cores > 0) {
    header["cores"] = record.cores;
  }
  header["versions"] = *record.versions;
  header["sentinel_ms"] = record.sentinel_ms;
  for (const char* member : kTraining) {
    if (record.training->contains(member)) {
      header[member] = (*record.training)[member];
    }
  }
  return header.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// A number of samples, tokens or bytes.
template <typename Row>
std::int64_t count(Row& row, std::string_view key) {
  constexpr std::int64_t kMost = std::int64_t{1} << 50U;
  const std::int64_t value = row.integer(key);
  if (value < 0) {
    row.fail(key, fmt::format("{} is negative", value));
  }
  if (value > kMost) {
    row.fail(key, fmt::format("{} is too large; expected at most {}", value, kMost));
  }
  return value;
}

/// A padded length in tokens.
template <typename Row>
std::int64_t length(Row& row, std::string_view key) {
  constexpr std::int64_t kLongest = std::int64_t{1} << 30U;  // Its square is exact.
  const std::int64_t value = count(row, key);
  if (value > kLongest) {
    row.fail(key, fmt::format("{} is too large; expected at most {}", value, kLongest));
  }
  return value;
}

/// A time of a step, which no training lets take longer than an hour; 0 when it may be left out.
template <typename Row>
double milliseconds(Row& row, std::string_view key, bool may_be_absent = false) {
  constexpr double kHour = 3.6e6;
  const double value = may_be_absent ? row.not_negative_or(key, 0) : row.not_negative(key);
  if (value > kHour) {
    row.fail(key, fmt::format("{} ms is too long; expected at most 1 hour", value));
  }
  return value;
}

template <typename Row>
std::vector<BucketRecord> read_record_buckets(Row& row) {
  std::vector<BucketRecord> buckets;
  if (!row.has("buckets")) {
    return buckets;
  }
  for (auto& bucket : row.objects("buckets")) {
    BucketRecord record;
    record.bytes = count(bucket, "bytes");
    record.launch_ms = milliseconds(bucket, "launch_ms");
    record.end_ms = milliseconds(bucket, "end_ms");
    buckets.push_back(record);
  }
  return buckets;
}

template <typename Row>
std::vector<GatherRecord> read_gathers(Row& row) {
  std::vector<GatherRecord> gathers;
  if (!row.has("gathers")) {
    return gathers;
  }
  for (auto& one : row.objects("gathers")) {
    GatherRecord gather;
    gather.unit = one.integer_in("unit", 0, kMaxInt);
    gather.launch_ms = milliseconds(one, "launch_ms");
    gather.end_ms = milliseconds(one, "end_ms");
    gather.cpu_ms = milliseconds(one, "cpu_ms", true);
    if (gather.end_ms < gather.launch_ms) {
      one.fail("end_ms",
               fmt::format("{} is before its launch_ms, {}", gather.end_ms, gather.launch_ms));
    }
    gathers.push_back(gather);
  }
  return gathers;
}

template <typename Row>
void read_micro_batches(Row& row, StepRecord& step) {
  if (!row.has("micro_batch_samples")) {
    return;
  }
  step.micro_batch_samples = row.integers("micro_batch_samples");
  step.micro_batch_max_lengths = row.integers("micro_batch_max_lengths");
  const auto negative = [](std::int64_t value) { return value < 0; };
  if (std::ranges::any_of(step.micro_batch_samples, negative) ||
      std::ranges::any_of(step.micro_batch_max_lengths, negative) ||
      std::ssize(step.micro_batch_samples) != step.micro_batches ||
      std::ssize(step.micro_batch_max_lengths) != step.micro_batches ||
      std::accumulate(step.micro_batch_samples.begin(),
                      step.micro_batch_samples.end(),
                      std::int64_t{0}) != step.samples) {
    row.fail(
        "micro_batch_samples",
        fmt::format(
            "expected {} micro-batches of {} samples in all", step.micro_batches, step.samples));
  }
}

template <typename Row>
std::vector<std::int64_t> read_record_lengths(Row& row) {
  if (!row.has("lengths")) {
    return {};
  }
  std::vector<std::int64_t> lengths = row.integers("lengths");
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 1) {
      row.fail("lengths", i, fmt::format("{}: a sample has one token at least", lengths[i]));
    }
  }
  return lengths;
}

template <typename Row>
double read_loss(Row& row) {
  if (!row.has("loss")) {
    return 0;
  }
  return row.is_null("loss") ? std::numeric_limits<double>::quiet_NaN() : row.number("loss");
}

/// Reads a step of a JsonReader or a JsonRow.
template <typename Row>
StepRecord step_of(Row& row, int world_size) {
  StepRecord step;
  step.repeat = row.has("repeat") ? row.integer_in("repeat", 0, kMaxInt) : 0;
  step.step = row.integer_in("step", 0, kMaxInt);
  step.rank = row.integer_in("rank", 0, world_size - 1);
  step.samples = count(row, "samples");
  step.max_length = length(row, "max_length");
  step.useful_tokens = count(row, "useful_tokens");
  step.padded_tokens = count(row, "padded_tokens");
  if (step.padded_tokens < step.useful_tokens) {
    row.fail("padded_tokens",
             fmt::format("{} are fewer than the {} useful ones; record lengths as the batch holds "
                         "them, cut ones cut",
                         step.padded_tokens,
                         step.useful_tokens));
  }
  step.start_ms = row.number("start_ms");
  step.data_ms = milliseconds(row, "data_ms");
  step.forward_ms = milliseconds(row, "forward_ms");
  step.backward_ms = milliseconds(row, "backward_ms");
  step.wait_ms = milliseconds(row, "wait_ms", true);
  step.optimizer_ms = milliseconds(row, "optimizer_ms");
  step.step_ms = milliseconds(row, "step_ms");
  step.thread_cpu_ms = milliseconds(row, "thread_cpu_ms", true);
  step.forward_cpu_ms = milliseconds(row, "forward_cpu_ms", true);
  step.backward_cpu_ms = milliseconds(row, "backward_cpu_ms", true);
  if (row.has("forward_host_ms")) {  // Then all of them.
    step.data_host_ms = milliseconds(row, "data_host_ms");
    step.forward_host_ms = milliseconds(row, "forward_host_ms");
    step.backward_host_ms = milliseconds(row, "backward_host_ms");
    step.optimizer_host_ms = milliseconds(row, "optimizer_host_ms");
    step.lag_ms = milliseconds(row, "lag_ms");
  }
  step.micro_batches = row.has("micro_batches") ? row.integer_in("micro_batches", 1, kMaxInt) : 1;
  step.compiled_graphs = row.has("compiled_graphs") ? count(row, "compiled_graphs") : 0;
  step.lengths = read_record_lengths(row);
  read_micro_batches(row, step);
  step.loss = read_loss(row);
  step.buckets = read_record_buckets(row);
  step.gathers = read_gathers(row);
  return step;
}

/// Reads the step of a line by simdjson; nothing where JsonReader has to look at the line.
std::optional<StepRecord> plain_step(JsonRowParser& parser,
                                     const JsonLines& lines,
                                     int world_size) {
  try {
    JsonRow row = parser.parse(lines.text());
    if (row.has("format")) {
      return std::nullopt;  // A second header.
    }
    return step_of(row, world_size);
  } catch (const RefusedRow&) {
    return std::nullopt;
  }
}

RunRecord read_record_header(JsonReader header) {
  RunRecord record;
  record.scenario = header.text_or("scenario", "");
  record.policy = header.text_or("policy", "");
  record.plan_profile = header.text_or("plan_profile", "");
  record.plan_profile_id = header.text_or("plan_profile_id", "");
  record.world_size = header.integer_in("world_size", 1, kMaxInt);
  record.backend = header.text_or("backend", "");
  record.device = header.text_or("device", "");
  record.host = header.text_or("host", "");
  record.started_at = header.text_or("started_at", "");
  record.warmup_steps =
      header.has("warmup_steps") ? header.integer_in("warmup_steps", 0, kMaxInt) : 0;
  record.repeats = header.has("repeats") ? header.integer_in("repeats", 1, kMaxInt) : 1;
  record.cores = header.has("cores") ? header.integer_in("cores", 0, kMaxInt) : 0;
  if (header.has("versions")) {
    record.versions = header.get("versions");
  }
  if (header.has("sentinel_ms")) {
    record.sentinel_ms = header.numbers("sentinel_ms");
  }
  for (const char* member : kTraining) {
    if (header.has(member)) {
      (*record.training)[member] = header.get(member);
    }
  }
  return record;
}

}  // namespace

bool reduces_every_micro_batch(const StepRecord& step) {
  const auto parts = static_cast<std::size_t>(step.micro_batches);
  const std::size_t buckets = step.buckets.size() / parts;
  if (parts == 1 || buckets == 0 || buckets * parts != step.buckets.size()) {
    return false;
  }
  for (std::size_t b = buckets; b < step.buckets.size(); ++b) {
    if (step.buckets[b].bytes != step.buckets[b - buckets].bytes) {
      return false;
    }
  }
  return true;
}

std::span<const BucketRecord> last_buckets(const StepRecord& step) {
  const std::span<const BucketRecord> all = step.buckets;
  return reduces_every_micro_batch(step)
             ? all.last(all.size() / static_cast<std::size_t>(step.micro_batches))
             : all;
}

std::string step_json(const StepRecord& step) {
  std::string text =
      fmt::format(R"({{"repeat":{},"step":{},"rank":{},"samples":{},"max_length":{},)"
                  R"("useful_tokens":{},"padded_tokens":{})",
                  step.repeat,
                  step.step,
                  step.rank,
                  step.samples,
                  step.max_length,
                  step.useful_tokens,
                  step.padded_tokens);
  const auto time = [&text](std::string_view key, double ms) {
    text += fmt::format(R"(,"{}":{})", key, json_number(ms));
  };
  time("start_ms", step.start_ms);
  time("data_ms", step.data_ms);
  time("forward_ms", step.forward_ms);
  time("backward_ms", step.backward_ms);
  time("wait_ms", step.wait_ms);
  time("optimizer_ms", step.optimizer_ms);
  time("step_ms", step.step_ms);
  time("thread_cpu_ms", step.thread_cpu_ms);
  if (step.forward_cpu_ms > 0 || step.backward_cpu_ms > 0) {
    time("forward_cpu_ms", step.forward_cpu_ms);
    time("backward_cpu_ms", step.backward_cpu_ms);
  }
  if (step.forward_host_ms > 0 || step.backward_host_ms > 0) {
    time("data_host_ms", step.data_host_ms);
    time("forward_host_ms", step.forward_host_ms);
    time("backward_host_ms", step.backward_host_ms);
    time("optimizer_host_ms", step.optimizer_host_ms);
    time("lag_ms", step.lag_ms);
  }
  if (step.compiled_graphs > 0) {
    text += fmt::format(R"(,"compiled_graphs":{})", step.compiled_graphs);
  }
  if (step.micro_batches > 1) {
    text += fmt::format(R"(,"micro_batches":{})", step.micro_batches);
  }
  if (!step.micro_batch_samples.empty()) {
    text += fmt::format(R"(,"micro_batch_samples":[{}],"micro_batch_max_lengths":[{}])",
                        fmt::join(step.micro_batch_samples, ","),
                        fmt::join(step.micro_batch_max_lengths, ","));
  }
  if (!step.lengths.empty()) {
    text += fmt::format(R"(,"lengths":[{}])", fmt::join(step.lengths, ","));
  }
  // A diverged run is still a record of its times; JSON has no word for its loss but null.
  text += fmt::format(R"(,"loss":{},"buckets":[)",
                      std::isfinite(step.loss) ? json_number(step.loss) : "null");
  for (std::size_t i = 0; i < step.buckets.size(); ++i) {
    text += fmt::format(R"({}{{"bytes":{},"launch_ms":{},"end_ms":{}}})",
                        i > 0 ? "," : "",
                        step.buckets[i].bytes,
                        json_number(step.buckets[i].launch_ms),
                        json_number(step.buckets[i].end_ms));
  }
  text += "]";
  if (!step.gathers.empty()) {
    text += R"(,"gathers":[)";
    for (std::size_t i = 0; i < step.gathers.size(); ++i) {
      text += fmt::format(R"({}{{"unit":{},"launch_ms":{},"end_ms":{},"cpu_ms":{}}})",
                          i > 0 ? "," : "",
                          step.gathers[i].unit,
                          json_number(step.gathers[i].launch_ms),
                          json_number(step.gathers[i].end_ms),
                          json_number(step.gathers[i].cpu_ms));
    }
    text += "]";
  }
  return text + "}";
}

StepRecord read_step(JsonReader row, int world_size) {
  return step_of(row, world_size);
}

bool is_sharded(const RunRecord& record) {
  const Json& training = *record.training;
  return training.is_object() && training.contains("parallel") &&
         training["parallel"].is_object() && training["parallel"].value("kind", Json()) == "fsdp2";
}

std::pair<double, double> clock_span(const RunRecord& record) {
  double from = record.steps.front().start_ms;
  double to = from;
  for (const StepRecord& step : record.steps) {
    from = std::min(from, step.start_ms);
    to = std::max(to, step.start_ms + step.step_ms);
  }
  return {from, to};
}

RunRecord read_run_record(const std::string& path, std::vector<std::string>* warnings) {
  JsonLines lines(path, CutLine::Drop);
  RunRecord record = read_record_header(lines.header(kRunRecordFormat));
  std::set<std::tuple<int, int, int>> seen;
  JsonRowParser parser;
  while (lines.next_line()) {
    std::optional<StepRecord> plain = plain_step(parser, lines, record.world_size);
    if (!plain && !lines.parse()) {
      break;
    }
    StepRecord step = plain ? std::move(*plain) : read_step(lines.reader(), record.world_size);
    const std::size_t before = seen.size();
    seen.emplace_hint(seen.end(), step.repeat, step.step, step.rank);  // Mostly in order.
    if (seen.size() == before) {
      lines.fail(fmt::format(
          "step {} of rank {} is there twice (repeat {})", step.step, step.rank, step.repeat));
    }
    record.steps.push_back(std::move(step));
  }
  if (lines.dropped_cut_line() && warnings != nullptr) {
    warnings->push_back(
        fmt::format("{}:{}: the last line is cut off and was left out", path, lines.line()));
  }
  return record;
}

void write_run_record(const std::string& path, const RunRecord& record) {
  std::string text = record_header(record);
  for (const auto& step : record.steps) {
    text += step_json(step) + "\n";
  }
  write_text_atomically(path, text);
}

}  // namespace stepsim
