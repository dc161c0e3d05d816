#include "calibrate/ranks/launcher.h"

#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "tests/costmodel/helpers.h"

namespace stepsim {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<Launch> launch_of(const Variables& variables) {
  return read_launch([&variables](const char* name) {
    const auto place = variables.find(name);
    return place == variables.end() ? nullptr : place->second.c_str();
  });
}

std::string error_of(const Variables& variables) {
  return test::error_of([&] { static_cast<void>(launch_of(variables)); });
}

/// `variables` with some more, or others in their place.
Variables with(Variables variables, const Variables& others) {
  for (const auto& [name, value] : others) {
    variables[name] = value;
  }
  return variables;
}

const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "node7"},
                             {"MASTER_PORT", "29500"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const Variables kSrun = {{"SLURM_PROCID", "9"},
                         {"SLURM_STEP_NUM_TASKS", "16"},
                         {"SLURM_LOCALID", "1"},
                         {"SLURM_STEP_NUM_NODES", "2"},
                         {"SLURM_STEP_NODELIST", "gpu[03-04]"}};

}  // namespace

TEST_CASE("without a launcher, or with one rank, nothing was launched") {
  CHECK_FALSE(launch_of({}));
  CHECK_FALSE(launch_of({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}));
  CHECK_FALSE(launch_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}));  // A batch script.
  CHECK_FALSE(launch_of(
      with(kTorchrun,
           {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}})));
}

TEST_CASE("each launcher's variables are read") {
  const std::optional<Launch> torchrun = launch_of(kTorchrun);
  REQUIRE(torchrun);
  CHECK(torchrun->launcher == "torchrun");
  CHECK(torchrun->rank == 5);
  CHECK(torchrun->ranks == 8);
  CHECK(torchrun->local_rank == 1);
  CHECK(torchrun->address == "node7");
  CHECK(torchrun->port == 29501);
  CHECK(launch_of(with(kTorchrun, {{"STEPSIM_PORT", "1234"}}))->port == 1234);
  CHECK(torchrun->secret.empty());
  CHECK(launch_of(with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "9"}}))->secret == "9");
  CHECK(launch_of(with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "9"}, {"STEPSIM_SECRET", "x y"}}))
            ->secret == "x y");
  CHECK(launch_of(with(kSrun, {{"SLURM_JOB_ID", "17"}, {"SLURM_STEP_ID", "2"}}))->secret == "17.2");
  const std::optional<Launch> open_mpi = launch_of(kOpenMpi);
  REQUIRE(open_mpi);
  CHECK(open_mpi->launcher == "mpirun");
  CHECK(open_mpi->rank == 1);
  CHECK(open_mpi->address == "127.0.0.1");
  CHECK(open_mpi->port == 29613);
  const std::optional<Launch> srun = launch_of(kSrun);
  REQUIRE(srun);
  CHECK(srun->launcher == "srun");
  CHECK(srun->rank == 9);
  CHECK(srun->local_rank == 1);
  CHECK(srun->address == "gpu03");
  const std::optional<Launch> pmi = launch_of(
      {{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "3"}});
  REQUIRE(pmi);
  CHECK(pmi->launcher == "mpiexec");
  CHECK(pmi->ranks == 3);
}

TEST_CASE("a launcher inside another counts") {
  CHECK(launch_of(with(kSrun, kTorchrun))->launcher == "torchrun");
  CHECK(launch_of(with(kSrun, kOpenMpi))->launcher == "mpirun");
  // srun --mpi=pmi2
  CHECK(launch_of(with(kSrun, {{"PMI_RANK", "9"}, {"PMI_SIZE", "16"}}))->launcher == "srun");
}

TEST_CASE("the first machine of an srun step is found in its list") {
  const auto address = [](const std::string& list) {
    return launch_of(with(kSrun, {{"SLURM_STEP_NODELIST", list}}))->address;
  };
  CHECK(address("a,b") == "a");
  CHECK(address("gpu[3,5-7]") == "gpu3");
  CHECK(address("gpu[12-13]-ib,x") == "gpu12-ib");
  CHECK(launch_of(with(kSrun, {{"SLURM_STEP_NUM_NODES", "1"}}))->address == "127.0.0.1");
}

TEST_CASE("half-set and contradictory variables are errors that name them") {
  CHECK(error_of({{"RANK", "0"}}) ==
        "WORLD_SIZE is not set, but other variables of torchrun are; start stepcal "
        "with torchrun, or unset them");
  CHECK(error_of(with(kTorchrun, {{"RANK", "8"}})) == "RANK=8: must be a whole number from 0 to 7");
  CHECK(error_of(with(kTorchrun, {{"LOCAL_RANK", "4"}})) ==
        "LOCAL_RANK=4: must be a whole number from 0 to 3");
  CHECK(error_of(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}})) ==
        "LOCAL_WORLD_SIZE=9: must be a whole number from 1 to 8");
  CHECK(error_of(with(kTorchrun, {{"WORLD_SIZE", "eight"}})) ==
        "WORLD_SIZE=eight: must be a whole number from 1 to 1048576");
  CHECK(error_of(with(kTorchrun, {{"MASTER_PORT", "65535"}})) ==
        "MASTER_PORT=65535: must be a whole number from 1 to 65534");
  CHECK(error_of(with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "4"}})) ==
        "MASTER_ADDR is not set: the ranks of mpirun are on several machines and "
        "need to know rank 0's; set MASTER_ADDR to its name on all of them");
  CHECK(error_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}) ==
        "MPI_LOCALRANKID is not set, but other variables of mpiexec are; start "
        "stepcal with mpiexec, or unset them");
}

}  // namespace stepsim
