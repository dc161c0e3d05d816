#include "calibrate/import/recorded/recorded_sharding.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "calibrate/fit/collectives.h"
#include "calibrate/import/recorded/recorded_cores.h"
#include "calibrate/import/recorded/recorded_reduces.h"
#include "calibrate/samples/statistics.h"
#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/quantile.h"
#include "costmodel/network/collective_cost.h"

namespace stepsim {
namespace {

/// The rows of one shard group in one step, and its number.
using GroupRows = std::vector<const StepRecord*>;

double gathers_ms(const StepRecord& row) {
  return sum_of(row.gathers, [](const GatherRecord& one) { return one.end_ms - one.launch_ms; });
}

double gathers_cpu_ms(const StepRecord& row) {
  return sum_of(row.gathers, &GatherRecord::cpu_ms);
}

/// The steady steps in which all ranks of a shard group have processor times and as many gathers.
std::vector<GroupRows> steady_groups(std::span<const RecordedRun> runs, int shards) {
  std::vector<GroupRows> result;
  for (const RecordedRun& run : runs) {
    std::map<std::tuple<int, int, int>, GroupRows> groups;
    for (const StepRecord& row : run.record.steps) {
      if (row.step >= run.record.warmup_steps && row.step > 0 && row.samples > 0 &&
          row.backward_cpu_ms > 0) {
        groups[{row.repeat, row.step, row.rank / shards}].push_back(&row);
      }
    }
    for (auto& group : groups) {
      GroupRows& rows = group.second;
      const bool alike = std::ranges::all_of(rows, [&](const StepRecord* row) {
        return !row->gathers.empty() && row->gathers.size() == rows.front()->gathers.size();
      });
      if (alike && static_cast<int>(rows.size()) == shards) {
        result.push_back(std::move(rows));
      }
    }
  }
  return result;
}

/// Wall over processor time of forwards without their gathers.
double held_up(std::span<const GroupRows> groups) {
  double wall = 0;
  double processor = 0;
  for (const GroupRows& rows : groups) {
    for (const StepRecord* row : rows) {
      wall += row->forward_ms - gathers_ms(*row);
      processor += row->forward_cpu_ms - gathers_cpu_ms(*row);
    }
  }
  return processor > 0 ? std::max(1.0, wall / processor) : 1;
}

/// What each gather took on the rank that waited least, by its bytes.
std::vector<CollectiveSample> gather_samples(std::span<const GroupRows> groups,
                                             const RecordedUnits& units) {
  std::map<std::int64_t, std::vector<double>> sizes;
  for (const GroupRows& rows : groups) {
    for (std::size_t i = 0; i < rows.front()->gathers.size(); ++i) {
      double least = std::numeric_limits<double>::infinity();
      for (const StepRecord* row : rows) {
        const GatherRecord& one = row->gathers[i];
        least = std::min(least, one.end_ms - one.launch_ms - one.cpu_ms);
      }
      const auto unit = static_cast<std::size_t>(rows.front()->gathers[i].unit);
      if (unit < units.units.size() && units.units[unit].gathered > 0) {
        sizes[units.units[unit].gathered].push_back(std::max(least, 0.0) * kMilli);
      }
    }
  }
  std::vector<CollectiveSample> samples;
  for (auto& [bytes, seconds] : sizes) {
    CollectiveSample sample;
    sample.kind = name_of(CollectiveKind::AllGather);
    sample.ranks = units.shards;
    sample.bytes = bytes;
    sample.seconds = trimmed_mean(seconds, kLeftOut);
    if (!(sample.seconds > 0)) {
      continue;
    }
    sample.noise = (quantile(seconds, 0.8) - quantile(seconds, 0.2)) / 2 / sample.seconds;
    sample.repetitions = static_cast<int>(seconds.size());
    sample.all_seconds = std::move(seconds);
    samples.push_back(std::move(sample));
  }
  return samples;
}

CollectiveCost* find_table(std::vector<CollectiveCost>& tables, CollectiveKind kind, int ranks) {
  const auto found = std::ranges::find_if(tables, [&](const CollectiveCost& table) {
    return table.kind == name_of(kind) && table.ranks == ranks;
  });
  return found == tables.end() ? nullptr : &*found;
}

void scale(double factor, CollectiveCost& table) {
  for (auto& [bytes, seconds] : table.knots) {
    seconds *= factor;
  }
  if (table.tail_seconds_per_byte) {
    *table.tail_seconds_per_byte *= factor;
  }
}

/// The table of gathers: a known one scaled to the samples, or one of the samples alone.
std::optional<CollectiveCost> gather_table(std::span<const CollectiveSample> samples,
                                           const CollectiveCost* known) {
  if (samples.empty()) {
    return known != nullptr ? std::optional(*known) : std::nullopt;
  }
  if (known == nullptr) {
    return fit_collectives({samples.begin(), samples.end()}).front().cost;
  }
  double recorded = 0;
  double alone = 0;
  for (const CollectiveSample& sample : samples) {
    recorded += sample.seconds * sample.repetitions;
    alone += seconds_alone(*known, sample.bytes) * sample.repetitions;
  }
  CollectiveCost table = *known;
  if (alone > 0) {
    scale(recorded / alone, table);
  }
  return table;
}

double gathers_of_backward(const RecordedUnits& units, const CollectiveCost& table) {
  return sum_of(units.units, [&](const RecordedUnit& unit) {
    return unit.freed && unit.gathered > 0 ? seconds_alone(table, unit.gathered) : 0;
  });
}

/// A collective that takes no time, whatever its size.
CollectiveCost free_table(CollectiveKind kind, int ranks) {
  constexpr double kMaxBytes = 1e15;
  CollectiveCost cost;
  cost.kind = name_of(kind);
  cost.ranks = ranks;
  cost.knots = {{1, 0}, {kMaxBytes, 0}};
  return cost;
}

void put(CollectiveCost table, std::vector<CollectiveCost>& tables) {
  std::erase_if(tables, [&](const CollectiveCost& one) {
    return one.kind == table.kind && one.ranks == table.ranks;
  });
  tables.push_back(std::move(table));
}

std::string gather_text(const CollectiveSample& sample) {
  return fmt::format("{} bytes {:.2f} ms", sample.bytes, 1e3 * sample.seconds);
}

}  // namespace

bool are_sharded(std::span<const RecordedRun> runs) {
  for (const RecordedRun& run : runs) {
    if (is_sharded(run.record) != is_sharded(runs.front().record)) {
      throw InputError(SourcePlace{run.file},
                       "{} of a training under fully_shard, {} {}: give records of one kind, and "
                       "a profile of the others as --base",
                       is_sharded(run.record) ? "is" : "is not",
                       runs.front().file,
                       is_sharded(runs.front().record) ? "is" : "is not");
    }
    if (is_sharded(run.record) &&
        (*run.record.training)["parallel"] != (*runs.front().record.training)["parallel"]) {
      throw InputError(SourcePlace{run.file},
                       "its fully_shard has other units or settings than that of {}: import them "
                       "one by one",
                       runs.front().file);
    }
  }
  return !runs.empty() && is_sharded(runs.front().record);
}

RecordedSharding fit_recorded_sharding(std::span<const RecordedRun> runs, const Profile* base) {
  RecordedSharding result;
  result.units = recorded_units(runs.front().record, runs.front().file);
  const RecordedUnits& units = result.units;
  for (const std::string& note : units.notes) {
    result.notes.push_back("fully_shard: " + note);
  }
  const std::vector<GroupRows> groups = steady_groups(runs, units.shards);
  const bool measured = base != nullptr && base->unit_host;
  result.host =
      measured ? *base->unit_host : usual_unit_times(has_processor_times(runs.front().record));
  if (groups.empty()) {
    result.whole_steps = true;
    return result;
  }
  std::vector<double> hooks;
  for (const GroupRows& rows : groups) {
    for (const StepRecord* row : rows) {
      hooks.push_back(gathers_cpu_ms(*row) * kMilli / static_cast<double>(row->micro_batches));
    }
  }
  const double expected = units.forward_seconds(result.host);
  const double factor = expected > 0 ? trimmed_mean(hooks, kLeftOut) / expected : 1;
  for (double* time : {&result.host.forward,
                       &result.host.forward_tensor,
                       &result.host.backward,
                       &result.host.backward_tensor,
                       &result.host.byte}) {
    *time *= factor;
  }
  result.notes.push_back(
      fmt::format("hooks and copies of fully_shard take {:.2f} ms of processor time in a forward, "
                  "{:.2f} times the {} ones; those of the backward, which nothing marks, are taken "
                  "to be as much longer: {:.2f} ms",
                  1e3 * expected * factor,
                  factor,
                  measured ? "base's" : "usual",
                  1e3 * units.backward_seconds(result.host)));
  result.gathers = gather_samples(groups, units);
  const double ratio = held_up(groups);
  std::vector<double> waits;
  for (const GroupRows& rows : groups) {
    double least = std::numeric_limits<double>::infinity();
    for (const StepRecord* row : rows) {
      least = std::min(least,
                       (row->backward_ms - ratio * row->backward_cpu_ms) /
                           static_cast<double>(row->micro_batches));
    }
    waits.push_back(std::max(least, 0.0) * kMilli);
  }
  const double wait = trimmed_mean(waits, kLeftOut);
  const CollectiveCost* known = nullptr;
  std::vector<CollectiveCost> tables =
      base != nullptr ? base->collectives : std::vector<CollectiveCost>{};
  known = find_table(tables, CollectiveKind::AllGather, units.shards);
  const auto table = gather_table(result.gathers, known);
  if (table && units.replicas == 1) {
    result.reduce_seconds = std::max(0.0, wait - gathers_of_backward(units, *table));
  }
  return result;
}

std::vector<RecordedRun> without_sharding(std::span<const RecordedRun> runs,
                                          const RecordedSharding& sharding) {
  std::vector<RecordedRun> result(runs.begin(), runs.end());
  if (sharding.whole_steps) {
    return result;
  }
  const double backward_ms = sharding.units.backward_seconds(sharding.host) / kMilli;
  constexpr double kLeast = 0.05;  // Of a pass that is left as compute, however slow its hooks.
  for (RecordedRun& run : result) {
    for (StepRecord& row : run.record.steps) {
      const double wall = gathers_ms(row);
      const double cpu = gathers_cpu_ms(row);
      row.forward_ms = std::max(row.forward_ms - wall, kLeast * row.forward_ms);
      row.forward_cpu_ms = std::max(row.forward_cpu_ms - cpu, kLeast * row.forward_cpu_ms);
      const double hooks = backward_ms * static_cast<double>(row.micro_batches);
      row.backward_cpu_ms = std::max(row.backward_cpu_ms - hooks, kLeast * row.backward_cpu_ms);
    }
  }
  return result;
}

void add_sharding(RecordedSharding& sharding, RecordedCosts& costs) {
  constexpr double kMostSharded = 0.9;  // Of an optimizer's time that its sharded tensors take.
  const double recorded = costs.model.optimizer_seconds;
  // Predictions stretch the host's times by the same.
  const double shared = costs.cores > 0 ? std::max(1.0, costs.ranks / costs.cores) : 1;
  const double slowed = std::max(1.0, costs.noise.crowded.slowed) * shared;
  double& tensor = sharding.host.optimizer_tensor;
  if (sharding.units.tensors > 0) {
    tensor = std::min(tensor, kMostSharded * recorded / slowed / sharding.units.tensors);
  }
  costs.model.optimizer_seconds =
      (recorded - tensor * slowed * sharding.units.tensors) * sharding.units.shards;
  costs.notes.insert(costs.notes.end(), sharding.notes.begin(), sharding.notes.end());
  if (sharding.whole_steps) {
    costs.notes.emplace_back(
        "neither processor times nor times of gathers were recorded: gathers, reductions and hooks "
        "are inside of the passes, so that other policies can be compared, and no other sharding");
    tensor = 0;
    sharding.host = {};
    costs.model.optimizer_seconds = recorded * sharding.units.shards;
    return;
  }
  costs.notes.push_back(
      fmt::format("gathers, told by the forward's waits of the rank that waits least: {}",
                  fmt::join(mapped(sharding.gathers, gather_text), ", ")));
  costs.notes.push_back(
      sharding.reduce_seconds > 0
          ? fmt::format("reductions take {:.2f} ms of a backward, told by what it waits beside its "
                        "gathers",
                        1e3 * sharding.reduce_seconds)
          : "what reductions take is not told by these steps: it is the base's, or that of gathers "
            "of as many bytes");
  costs.notes.push_back(fmt::format(
      "the optimizer of sharded tensors takes {:.0f} us more for each: --base says it where its "
      "profile measured it, else it is assumed",
      1e6 * tensor));
}

void add_sharding(const RecordedSharding& sharding, int ranks, Profile& profile) {
  const int shards = sharding.units.shards;
  std::vector<CollectiveCost>& tables = profile.collectives;
  profile.unit_host = sharding.host;
  if (sharding.whole_steps) {
    put(free_table(CollectiveKind::AllGather, shards), tables);
    put(free_table(CollectiveKind::ReduceScatter, shards), tables);
    return;
  }
  const auto gather =
      gather_table(sharding.gathers, find_table(tables, CollectiveKind::AllGather, shards));
  if (!gather) {
    return;
  }
  put(*gather, tables);
  const CollectiveCost* known = find_table(tables, CollectiveKind::ReduceScatter, shards);
  CollectiveCost reduce = known != nullptr ? *known : *gather;
  reduce.kind = name_of(CollectiveKind::ReduceScatter);
  const double alone = sum_of(sharding.units.units, [&](const RecordedUnit& unit) {
    return unit.reduced > 0 ? seconds_alone(reduce, unit.reduced) : 0;
  });
  if (sharding.reduce_seconds > 0 && alone > 0) {
    scale(sharding.reduce_seconds / alone, reduce);
  }
  put(std::move(reduce), tables);
  if (find_table(tables, CollectiveKind::AllReduce, ranks) == nullptr && ranks == shards) {
    CollectiveCost all_reduce = *gather;
    all_reduce.kind = name_of(CollectiveKind::AllReduce);
    put(std::move(all_reduce), tables);
  }
}

}  // namespace stepsim
