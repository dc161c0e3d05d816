#include "sim/report/diff/diff_parts.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"
#include "costmodel/terminal/table.h"
#include "sim/report/columns.h"
#include "sim/report/diff/diff_report.h"

namespace stepsim {
namespace {

/// Nothing where there was nothing before.
Cell share_cell(const Effect& effect, double share) {
  return effect.has_before() ? Cell(share) : Cell();
}

struct PartRow {
  const RecordDiff* diff;
  const PartChange* change;
};

std::pair<double, double> interval_of(const PartRow& row) {
  return row.change->effect.interval(row.diff->parts_alarm);
}

// clang-format off
const Column<PartRow> kPartColumns[] = {
    {"part", "part", [](const PartRow& r) -> Cell { return row_of(r.change->part).key; }},
    {nullptr, nullptr, [](const PartRow& r) -> Cell { return row_of(r.change->part).words; },
     "part", FigureFormat::Words, 10},
    {"rank", "rank",
     [](const PartRow& r) -> Cell { return r.change->rank < 0 ? Cell() : Cell(std::int64_t{r.change->rank}); }},
    {nullptr, nullptr,
     [](const PartRow& r) -> Cell { return r.change->rank < 0 ? "all" : fmt::format("{}", r.change->rank); },
     "rank", FigureFormat::Words, 20},
    {"before_ms", "before_ms", [](const PartRow& r) -> Cell { return r.change->effect.before; },
     "before ms", FigureFormat::Milliseconds, 30},
    {"change_ms", "change_ms", [](const PartRow& r) -> Cell { return r.change->effect.change; },
     "change ms", FigureFormat::SignedMilliseconds, 40},
    {"change", "change",
     [](const PartRow& r) -> Cell { return r.change->effect.relative(r.change->effect.change); }},
    {nullptr, nullptr,
     [](const PartRow& r) -> Cell {
       return share_cell(r.change->effect, r.change->effect.relative(r.change->effect.change));
     },
     "change", FigureFormat::SignedPercent, 50},
    {"interval_ms/0", "low_ms", [](const PartRow& r) -> Cell { return interval_of(r).first; }},
    {"interval_ms/1", "high_ms", [](const PartRow& r) -> Cell { return interval_of(r).second; }},
    {nullptr, nullptr,
     [](const PartRow& r) -> Cell {
       return share_cell(r.change->effect, shown_bound(r.change->effect, interval_of(r).first));
     },
     "99 % interval of all", FigureFormat::SignedPercentInterval, 60,
     [](const PartRow& r) -> Cell { return shown_bound(r.change->effect, interval_of(r).second); }},
    {"processor_change_ms", "processor_change_ms",
     [](const PartRow& r) -> Cell { return r.change->processor ? Cell(r.change->processor->change) : Cell(); }},
    {"processor_beyond_noise", "processor_beyond_noise",
     [](const PartRow& r) -> Cell { return r.change->processor ? Cell(std::int64_t{r.change->processor_is_real}) : Cell(); }},
    {"beyond_noise", "beyond_noise", [](const PartRow& r) -> Cell { return std::int64_t{r.change->is_real}; }},
    {nullptr, nullptr, [](const PartRow& r) -> Cell { return r.change->is_real ? "moved" : r.change->processor_is_real ? "processor" : ""; },
     "", FigureFormat::Words, 70},
};
// clang-format on

std::vector<PartRow> rows_of(const RecordDiff& diff, bool all) {
  constexpr int kFewRanks = 4;
  std::vector<PartRow> rows;
  for (const PartChange& change : diff.parts) {
    if (all || change.rank < 0 || change.moved() != nullptr || diff.ranks <= kFewRanks) {
      rows.push_back({&diff, &change});
    }
  }
  return rows;
}

}  // namespace

double shown_bound(const Effect& effect, double bound) {
  return std::max(-1.0, effect.relative(bound));
}

std::string diff_parts_text(const RecordDiff& diff, const Screen& screen) {
  return table_of<PartRow>(kPartColumns, rows_of(diff, false), screen).text(screen);
}

Json diff_parts_json(const RecordDiff& diff) {
  return mapped(rows_of(diff, true),
                [](const PartRow& row) { return row_json<PartRow>(kPartColumns, row); });
}

std::string diff_csv(const RecordDiff& diff) {
  return csv_text<PartRow>(kPartColumns, rows_of(diff, true));
}

}  // namespace stepsim
