#include "calibrate/import/recorded/recorded_meetings.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/utc_time.h"
#include "costmodel/compute/rank_caches.h"

namespace stepsim {
namespace {

/// The rows of one step in all ranks' order, and when it began.
struct StepRows {
  std::size_t run = 0;
  double start_ms = std::numeric_limits<double>::infinity();
  int repeat = 0;
  int step = 0;
  std::vector<const StepRecord*> ranks;  ///< [rank] null: not recorded.
};

std::vector<StepRows> steps_of(const RecordedRun& run, std::size_t number) {
  std::map<std::pair<int, int>, StepRows> steps;
  for (const StepRecord& row : run.record.steps) {
    StepRows& step = steps[{row.repeat, row.step}];
    step.run = number;
    step.repeat = row.repeat;
    step.step = row.step;
    step.ranks.resize(at(run.record.world_size));
    step.ranks[at(row.rank)] = &row;
    step.start_ms = std::min(step.start_ms, row.start_ms);
  }
  return mapped(steps, [](const auto& step) { return step.second; });
}

/// When the clock of a record's steps began, in seconds since 1970; 0: it does not say.
double clock_began(const RunRecord& record, const std::vector<StepRows>& steps) {
  const auto started = parse_utc(record.started_at);
  return started ? static_cast<double>(*started) - steps.front().start_ms * kMilli : 0;
}

/// The steps of each process: records of one machine whose times overlap are of the same one.
std::vector<std::vector<StepRows>> processes_of(std::span<const RecordedRun> runs) {
  constexpr double kApart = 60;  // Seconds; headers are written a little before the first step.
  std::vector<std::vector<StepRows>> by_run;
  std::vector<double> began;  // Of each run's clock.
  for (std::size_t i = 0; i < runs.size(); ++i) {
    std::vector<StepRows> steps = steps_of(runs[i], i);
    began.push_back(steps.empty() ? 0 : clock_began(runs[i].record, steps));
    if (!steps.empty()) {
      by_run.push_back(std::move(steps));
    }
  }
  const auto same_clock = [&](std::size_t a, std::size_t b) {
    return runs[a].record.host == runs[b].record.host &&
           (began[a] == 0 || began[b] == 0 || std::abs(began[a] - began[b]) < kApart);
  };
  std::ranges::sort(by_run, {}, [](const auto& steps) { return steps.front().start_ms; });
  std::vector<std::vector<StepRows>> processes;
  double end_ms = 0;
  for (std::vector<StepRows>& steps : by_run) {
    const double last_ms = max_of(steps, &StepRows::start_ms, 0.0);
    if (!processes.empty() && steps.front().start_ms < end_ms &&
        same_clock(processes.back().front().run, steps.front().run)) {
      processes.back().insert(processes.back().end(), steps.begin(), steps.end());
    } else {
      processes.push_back(std::move(steps));
    }
    end_ms = std::max(end_ms, last_ms);
  }
  for (std::vector<StepRows>& steps : processes) {
    std::ranges::stable_sort(steps, {}, &StepRows::start_ms);
  }
  return processes;
}

/// Plays a step through the caches of all mechanisms. `shapes`: [rank][micro-batch]; returns
/// [rank][mechanism] first meetings.
std::vector<std::vector<double>> meetings_of(const std::vector<std::vector<BatchShape>>& shapes,
                                             std::vector<RankCaches>& mechanisms) {
  const std::size_t most = max_of(
      shapes, [](const auto& of_rank) { return of_rank.size(); }, std::size_t{0});
  std::vector<std::vector<double>> meetings(shapes.size(),
                                            std::vector<double>(mechanisms.size(), 0.0));
  for (std::size_t m = 0; m < most; ++m) {
    const std::vector<const BatchShape*> together = mapped(
        shapes, [m](const auto& of_rank) { return m < of_rank.size() ? &of_rank[m] : nullptr; });
    for (std::size_t mechanism = 0; mechanism < mechanisms.size(); ++mechanism) {
      const std::vector<bool>& builds = mechanisms[mechanism].meet(together);
      for (std::size_t rank = 0; rank < shapes.size(); ++rank) {
        meetings[rank][mechanism] += builds[rank] ? 1 : 0;
      }
    }
  }
  return meetings;
}

MetRank met_rank(const StepRecord& row,
                 const std::vector<BatchShape>& batches,
                 std::vector<double> meetings,
                 bool varlen) {
  MetRank met;
  for (const char* feature : kMeetingFeatures) {
    met.features.push_back(sum_of(
        batches, [&](const BatchShape& batch) { return pass_feature(feature, batch, varlen); }));
  }
  met.meetings = std::move(meetings);
  met.row = &row;
  met.forward = row.forward_ms * 1e-3;
  met.forward_end = (row.start_ms + row.data_ms + row.forward_ms) * 1e-3;
  met.backward_end = met.forward_end + row.backward_ms * 1e-3;
  return met;
}

}  // namespace

std::vector<ShapeCost> possible_mechanisms(int ranks) {
  std::vector<ShapeCost> mechanisms;
  for (const bool shared : {false, true}) {
    for (const ShapeKey key : {ShapeKey::SamplesAndLength,
                               ShapeKey::Length,
                               ShapeKey::Tokens,
                               ShapeKey::Samples,
                               ShapeKey::Largest}) {
      if (!shared || ranks > 1) {
        ShapeCost cost;
        cost.key = key;
        cost.mechanism =
            (shared ? "shared " : "") + shape_key_names()[static_cast<std::size_t>(key)];
        cost.shared = shared;
        mechanisms.push_back(std::move(cost));
      }
    }
  }
  return mechanisms;
}

std::vector<MetStep> met_steps(std::span<const RecordedRun> runs,
                               std::span<const ShapeCost> mechanisms) {
  const auto ranks = at(runs.front().record.world_size);
  const bool varlen = runs.front().plan.model.attention == AttentionKind::Varlen;
  std::vector<std::map<std::pair<int, int>, std::vector<BatchShape>>> planned(runs.size());
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const MicroBatch& batch : runs[i].plan.micro_batches) {
      planned[i][{batch.step, batch.rank}].push_back(batch.shape(runs[i].plan.model.window));
    }
  }
  std::vector<MetStep> result;
  for (const std::vector<StepRows>& process : processes_of(runs)) {
    std::vector<RankCaches> caches =
        mapped(mechanisms, [ranks](const ShapeCost& cost) { return RankCaches(cost, ranks); });
    for (const StepRows& rows : process) {
      MetStep met{rows.run, rows.repeat, rows.step, {}};
      std::vector<std::vector<BatchShape>> shapes(ranks);
      std::vector<std::vector<BatchShape>> batches(ranks);
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        batches[rank] = planned[rows.run][{rows.step, static_cast<int>(rank)}];
        shapes[rank] = mapped(batches[rank], [varlen](const BatchShape& batch) {
          return varlen && batch.samples > 0
                     ? BatchShape{1, batch.useful_tokens, batch.useful_tokens}
                     : batch;
        });
      }
      std::vector<std::vector<double>> meetings = meetings_of(shapes, caches);
      const bool complete = std::ranges::all_of(
          rows.ranks, [](const StepRecord* row) { return row != nullptr && row->samples > 0; });
      if (!complete || rows.step < runs[rows.run].record.warmup_steps) {
        continue;
      }
      const bool alone = ranks == 1;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const StepRecord& row = *rows.ranks[rank];
        met.ranks.push_back(met_rank(row, batches[rank], std::move(meetings[rank]), varlen));
        met.ranks.back().backward = alone || !row.buckets.empty() ? row.backward_ms * 1e-3 : 0;
      }
      result.push_back(std::move(met));
    }
  }
  return result;
}

}  // namespace stepsim
