#include "sim/points/shard.h"

#include <map>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"

using namespace stepsim;

namespace {

using ShardVariableValues = std::map<std::string, std::string>;

Shard auto_shard(const ShardVariableValues& values) {
  return parse_shard("auto", [&](const char* name) -> const char* {
    const auto found = values.find(name);
    return found == values.end() ? nullptr : found->second.c_str();
  });
}

std::string auto_error(const ShardVariableValues& values) {
  try {
    return auto_shard(values).text();
  } catch (const InputError& error) {
    return error.what();
  }
}

std::string shard_error(const std::string& text) {
  try {
    return "no error: " + parse_shard(text).text();
  } catch (const InputError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("the shards of a study hold each point once") {
  for (int count = 1; count <= 7; ++count) {
    for (std::size_t point = 0; point < 20; ++point) {
      int holders = 0;
      for (int number = 1; number <= count; ++number) {
        holders += Shard{number, count}.has(point) ? 1 : 0;
      }
      CHECK(holders == 1);
    }
  }
  CHECK(Shard{2, 3}.has(1));
  CHECK(Shard{2, 3}.has(4));
  CHECK_FALSE(Shard{2, 3}.has(3));
}

TEST_CASE("K/N counts from 1") {
  CHECK(parse_shard("1/1").is_all());
  CHECK(parse_shard("3/8") == Shard{3, 8});
  for (const char* text : {"0/8", "9/8", "3", "/8", "3/", "a/b", "-1/2", "1/2/3", "1/99999999"}) {
    CHECK(shard_error(text).find("expected K/N, part K of N counted from 1") != std::string::npos);
  }
}

TEST_CASE("auto knows the tasks of a job array, the processes of srun and mpirun, and both") {
  CHECK(auto_shard({{"SLURM_ARRAY_TASK_ID", "0"}, {"SLURM_ARRAY_TASK_COUNT", "4"}}) == Shard{1, 4});
  const ShardVariableValues array = {{"SLURM_ARRAY_TASK_ID", "14"},
                                     {"SLURM_ARRAY_TASK_COUNT", "3"},
                                     {"SLURM_ARRAY_TASK_MIN", "10"},
                                     {"SLURM_ARRAY_TASK_STEP", "2"}};
  CHECK(auto_shard(array) == Shard{3, 3});
  CHECK(auto_shard({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}}) == Shard{2, 2});
  CHECK(auto_shard({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "5"}}) == Shard{1, 5});
  ShardVariableValues both = array;
  both["SLURM_PROCID"] = "1";
  both["SLURM_STEP_NUM_TASKS"] = "2";
  CHECK(auto_shard(both) == Shard{6, 6});
  // A batch script has a process number without srun.
  ShardVariableValues batch = array;
  batch["SLURM_PROCID"] = "0";
  batch["SLURM_NTASKS"] = "8";
  CHECK(auto_shard(batch) == Shard{3, 3});
}

TEST_CASE("auto refuses what says nothing, or nonsense") {
  CHECK(auto_error({}).find("this is no Slurm job array") != std::string::npos);
  CHECK(auto_error({{"SLURM_ARRAY_TASK_ID", "3"}}).find("SLURM_ARRAY_TASK_COUNT is not set") !=
        std::string::npos);
  CHECK(auto_error({{"SLURM_ARRAY_TASK_ID", "x"}}).find("SLURM_ARRAY_TASK_ID is 'x'") !=
        std::string::npos);
  // sbatch --array=1,5 has two tasks, of which 5 is not the second.
  CHECK(auto_error({{"SLURM_ARRAY_TASK_ID", "5"},
                    {"SLURM_ARRAY_TASK_COUNT", "2"},
                    {"SLURM_ARRAY_TASK_MIN", "1"}})
            .find("task 5 is not one of 2 from 1 in steps of 1") != std::string::npos);
}
