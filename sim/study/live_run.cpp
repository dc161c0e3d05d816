#include "sim/study/live_run.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/compute/shared_cores.h"
#include "sim/predict/metrics.h"

namespace stepsim {

namespace {

/// A pass over the plan, by its file and repeat.
using PassKey = std::pair<std::size_t, int>;
/// [pass][step] in milliseconds.
using Passes = std::map<PassKey, std::map<int, double>>;

bool same_run(const RunRecord& a, const RunRecord& b) {
  const auto place = [](const StepRecord& row) {
    return std::tie(row.repeat, row.step, row.rank, row.start_ms, row.step_ms);
  };
  return a.started_at == b.started_at &&
         std::equal(a.steps.begin(),
                    a.steps.end(),
                    b.steps.begin(),
                    b.steps.end(),
                    [&](const StepRecord& x, const StepRecord& y) { return place(x) == place(y); });
}

void require_different_runs(const std::vector<const RunRecord*>& records) {
  for (std::size_t i = 0; i < records.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (same_run(*records[i], *records[j])) {
        throw InputError("policy '" + printable(records[i]->policy) +
                         "': the same live run is given twice");
      }
    }
  }
}

/// Returns the steady steps that all ranks finished.
void add_steps(const RunRecord& record, std::size_t file, int warmup_steps, Passes& passes) {
  GlobalSteps steps;
  std::map<std::pair<int, int>, int> ranks;
  for (const StepRecord& row : record.steps) {
    if (row.step >= warmup_steps) {
      steps.add(row.repeat, row.step, row.start_ms, row.step_ms);
      ++ranks[{row.repeat, row.step}];
    }
  }
  for (const auto& [repeat, times] : steps.by_repeat()) {
    for (const auto& [step, ms] : times) {
      if (ranks.at({repeat, step}) == record.world_size) {
        passes[{file, repeat}][step] = ms;
      }
    }
  }
}

/// Removes the passes that were cut short and returns how many these were.
std::size_t remove_incomplete(Passes& passes) {
  std::size_t most = 0;
  for (const auto& [key, steps] : passes) {
    most = std::max(most, steps.size());
  }
  return std::erase_if(passes, [&](const auto& pass) { return pass.second.size() < most; });
}

StepParts mean_parts(const std::vector<const RunRecord*>& records, const Passes& passes) {
  StepParts sum;
  double rows = 0;
  for (std::size_t file = 0; file < records.size(); ++file) {
    for (const StepRecord& row : records[file]->steps) {
      const auto pass = passes.find({file, row.repeat});
      if (pass == passes.end() || pass->second.count(row.step) == 0) {
        continue;
      }
      sum.data += row.data_ms;
      sum.forward += row.forward_ms;
      sum.backward += row.backward_ms;
      sum.exposed += row.wait_ms;
      sum.optimizer += row.optimizer_ms;
      rows += 1;
    }
  }
  for (double* part : {&sum.data, &sum.forward, &sum.backward, &sum.exposed, &sum.optimizer}) {
    *part /= rows;
  }
  return sum;
}

/// Returns the standard deviation with n - 1; 0 for fewer than two values.
double sample_std(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  return n > 1 ? population_std(values) * std::sqrt(n / (n - 1)) : 0;
}

double relative_to_mean(double deviation, const LiveRun& run) {
  const double centre = mean(run.step_ms);
  return centre > 0 ? deviation / centre : 0;
}

/// Milliseconds of forwards.
struct ForwardTimes {
  double wall = 0;
  double processor = 0;
};

/// The forward without the calls in which it may wait for gathers.
ForwardTimes forward_times(const StepRecord& row, double core_factor) {
  ForwardTimes times{row.forward_ms, row.forward_cpu_ms};
  for (const GatherRecord& gather : row.gathers) {
    times.wall -= gather.end_ms - gather.launch_ms;
    times.processor -= gather.cpu_ms;
  }
  times.processor *= core_factor;
  return times;
}

std::vector<double> all_pass_means(const LiveRun& run) {
  std::vector<double> all;
  for (const auto& means : run.pass_means) {
    all.insert(all.end(), means.begin(), means.end());
  }
  return all;
}

}  // namespace

