#include "sim/report/sweep/sweep_columns.h"

#include <algorithm>

#include <fmt/core.h>

#include "sim/report/notes.h"

namespace stepsim {

namespace {

using Format = FigureFormat;

const PredictionSummary& swept_summary(const SweepRow& row) {
  return row.point.prediction.summary;
}

bool sweeps_caps(std::span<const SweepRow> rows) {
  return !rows.empty() && rows.front().over_caps;
}

/// DDP or shards is asked of a table that fits 80 columns: time, memory and what stands out of
/// both.
bool sweeps_no_shards(std::span<const SweepRow> rows) {
  return rows.empty() || !rows.front().over_shards;
}

bool shows_waiting(std::span<const SweepRow> rows) {
  constexpr double kWorthAColumn = 0.005;  // Of the step.
  return sweeps_no_shards(rows) || std::ranges::any_of(rows, [](const SweepRow& row) {
           const PredictionSummary& s = swept_summary(row);
           return !row.is_blank() && s.waiting_for_ranks_ms > kWorthAColumn * s.step_time_ms.mean;
         });
}

/// A figure beside the best point's; none where nothing fits into memory.
Cell compared(const SweepRow& row, double figure) {
  return row.compares ? Cell(figure) : Cell();
}

// clang-format off
const Column<SweepRow> kSweepColumns[] = {
    {"step_ms", "step_ms", [](const SweepRow& r) -> Cell { return swept_summary(r).step_time_ms.mean; },
     "step ms", Format::MeanMilliseconds, 10,
     [](const SweepRow& r) -> Cell { return swept_summary(r).step_time_ms.width90(); }},
    {"interval90/0", "step_ms_low90",
     [](const SweepRow& r) -> Cell { return swept_summary(r).step_time_ms.low90; },
     "90 % interval", Format::Interval, 20,
     [](const SweepRow& r) -> Cell { return swept_summary(r).step_time_ms.high90; }},
    {"interval90/1", "step_ms_high90",
     [](const SweepRow& r) -> Cell { return swept_summary(r).step_time_ms.high90; }},
    {"gain_of_best", "gain_of_best", [](const SweepRow& r) { return compared(r, r.of_best.gain); },
     "vs best", Format::SignedPercent, 30},
    {"gain_of_best_interval90/0", "gain_of_best_low90",
     [](const SweepRow& r) { return compared(r, r.of_best.interval.first); },
     "vs best, 90 %", Format::SignedPercentInterval, 40,
     [](const SweepRow& r) { return compared(r, r.of_best.interval.second); }, true, sweeps_no_shards, false, if_wide<SweepRow>},
    {"gain_of_best_interval90/1", "gain_of_best_high90",
     [](const SweepRow& r) { return compared(r, r.of_best.interval.second); }},
    {"useful_tokens_per_s", "useful_tokens_per_s",
     [](const SweepRow& r) -> Cell { return swept_summary(r).useful_tokens_per_s(); },
     "useful tokens/s", Format::Whole, 50, nullptr, true, sweeps_no_shards, false, if_wide<SweepRow>},
    {"useful_tokens_per_step", "useful_tokens_per_step",
     [](const SweepRow& r) -> Cell { return swept_summary(r).useful_tokens_per_step; }},
    {"buckets", "buckets", [](const SweepRow& r) -> Cell { return static_cast<std::int64_t>(r.point.buckets); }, "buckets", Format::Whole, 70, nullptr, true, sweeps_no_shards, false, if_wide<SweepRow>},
    {"communication_ms", "communication_ms",
     [](const SweepRow& r) -> Cell { return swept_summary(r).communication_ms; },
     "collectives ms", Format::Milliseconds, 80, nullptr, true, sweeps_no_shards, false, if_wide<SweepRow>},
    {"exposed_communication_ms", "exposed_communication_ms",
     [](const SweepRow& r) -> Cell { return swept_summary(r).exposed_communication_ms; }},
    {"exposed_transfer_ms", "exposed_transfer_ms",
     [](const SweepRow& r) -> Cell { return swept_summary(r).exposed_transfer_ms(); },
     "exposed ms", Format::Milliseconds, 90},
    {"waiting_for_ranks_ms", "waiting_for_ranks_ms",
     [](const SweepRow& r) -> Cell { return swept_summary(r).waiting_for_ranks_ms; },
     "waiting ms", Format::Milliseconds, 95, nullptr, true, shows_waiting, false, sweeps_no_shards},
    {"overlap_fraction", "overlap_fraction",
     [](const SweepRow& r) -> Cell { return swept_summary(r).overlap_fraction; },
     "overlap", Format::Percent, 100, nullptr, true, sweeps_no_shards, false, if_wide<SweepRow>},
    {"last_bucket_ms", "last_bucket_ms", [](const SweepRow& r) -> Cell { return r.point.last_bucket_ms; },
     "last bucket ms", Format::Milliseconds, 110, nullptr, true, sweeps_caps, false, if_wide<SweepRow>},
    {"peak_memory_mib", "peak_memory_mib",
     [](const SweepRow& r) -> Cell { return r.point.prediction.largest_memory_mib; },
     "memory", Format::Memory, 60, nullptr, true, nullptr, false, sweeps_no_shards},
    {"op_source", "op_source", [](const SweepRow& r) -> Cell { return r.point.op_source; },
     "costs of ops", {}, 120, nullptr, true, sweeps_no_shards, false, if_wide<SweepRow>},
    {"collective_source", "collective_source",
     [](const SweepRow& r) -> Cell { return r.point.collective_source; }, "of collectives", {}, 130, nullptr, true, sweeps_no_shards, false, if_wide<SweepRow>},
    {"out_of_memory", "out_of_memory", [](const SweepRow& r) -> Cell {
       const auto& what = r.point.prediction.out_of_memory;
       return what ? out_of_memory_text(*what) : std::string();
     }},
    {"remark", "remark", [](const SweepRow& r) -> Cell { return r.remark; },
     "remark", {}, 140, nullptr, true, nullptr, true},
    {"refused", "refused", [](const SweepRow& r) -> Cell { return r.point.not_priced; },
     nullptr, {}, 0, nullptr, true, nullptr, true},
};
// clang-format on

}  // namespace

std::span<const Column<SweepRow>> sweep_columns() {
  return kSweepColumns;
}

std::vector<std::string> labels_of(const std::vector<SweepAxis>& axes, const SweepPoint& point) {
  std::vector<std::string> labels;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    labels.push_back(axes[i].values[point.place[i]].value_text());
  }
  return labels;
}

std::string place_of(const std::vector<SweepAxis>& axes, const SweepPoint& point) {
  std::string text;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    text += fmt::format(
        "{}{} = {}", i > 0 ? ", " : "", axes[i].key, axes[i].values[point.place[i]].value_text());
  }
  return text;
}

}  // namespace stepsim
