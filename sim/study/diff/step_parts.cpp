#include "sim/study/diff/step_parts.h"

#include <algorithm>
#include <iterator>

#include "costmodel/base/mapped.h"
#include "costmodel/records/run_record.h"

namespace stepsim {
namespace {

constexpr StepPartRow kParts[] = {
    {StepPart::Data, "data", "loading", false, true},
    {StepPart::Forward, "forward", "forward", false, true},
    {StepPart::Backward, "backward", "backward", false, true},
    {StepPart::WaitingForRanks, "waiting_for_ranks", "waiting for ranks", true, true},
    {StepPart::Communication, "exposed_communication", "communication", true, true},
    {StepPart::Waiting, "waiting", "waiting", true, true},
    {StepPart::Optimizer, "optimizer", "optimizer", false, true},
    {StepPart::Other, "other", "other", false, true},
    {StepPart::Host, "host", "host's launches", false, false},
};

double backward_compute(const StepRecord& row, WaitReading reading) {
  switch (reading) {
    case WaitReading::Processor:
      return std::min(row.backward_cpu_ms, row.backward_ms + row.wait_ms);
    case WaitReading::Buckets:
    case WaitReading::Waits:
      return row.backward_ms;
    case WaitReading::OneRank:
    case WaitReading::Together:
      break;
  }
  return row.backward_ms + row.wait_ms;
}

/// When the last bucket was launched, on the clock of all ranks.
double last_launch(const StepRecord& row) {
  return row.start_ms + row.buckets.back().launch_ms;
}

double time_of(const StepRecord& row, StepPart part, WaitReading reading, double last_of_ranks) {
  const auto for_ranks = [&] {
    return std::clamp(last_of_ranks - last_launch(row), 0.0, row.wait_ms);
  };
  switch (part) {
    case StepPart::Data:
      return row.data_ms;
    case StepPart::Forward:
      return row.forward_ms;
    case StepPart::Backward:
      return backward_compute(row, reading);
    case StepPart::WaitingForRanks:
      return for_ranks();
    case StepPart::Communication:
      return row.wait_ms - for_ranks();
    case StepPart::Waiting:
      return row.backward_ms + row.wait_ms - backward_compute(row, reading);
    case StepPart::Optimizer:
      return row.optimizer_ms;
    case StepPart::Other:
      return row.step_ms - row.data_ms - row.forward_ms - row.backward_ms - row.wait_ms -
             row.optimizer_ms;
    case StepPart::Host:
      break;
  }
  return row.data_host_ms + row.forward_host_ms + row.backward_host_ms + row.optimizer_host_ms;
}

}  // namespace

const StepPartRow& row_of(StepPart part) {
  return *std::ranges::find(kParts, part, &StepPartRow::part);
}

WaitReading wait_reading(const std::vector<const RunRecord*>& records) {
  const auto in_all = [&](auto&& tells) {
    return std::ranges::all_of(records, [&](const RunRecord* record) {
      return std::ranges::all_of(record->steps, [&](const StepRecord& row) {
        return row.step < record->warmup_steps || row.samples == 0 || tells(row);
      });
    });
  };
  if (records.front()->world_size == 1) {
    return WaitReading::OneRank;
  }
  if (in_all([](const StepRecord& row) { return !row.buckets.empty(); })) {
    return WaitReading::Buckets;
  }
  if (std::ranges::all_of(records, [](const RunRecord* record) {
        return std::ranges::any_of(record->steps,
                                   [](const StepRecord& row) { return row.wait_ms > 0; });
      })) {
    return WaitReading::Waits;
  }
  return in_all([](const StepRecord& row) { return row.backward_cpu_ms > 0; })
             ? WaitReading::Processor
             : WaitReading::Together;
}

std::vector<StepPart> parts_of(WaitReading reading, bool on_gpu) {
  std::vector<StepPart> parts = {StepPart::Data, StepPart::Forward, StepPart::Backward};
  if (reading == WaitReading::Buckets) {
    parts.insert(parts.end(), {StepPart::WaitingForRanks, StepPart::Communication});
  } else if (reading == WaitReading::Waits || reading == WaitReading::Processor) {
    parts.push_back(StepPart::Waiting);
  }
  parts.insert(parts.end(), {StepPart::Optimizer, StepPart::Other});
  if (on_gpu) {
    parts.push_back(StepPart::Host);
  }
  return parts;
}

std::vector<std::vector<double>> part_times(const std::vector<const StepRecord*>& ranks,
                                            WaitReading reading,
                                            const std::vector<StepPart>& parts) {
  double last = 0;
  if (reading == WaitReading::Buckets) {
    bool first = true;
    for (const StepRecord* row : ranks) {
      if (!row->buckets.empty()) {
        last = first ? last_launch(*row) : std::max(last, last_launch(*row));
        first = false;
      }
    }
  }
  return mapped(ranks, [&](const StepRecord* row) {
    return mapped(parts, [&](StepPart part) {
      const bool has_buckets = !row->buckets.empty();
      if (!has_buckets && part == StepPart::WaitingForRanks) {
        return 0.0;
      }
      return !has_buckets && part == StepPart::Communication ? row->wait_ms
                                                             : time_of(*row, part, reading, last);
    });
  });
}

}  // namespace stepsim
