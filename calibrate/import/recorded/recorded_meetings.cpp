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
  auto rows = mapped(run.record.steps, [](const StepRecord& row) { return &row; });
  std::ranges::stable_sort(
      rows, {}, [](const StepRecord* row) { return std::pair(row->repeat, row->step); });
  std::vector<StepRows> steps;
  for (const StepRecord* row : rows) {
    if (steps.empty() || steps.back().repeat != row->repeat || steps.back().step != row->step) {
      steps.emplace_back();
      steps.back().run = number;
      steps.back().repeat = row->repeat;
      steps.back().step = row->step;
      steps.back().ranks.resize(at(run.record.world_size));
    }
    steps.back().ranks[at(row->rank)] = row;
    steps.back().start_ms = std::min(steps.back().start_ms, row->start_ms);
  }
  return steps;
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

/// What the plan has for a rank's step.
struct PlannedRank {
  std::vector<BatchShape> batches;  ///< [micro-batch]
  std::vector<BatchShape> shapes;   ///< [micro-batch] As a cache sees them.
};

/// Plays a step through the caches of all mechanisms. Returns [rank][mechanism] first meetings.
std::vector<std::vector<double>> meetings_of(const std::vector<const PlannedRank*>& ranks,
                                             std::vector<RankCaches>& mechanisms) {
  const std::size_t most = max_of(
      ranks, [](const PlannedRank* rank) { return rank->shapes.size(); }, std::size_t{0});
  std::vector<std::vector<double>> meetings(ranks.size(),
                                            std::vector<double>(mechanisms.size(), 0.0));
  for (std::size_t m = 0; m < most; ++m) {
    const std::vector<const BatchShape*> together = mapped(ranks, [m](const PlannedRank* rank) {
      return m < rank->shapes.size() ? &rank->shapes[m] : nullptr;
    });
    for (std::size_t mechanism = 0; mechanism < mechanisms.size(); ++mechanism) {
      const std::vector<bool>& builds = mechanisms[mechanism].meet(together);
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
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
  static const std::vector<PassFeature> kFeatures =
      mapped(kMeetingFeatures, [](const char* name) { return PassFeature(name); });
  MetRank met;
  for (const PassFeature& feature : kFeatures) {
    met.features.push_back(
        sum_of(batches, [&](const BatchShape& batch) { return feature.of(batch, varlen); }));
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
  std::vector<std::map<std::pair<int, int>, PlannedRank>> planned(runs.size());
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const MicroBatch& of_plan : runs[i].plan.micro_batches) {
      const BatchShape batch = of_plan.shape(runs[i].plan.model.window);
      PlannedRank& rank = planned[i][{of_plan.step, of_plan.rank}];
      rank.batches.push_back(batch);
      rank.shapes.push_back(varlen && batch.samples > 0
                                ? BatchShape{1, batch.useful_tokens, batch.useful_tokens}
                                : batch);
    }
  }
  std::vector<MetStep> result;
  for (const std::vector<StepRows>& process : processes_of(runs)) {
    std::vector<RankCaches> caches =
        mapped(mechanisms, [ranks](const ShapeCost& cost) { return RankCaches(cost, ranks); });
    for (const StepRows& rows : process) {
      MetStep met{rows.run, rows.repeat, rows.step, {}};
      std::vector<const PlannedRank*> of_ranks(ranks);
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        of_ranks[rank] = &planned[rows.run][{rows.step, static_cast<int>(rank)}];
      }
      std::vector<std::vector<double>> meetings = meetings_of(of_ranks, caches);
      const bool complete = std::ranges::all_of(
          rows.ranks, [](const StepRecord* row) { return row != nullptr && row->samples > 0; });
      if (!complete || rows.step < runs[rows.run].record.warmup_steps) {
        continue;
      }
      const bool alone = ranks == 1;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const StepRecord& row = *rows.ranks[rank];
        met.ranks.push_back(
            met_rank(row, of_ranks[rank]->batches, std::move(meetings[rank]), varlen));
        met.ranks.back().backward = alone || !row.buckets.empty() ? row.backward_ms * 1e-3 : 0;
      }
      result.push_back(std::move(met));
    }
  }
  return result;
}

}  // namespace stepsim