LiveRun join_live_runs(const std::vector<const RunRecord*>& records, int warmup_steps) {
  require_different_runs(records);
  const std::string policy = "policy '" + printable(records.front()->policy) + "': ";
  Passes passes;
  for (std::size_t file = 0; file < records.size(); ++file) {
    add_steps(*records[file], file, warmup_steps, passes);
  }
  if (passes.empty()) {
    throw InputError(policy + "the record has no step after the warm-up that all ranks finished");
  }
  LiveRun run;
  if (const std::size_t removed = remove_incomplete(passes); removed > 0) {
    run.warnings.push_back(fmt::format(
        "{}{} of {} passes cut short and left out", policy, removed, removed + passes.size()));
  }
  run.pass_means.resize(records.size());
  for (const auto& [key, steps] : passes) {
    std::vector<double> times;
    for (const auto& [step, ms] : steps) {
      times.push_back(ms);
      run.by_step[step].push_back(ms);
    }
    run.pass_means[key.first].push_back(mean(times));
    run.step_ms.insert(run.step_ms.end(), times.begin(), times.end());
  }
  run.parts = mean_parts(records, passes);
  run.states_wait = run.parts.exposed > 0 || records.front()->world_size == 1;
  const StepParts& p = run.parts;
  run.parts.other = mean(run.step_ms) - p.data - p.forward - p.backward - p.exposed - p.optimizer;
  return run;
}

double repeatability(const LiveRun& run) {
  return relative_to_mean(sample_std(all_pass_means(run)), run);
}

std::optional<double> standard_error(const LiveRun& run) {
  const std::vector<double> passes = all_pass_means(run);
  if (passes.size() < 2) {
    return std::nullopt;
  }
  std::vector<double> files;
  for (const auto& means : run.pass_means) {
    if (!means.empty()) {
      files.push_back(mean(means));
    }
  }
  const double over_passes = sample_std(passes) / std::sqrt(static_cast<double>(passes.size()));
  const double over_files = sample_std(files) / std::sqrt(static_cast<double>(files.size()));
  return relative_to_mean(std::max(over_passes, over_files), run);
}

std::optional<double> slowed_by_others(const std::vector<RunRecord>& records,
                                       int warmup_steps,
                                       double cores) {
  std::map<int, ForwardTimes> by_rank;
  for (const RunRecord& record : records) {
    std::map<std::pair<int, int>, std::vector<const StepRecord*>> by_step;
    for (const StepRecord& row : record.steps) {
      // A forward of sharded parameters waits for gathers, which only their marks tell apart.
      const bool tells = !is_sharded(record) || !row.gathers.empty();
      if (row.step >= warmup_steps && row.forward_cpu_ms > 0 && tells) {
        by_step[{row.repeat, row.step}].push_back(&row);
      }
    }
    const double shared = record.cores > 0 && record.cores < record.world_size
                              ? static_cast<double>(record.cores)
                              : cores;
    for (const auto& [step, rows] : by_step) {
      std::vector<double> factors(rows.size(), 1.0);
      if (shared >= 1) {
        factors = shared_core_factors(mapped(rows,
                                             [](const StepRecord* row) {
                                               return row->forward_cpu_ms + row->backward_cpu_ms;
                                             }),
                                      shared);
      }
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const ForwardTimes times = forward_times(*rows[i], factors[i]);
        by_rank[rows[i]->rank].wall += times.wall;
        by_rank[rows[i]->rank].processor += times.processor;
      }
    }
  }
  std::optional<double> least;
  for (const auto& [rank, times] : by_rank) {
    if (times.processor > 0) {
      const double ratio = times.wall / times.processor;
      least = std::min(least.value_or(ratio), ratio);
    }
  }
  return least;
}

}  // namespace stepsim
