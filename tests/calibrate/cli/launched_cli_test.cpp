#include <cstdlib>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/core.h>
#include <unistd.h>

#include "calibrate/samples/sample_log.h"
#include "costmodel/io/json_file.h"
#include "tests/calibrate/stepcal_path.h"
#include "tests/test_data.h"

// stepcal as launchers start it: one process a rank, told by variables who it is.

namespace stepsim {
namespace {

constexpr const char* kMeasure =
    "measure --model tiny-classifier --max-length 32 --max-tokens 64 --budget 1 --out "
    "samples.jsonl";

/// Runs stepcal once a rank in `folder`, rank r with its variables; what rank r prints goes to
/// out<r>. Returns rank 0's exit status.
int launch(const std::string& folder,
           const std::vector<std::string>& variables,
           const std::string& arguments) {
  const int port = 20000 + (::getpid() * 3 + static_cast<int>(folder.back()) * 131) % 20000;
  std::string script = "cd " + folder + "; ";
  for (std::size_t rank = variables.size(); rank-- > 0;) {
    script += fmt::format("env STEPSIM_PORT={} {} timeout 100 {} {} > out{} 2> err{}{} ",
                          port,
                          variables[rank],
                          test::stepcal_path(),
                          arguments,
                          rank,
                          rank,
                          rank > 0 ? " &" : "; status=$?; wait; exit $status");
  }
  const int status = std::system(script.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string printed(const std::string& folder, const std::string& file) {
  return read_text(folder + "/" + file);
}

}  // namespace

TEST_CASE("ranks started by torchrun measure together, and rank 0 writes") {
  const std::vector<std::string> variables = {
      "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost",
      "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost"};
  const std::string folder = test::fresh_folder();
  REQUIRE(launch(folder, variables, kMeasure) == 0);
  const SampleFile file = read_sample_file(folder + "/samples.jsonl", nullptr);
  CHECK(file.plan.ranks == 2);
  CHECK(file.plan.nodes == 1);
  CHECK(file.log.pass_ended(0));
  CHECK(file.log.has_collective({CollectiveKind::AllReduce, 1024, false}, 0));
  CHECK(printed(folder, "out0").find("measurements in samples.jsonl") != std::string::npos);
  CHECK(printed(folder, "out1").empty());
  CHECK(printed(folder, "err1").empty());
  // Nothing is left to do for a pass that has ended, so the same command ends at once.
  REQUIRE(launch(folder, variables, kMeasure) == 0);
  CHECK(printed(folder, "out0").find("going on with") == 0);
}

TEST_CASE("ranks that mpirun or srun started find each other, and how many they are") {
  const std::vector<std::vector<std::string>> launchers = {
      {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 "
       "OMPI_COMM_WORLD_LOCAL_SIZE=2",
       "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 "
       "OMPI_COMM_WORLD_LOCAL_SIZE=2"},
      {"SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 SLURM_STEP_NUM_NODES=1",
       "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=1 SLURM_STEP_NUM_NODES=1"}};
  for (const std::vector<std::string>& variables : launchers) {
    CAPTURE(variables[0]);
    const std::string folder = test::fresh_folder();
    CHECK(launch(folder, variables, std::string(kMeasure) + " --ranks 3") == 2);
    const std::string name = &variables == &launchers.front() ? "mpirun" : "srun";
    CHECK(printed(folder, "err0").find("3 ranks are asked for, but " + name + " has started 2\n") !=
          std::string::npos);
    CHECK(printed(folder, "err1").empty());
  }
}

TEST_CASE("launched ranks: what is wrong is told by rank 0, and all end") {
  const std::vector<std::string> variables = {
      "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost",
      "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost"};
  const std::string folder = test::fresh_folder();
  CHECK(launch(folder, variables, std::string(kMeasure) + " --ranks 3") == 2);
  CHECK(printed(folder, "err0").find("3 ranks are asked for, but torchrun has started 2\n") !=
        std::string::npos);
  const std::vector<std::string> nodes = {
      "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=localhost",
      "RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=localhost"};
  CHECK(launch(folder, nodes, kMeasure) == 2);
  CHECK(
      printed(folder, "err0").find("the CPU backend works on one machine; its ranks are on 2\n") !=
      std::string::npos);
  CHECK(printed(folder, "err1").empty());
}

}  // namespace stepsim
