#include "sim/report/trace/trace_rows.h"

#include <algorithm>
#include <numeric>

namespace stepsim {
namespace {

bool begins_before(const TraceRow& a, const TraceRow& b) {
  return a.begin < b.begin;
}

}  // namespace

void TraceRows::take(const StepTimeline& timeline) {
  rows_.resize(timeline.ranks.size());
  for (std::vector<TraceRow>& rows : rows_) {
    rows.clear();
  }
  for (const auto* spans : {&timeline.spans, &timeline.waits}) {
    for (const TraceSpan& span : *spans) {
      TraceRow row;
      const bool idle = span.phase == Phase::Wait || span.phase == Phase::Data;
      row.kind = idle ? TraceRow::Kind::Idle : TraceRow::Kind::Work;
      row.phase = span.phase;
      row.lane = span.stream;
      row.index = span.label;
      row.enqueued_at = span.enqueued_at;
      row.begin = span.begin;
      row.end = span.end;
      rows_[static_cast<std::size_t>(span.rank)].push_back(row);
    }
  }
  for (std::size_t rank = 0; rank < rows_.size(); ++rank) {
    std::ranges::stable_sort(rows_[rank], begins_before);
    if (by_part_) {
      merge_parts(timeline.ranks[rank], rows_[rank]);
    }
    add_collectives(rank, timeline);
    std::ranges::stable_sort(rows_[rank], begins_before);
  }
}

/// A stretch ends where its part does, and where a collective's part becomes ready.
void TraceRows::merge_parts(const RankTimeline& times, std::vector<TraceRow>& rows) const {
  std::vector<SimTime> ready = times.ready_at;
  std::ranges::sort(ready);
  std::vector<TraceRow> merged;
  std::vector<std::ptrdiff_t> last(kStreams, -1);  // [stream] in `merged`.
  for (TraceRow row : rows) {
    row.index = TraceRow::kWholePart;
    std::ptrdiff_t& before = last[static_cast<std::size_t>(row.lane)];
    if (before >= 0) {
      TraceRow& open = merged[static_cast<std::size_t>(before)];
      const auto cut = std::lower_bound(ready.begin(), ready.end(), open.end);
      if (open.phase == row.phase && (cut == ready.end() || *cut > row.begin)) {
        open.end = row.end;
        continue;
      }
    }
    before = static_cast<std::ptrdiff_t>(merged.size());
    merged.push_back(row);
  }
  rows = std::move(merged);
}

void TraceRows::add_collectives(std::size_t rank, const StepTimeline& timeline) {
  const RankTimeline& times = timeline.ranks[rank];
  std::vector<std::size_t> order(times.ready_at.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return timeline.reduce_start[a] < timeline.reduce_start[b];
  });
  std::vector<SimTime>& free_at = lanes_[rank];
  for (const std::size_t c : order) {
    if (times.ready_at[c] == SimTime::max()) {
      continue;  // The rank takes no part.
    }
    const SimTime start = timeline.reduce_start[c];
    const auto lane = static_cast<std::size_t>(
        std::ranges::find_if(free_at, [&](SimTime free) { return free <= start; }) -
        free_at.begin());
    if (lane == free_at.size()) {
      free_at.push_back(SimTime{});
    }
    TraceRow row;
    row.kind = TraceRow::Kind::Collective;
    row.lane = static_cast<int>(lane);
    row.index = static_cast<std::int32_t>(c);
    row.enqueued_at = times.enqueued_at[c];
    row.begin = std::max(times.ready_at[c], free_at[lane]);
    row.end = timeline.reduce_end[c];
    rows_[rank].push_back(row);
    free_at[lane] = row.end;
  }
}

std::string work_name(const TraceRow& row, const std::vector<std::string>& labels) {
  const auto label = static_cast<std::size_t>(row.index);
  if (row.kind == TraceRow::Kind::Work && row.index >= 0 && label < labels.size()) {
    return labels[label];
  }
  const bool whole = row.index == TraceRow::kWholePart;
  switch (row.phase) {
    case Phase::Data:
      return "data";
    case Phase::Forward:
      return whole ? "forward" : row.lane == kComputeStream ? "zero gradients" : "cast parameters";
    case Phase::Backward:
      return whole ? "backward" : "copy gradients in";
    case Phase::CopyOut:
      return "copy gradients out";
    case Phase::Optimizer:
      return "optimizer";
    case Phase::Wait:
      return "exposed communication";
    case Phase::Other:
    case Phase::BackwardOther:
    case Phase::OptimizerOther:
      break;
  }
  return "other work";
}

}  // namespace stepsim
