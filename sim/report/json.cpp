#include "sim/report/json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "sim/report/notes.h"
#include "sim/report/prediction_columns.h"
#include "sim/report/shape_report.h"

namespace stepsim {

namespace {

constexpr const char* kFormat = "stepsim-prediction/2";
/// Its parts of the step are of the run without noise; useful_tokens_per_s is over another time.
constexpr const char* kFormat1 = "stepsim-prediction/1";

/// Stands for rows that are streamed; no text of a scenario stands behind "steps".
constexpr const char* kStreamedRows = "stepsim: rows";

/// Appends one figure as the JSON library writes it.
template <typename Value>
void add_figure(Value value, fmt::memory_buffer& text) {
  if constexpr (std::is_same_v<Value, double>) {
    if (!std::isfinite(value)) {
      text.append(std::string_view("null"));
      return;
    }
    std::array<char, 64> digits{};
    const char* end = nlohmann::detail::to_chars(digits.begin(), digits.end(), value);
    text.append(digits.data(), end);
  } else {
    fmt::format_to(std::back_inserter(text), "{}", value);
  }
}

/// Writes the rows as the list that the JSON library would make of them, four levels deep.
void write_rows(const std::vector<RankStepResult>& rows, const TextSink& sink) {
  constexpr std::size_t kPiece = 1 << 16;
  const std::span<const StepColumn> columns = step_columns();
  if (rows.empty()) {
    sink("[]");
    return;
  }
  fmt::memory_buffer text;
  text.append(std::string_view("["));
  for (const RankStepResult& row : rows) {
    text.append(std::string_view(&row == &rows.front() ? "\n    {" : ",\n    {"));
    for (const StepColumn& column : columns) {
      fmt::format_to(std::back_inserter(text),
                     "{}\n     \"{}\": ",
                     &column == &columns.front() ? "" : ",",
                     column.name);
      std::visit([&](auto member) { add_figure(row.*member, text); }, column.member);
    }
    text.append(std::string_view("\n    }"));
    if (text.size() > kPiece) {
      sink({text.data(), text.size()});
      text.clear();
    }
  }
  text.append(std::string_view("\n   ]"));
  sink({text.data(), text.size()});
}

Json step_json(const RankStepResult& row) {
  Json json;
  for (const StepColumn& column : step_columns()) {
    std::visit([&](auto member) { json[column.name] = row.*member; }, column.member);
  }
  return json;
}

Json varlen_json(const VarlenUse& use) {
  return {{"max_num_docs", use.max_num_docs},
          {"most_documents", use.most_documents},
          {"batches", use.batches},
          {"merged_batches", use.merged_batches},
          {"merged_documents", use.merged_documents},
          {"cross_document_tokens", use.cross_document_tokens},
          {"discarded_batches", use.discarded_batches},
          {"trailing_batches", use.trailing_batches},
          {"lost_documents", use.lost_documents},
          {"lost_tokens", use.lost_tokens},
          {"cut_documents", use.cut_documents},
          {"cut_tokens", use.cut_tokens},
          {"empty_blocks_per_head", use.empty_blocks},
          {"blocks_per_head", use.blocks}};
}

/// What the rank that needs most memory holds over its step, event by event.
Json memory_curve_json(const MemoryCurve& curve) {
  Json points = Json::array();
  for (const MemoryPoint& point : curve.points) {
    points.push_back({{"ms", point.ms},
                      {"micro_batch", point.micro_batch},
                      {"pass", point.backward ? "backward" : "forward"},
                      {"event", point.event},
                      {"mib", point.mib}});
  }
  return {{"step", curve.step},
          {"rank", curve.rank},
          {"parts", curve.parts},
          {"peak", curve.peak},
          {"points", std::move(points)}};
}

RankStepResult read_row(JsonReader reader) {
  RankStepResult row;
  for (const StepColumn& column : step_columns()) {
    if (const auto* member = std::get_if<double RankStepResult::*>(&column.member)) {
      // The memory and the wait for ranks are not asked for: no measured step states them.
      const bool compared =
          *member != &RankStepResult::peak_memory_mib &&
          *member != static_cast<double RankStepResult::*>(&RankStepResult::waiting_ms);
      row.*(*member) = compared ? reader.number(column.name) : 0;
    } else if (const auto* count = std::get_if<std::int64_t RankStepResult::*>(&column.member)) {
      row.*(*count) = reader.integer(column.name);
    } else {
      row.*std::get<int RankStepResult::*>(column.member) =
          static_cast<int>(reader.integer(column.name));
    }
  }
  return row;
}

/// The level at which the summary's columns have the interval.
constexpr int kColumnsLevel = 90;

std::string interval_key(int percent, bool same_hour) {
  return fmt::format("interval{}{}", percent, same_hour ? "_same_hour" : "");
}

/// Adds the intervals that no column has to the times of a step.
void add_intervals(const std::vector<MeanInterval>& intervals, Json& times) {
  for (const MeanInterval& one : intervals) {
    if (one.percent != kColumnsLevel) {
      times[interval_key(one.percent, false)] = {one.low, one.high};
      times[interval_key(one.percent, true)] = {one.same_hour_low, one.same_hour_high};
    }
  }
}

std::pair<double, double> read_interval(JsonReader& times, int percent, bool same_hour) {
  const std::string key = interval_key(percent, same_hour);
  const Json& interval = times.get(key);
  if (!interval.is_array() || interval.size() != 2 || !interval[0].is_number() ||
      !interval[1].is_number()) {
    times.fail(key, "expected [low, high]");
  }
  return {interval[0].get<double>(), interval[1].get<double>()};
}

/// The intervals of a step's mean; files of before have that of 90 % alone, and the first of them
/// none of the same hour.
std::vector<MeanInterval> read_intervals(JsonReader& times) {
  std::vector<MeanInterval> intervals;
  for (const int percent : {50, 80, kColumnsLevel, 95}) {
    if (percent != kColumnsLevel && !times.has(interval_key(percent, false))) {
      continue;
    }
    const auto [low, high] = read_interval(times, percent, false);
    const auto [same_low, same_high] =
        read_interval(times, percent, times.has(interval_key(percent, true)));
    intervals.push_back({percent, low, high, same_low, same_high});
  }
  return intervals;
}

Prediction read_prediction(const Json& entry, const std::string& path, const std::string& place) {
  JsonReader reader(entry, path, 0, place);
  Prediction prediction;
  prediction.scenario = reader.text("scenario");
  prediction.policy = reader.text("policy");
  prediction.profile = reader.text_or("profile", "");
  prediction.profile_id = reader.text_or("profile_id", "");
  JsonReader summary(reader.get("summary"), path, 0, place + ".summary");
  JsonReader times(summary.get("step_time_ms"), path, 0, place + ".summary.step_time_ms");
  StepTimeSummary& step = prediction.summary.step_time_ms;
  step.mean = times.number("mean");
  step.p50 = times.number("p50");
  step.p95 = times.number("p95");
  step.p99 = times.number_or("p99", step.p95);
  step.max = times.number("max");
  prediction.intervals = read_intervals(times);
  const auto of90 = std::ranges::find(prediction.intervals, kColumnsLevel, &MeanInterval::percent);
  step.low90 = of90->low;
  step.high90 = of90->high;
  step.same_hour_low90 = of90->same_hour_low;
  step.same_hour_high90 = of90->same_hour_high;
  prediction.summary.useful_tokens_per_step = summary.number("useful_tokens_per_step");
  prediction.summary.data_ms = summary.number("data_ms");
  prediction.summary.forward_ms = summary.number("forward_ms");
  prediction.summary.backward_ms = summary.number("backward_ms");
  prediction.summary.exposed_communication_ms = summary.number("exposed_communication_ms");
  prediction.summary.optimizer_ms = summary.number("optimizer_ms");
  if (reader.has("steps")) {
    const Json& rows = reader.get("steps");
    if (!rows.is_array()) {
      reader.fail("steps", "expected a list");
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      prediction.steps.push_back(
          read_row(JsonReader(rows[i], path, 0, place + ".steps[" + std::to_string(i) + "]")));
    }
  }
  return prediction;
}

}  // namespace

Json prediction_json(const std::vector<Prediction>& predictions, StepRows rows) {
  Json list = Json::array();
  for (const Prediction& prediction : predictions) {
    Json entry = {{"scenario", prediction.scenario},
                  {"policy", prediction.policy},
                  {"profile", prediction.profile},
                  {"profile_id", prediction.profile_id},
                  {"summary", row_json(summary_columns(), prediction.summary)}};
    add_intervals(prediction.intervals, entry["summary"]["step_time_ms"]);
    if (prediction.token_budget) {
      entry["largest_token_budget"] = {{"tokens", prediction.token_budget->tokens},
                                       {"length", prediction.token_budget->length}};
    }
    if (const auto& misfit = prediction.out_of_memory) {
      entry["out_of_memory"] = {{"step", misfit->step},
                                {"rank", misfit->rank},
                                {"needed_bytes", misfit->needed.value()},
                                {"capacity_bytes", misfit->capacity.value()}};
    }
    if (prediction.largest_memory_mib > prediction.summary.peak_memory_mib) {
      entry["largest_memory_mib"] = prediction.largest_memory_mib;
    }
    if (prediction.memory_curve) {
      entry["memory_curve"] = memory_curve_json(*prediction.memory_curve);
    }
    if (rows == StepRows::Streamed) {
      entry["steps"] = kStreamedRows;
    } else if (rows == StepRows::All) {
      Json all = mapped(prediction.steps, step_json);
      entry["steps"] = std::move(all);
    }
    if (prediction.training) {
      const TrainingEffects& effects = *prediction.training;
      entry["training"] = {{"samples", effects.samples},
                           {"tokens", effects.tokens},
                           {"lost_samples", effects.lost_samples},
                           {"lost_tokens", effects.lost_tokens},
                           {"cropped_samples", effects.cropped_samples},
                           {"cropped_tokens", effects.cropped_tokens},
                           {"split_samples", effects.split_samples},
                           {"repeated_samples", effects.repeated_samples},
                           {"repeated_tokens", effects.repeated_tokens},
                           {"over_budget_samples", effects.over_budget_samples},
                           {"fewest_steps", effects.fewest_steps},
                           {"most_steps", effects.most_steps},
                           {"sample_skew", effects.sample_skew},
                           {"token_skew", effects.token_skew},
                           {"displacement", effects.displacement},
                           {"distinct_shapes", effects.distinct_shapes}};
      if (const auto ratio = effects.target_padding_ratio()) {
        entry["training"]["useful_target_tokens"] = effects.useful_target_tokens;
        entry["training"]["padded_target_tokens"] = effects.padded_target_tokens;
        entry["training"]["target_padding_ratio"] = *ratio;
      }
    }
    if (prediction.shapes) {
      entry["new_shapes"] = shape_json(*prediction.shapes);
    }
    if (prediction.varlen) {
      entry["varlen"] = varlen_json(*prediction.varlen);
    }
    entry["collective_sources"] = mapped(
        prediction.collective_origins, [](const CollectiveOrigin& origin) { return origin.text; });
    entry["warnings"] = note_texts(prediction);
    list.push_back(std::move(entry));
  }
  return {{"format", kFormat}, {"predictions", std::move(list)}};
}

void write_streamed(const Json& json,
                    const std::vector<Prediction>& predictions,
                    const TextSink& sink) {
  const std::string text = json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  const std::string mark = fmt::format("\n   \"steps\": \"{}\"", kStreamedRows);
  const std::string kept = "\n   \"steps\": ";
  std::string_view left = text;
  for (const Prediction& prediction : predictions) {
    const std::size_t place = left.find(mark);
    if (place == std::string_view::npos) {
      break;
    }
    sink(left.substr(0, place));
    sink(kept);
    write_rows(prediction.steps, sink);
    left.remove_prefix(place + mark.size());
  }
  sink(left);
}

std::vector<Prediction> read_predictions(const std::string& path) {
  const Json file = parse_json(read_text(path), path);
  JsonReader reader(file, path, 0, "");
  reader.require_format(reader.text("format") == kFormat1 ? kFormat1 : kFormat);
  const Json& list = reader.get("predictions");
  if (!list.is_array()) {
    reader.fail("predictions", "expected a list");
  }
  std::vector<Prediction> predictions;
  for (std::size_t i = 0; i < list.size(); ++i) {
    predictions.push_back(read_prediction(list[i], path, "predictions[" + std::to_string(i) + "]"));
  }
  return predictions;
}

Json memory_parts_json(const MemoryParts& memory) {
  Json mib = Json::object();
  for (const MemoryPart& part : memory.parts) {
    mib[part.name] = part.mib;
  }
  return {{"step", memory.step}, {"rank", memory.rank}, {"mib", std::move(mib)}};
}

}  // namespace stepsim
