#include "sim/points/shard.h"

#include <cstdint>
#include <optional>

#include <fmt/format.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/parse_number.h"

namespace stepsim {

namespace {

constexpr std::int64_t kMaxShards = 1'000'000;

/// Where a launcher says which of how many processes this is, or of how many tasks of an array.
struct ShardVariables {
  const char* number;
  const char* count;
};

constexpr ShardVariables kMpirunProcess = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"};
// SLURM_PROCID alone is set in batch scripts too, outside of any srun.
constexpr ShardVariables kSrunProcess = {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"};
constexpr const char* kArrayTask = "SLURM_ARRAY_TASK_ID";

std::int64_t number_in(const ShardEnvironment& environment,
                       const char* name,
                       std::optional<std::int64_t> fallback = {}) {
  const char* const value = environment(name);
  if (value == nullptr && fallback) {
    return *fallback;
  }
  const auto number = parse_number<std::int64_t>(value == nullptr ? "" : value);
  if (!number || *number < 0) {
    throw InputError(
        "--shard auto: {} is {}, but must be a whole number; say which part: "
        "--shard K/N",
        name,
        value == nullptr ? "not set" : "'" + printable(value) + "'");
  }
  return *number;
}

/// From 0; one of one where there is no launcher.
Shard process_of(const ShardEnvironment& environment) {
  for (const ShardVariables& names : {kMpirunProcess, kSrunProcess}) {
    if (environment(names.number) != nullptr && environment(names.count) != nullptr) {
      return {static_cast<int>(number_in(environment, names.number)),
              static_cast<int>(number_in(environment, names.count))};
    }
  }
  return {0, 1};
}

/// From 0; one of one outside of a job array.
Shard array_task_of(const ShardEnvironment& environment) {
  if (environment(kArrayTask) == nullptr) {
    return {0, 1};
  }
  const std::int64_t task = number_in(environment, kArrayTask);
  const std::int64_t count = number_in(environment, "SLURM_ARRAY_TASK_COUNT");
  const std::int64_t least = number_in(environment, "SLURM_ARRAY_TASK_MIN", 0);
  const std::int64_t step = number_in(environment, "SLURM_ARRAY_TASK_STEP", 1);
  const std::int64_t number = step > 0 ? (task - least) / step : -1;
  if (count > kMaxShards || number < 0 || number >= count || (task - least) % step != 0) {
    throw InputError(
        "--shard auto: task {} is not one of {} from {} in steps of {}; say which part: --shard "
        "K/N",
        task,
        count,
        least,
        step);
  }
  return {static_cast<int>(number), static_cast<int>(count)};
}

Shard shard_here(const ShardEnvironment& environment) {
  const Shard task = array_task_of(environment);
  const Shard process = process_of(environment);
  const std::int64_t count = std::int64_t{task.count} * process.count;
  if (task.is_all() && process.is_all()) {
    throw InputError(
        "--shard auto: this is no Slurm job array, and neither srun nor mpirun has started several "
        "processes; say which part: --shard K/N");
  }
  if (count > kMaxShards || process.number >= process.count) {
    throw InputError(
        "--shard auto: process {} of {} in each of {} tasks; say which part: "
        "--shard K/N",
        process.number,
        process.count,
        task.count);
  }
  return {task.number * process.count + process.number + 1, static_cast<int>(count)};
}

}  // namespace

std::string Shard::text() const {
  return fmt::format("{}/{}", number, count);
}

Shard parse_shard(const std::string& text, const ShardEnvironment& environment) {
  if (text == "auto") {
    return shard_here(environment);
  }
  const std::size_t slash = text.find('/');
  const auto number = parse_number<int>(text.substr(0, slash));
  const auto count = parse_number<int>(slash == std::string::npos ? "" : text.substr(slash + 1));
  if (!number || !count || *number < 1 || *count < *number || *count > kMaxShards) {
    throw InputError(
        "--shard {}: expected K/N, part K of N counted from 1 (--shard 1/8 to --shard 8/8), or "
        "auto",
        printable(text));
  }
  return {*number, *count};
}

}  // namespace stepsim
