#include "sim/report/sweep_columns.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "sim/report/notes.h"

namespace stepsim {

namespace {

using FigureOf = double (*)(const SweepRow&);
using CountOf = std::size_t (*)(const SweepRow&);
using WordOf = std::string (*)(const SweepRow&);
using Format = FigureFormat;

const PredictionSummary& swept_summary(const SweepRow& row) {
  return row.point.prediction.summary;
}

// clang-format off
const SweepColumn kSweepColumns[] = {
    {"step_ms", "step_ms", FigureOf{[](const SweepRow& r) { return swept_summary(r).step_time_ms.mean; }},
     "step ms", Format::Milliseconds, 10},
    {"interval90/0", "step_ms_low90",
     FigureOf{[](const SweepRow& r) { return swept_summary(r).step_time_ms.low90; }},
     "90 % interval", Format::Interval, 20, false,
     [](const SweepRow& r) { return swept_summary(r).step_time_ms.high90; }},
    {"interval90/1", "step_ms_high90",
     FigureOf{[](const SweepRow& r) { return swept_summary(r).step_time_ms.high90; }}},
    {"gain_of_best", "gain_of_best", FigureOf{[](const SweepRow& r) { return r.of_best.gain; }},
     "vs best", Format::SignedPercent, 30},
    {"gain_of_best_interval90/0", "gain_of_best_low90",
     FigureOf{[](const SweepRow& r) { return r.of_best.interval.first; }},
     "vs best, 90 %", Format::SignedPercentInterval, 40, false,
     [](const SweepRow& r) { return r.of_best.interval.second; }},
    {"gain_of_best_interval90/1", "gain_of_best_high90",
     FigureOf{[](const SweepRow& r) { return r.of_best.interval.second; }}},
    {"useful_tokens_per_s", "useful_tokens_per_s",
     FigureOf{[](const SweepRow& r) { return swept_summary(r).useful_tokens_per_s(); }},
     "useful tokens/s", Format::Whole, 50},
    {"useful_tokens_per_step", "useful_tokens_per_step",
     FigureOf{[](const SweepRow& r) { return swept_summary(r).useful_tokens_per_step; }}},
    {"buckets", "buckets", CountOf{[](const SweepRow& r) { return r.point.buckets; }}, "buckets", Format::Whole, 70},
    {"communication_ms", "communication_ms",
     FigureOf{[](const SweepRow& r) { return swept_summary(r).communication_ms; }},
     "collectives ms", Format::Milliseconds, 80},
    {"exposed_communication_ms", "exposed_communication_ms",
     FigureOf{[](const SweepRow& r) { return swept_summary(r).exposed_communication_ms; }}},
    {"exposed_transfer_ms", "exposed_transfer_ms",
     FigureOf{[](const SweepRow& r) { return swept_summary(r).exposed_transfer_ms(); }},
     "exposed ms", Format::Milliseconds, 90},
    {"waiting_for_ranks_ms", "waiting_for_ranks_ms",
     FigureOf{[](const SweepRow& r) { return swept_summary(r).waiting_for_ranks_ms; }},
     "waiting ms", Format::Milliseconds, 95},
    {"overlap_fraction", "overlap_fraction",
     FigureOf{[](const SweepRow& r) { return swept_summary(r).overlap_fraction; }},
     "overlap", Format::Percent, 100},
    {"last_bucket_ms", "last_bucket_ms", FigureOf{[](const SweepRow& r) { return r.point.last_bucket_ms; }},
     "last bucket ms", Format::Milliseconds, 110, true},
    {"peak_memory_mib", "peak_memory_mib",
     FigureOf{[](const SweepRow& r) { return swept_summary(r).peak_memory_mib; }},
     "memory MiB", Format::Tenths, 60},
    {"op_source", "op_source", WordOf([](const SweepRow& r) { return r.point.op_source; }),
     "costs of ops", {}, 120},
    {"collective_source", "collective_source",
     WordOf([](const SweepRow& r) { return r.point.collective_source; }), "of collectives", {}, 130},
    {"out_of_memory", "out_of_memory", WordOf([](const SweepRow& r) {
       const auto& what = r.point.prediction.out_of_memory;
       return what ? out_of_memory_text(*what) : std::string();
     })},
    {"remark", "remark", WordOf([](const SweepRow& r) { return r.remark; }), "remark", {}, 140},
};
// clang-format on

}  // namespace

std::span<const SweepColumn> sweep_columns() {
  return kSweepColumns;
}

std::vector<const SweepColumn*> shown_sweep_columns(bool over_caps) {
  std::vector<const SweepColumn*> shown;
  for (const SweepColumn& column : kSweepColumns) {
    if (column.heading != nullptr && (over_caps || !column.only_caps)) {
      shown.push_back(&column);
    }
  }
  std::ranges::stable_sort(shown, {}, &SweepColumn::place);
  return shown;
}

std::string sweep_cell(const SweepColumn& column, const SweepRow& row) {
  if (const auto* word = std::get_if<WordOf>(&column.value)) {
    return (*word)(row);
  }
  if (const auto* count = std::get_if<CountOf>(&column.value)) {
    return std::to_string((*count)(row));
  }
  const double upper = column.upper != nullptr ? column.upper(row) : 0;
  return figure_text(column.format, std::get<FigureOf>(column.value)(row), upper);
}

Json page_sweep_columns(bool over_caps) {
  Json columns = Json::array();
  for (const SweepColumn* column : shown_sweep_columns(over_caps)) {
    const std::string key = column->key;
    Json entry = {{"key", key.substr(0, key.find('/'))}, {"heading", column->heading}};
    if (!std::holds_alternative<WordOf>(column->value)) {
      entry["format"] = name_of(column->format);
    }
    columns.push_back(std::move(entry));
  }
  return columns;
}

}  // namespace stepsim
