#include "calibrate/ranks/launcher.h"

#include "costmodel/base/input_error.h"
#include "costmodel/base/parse_number.h"

namespace stepsim {
namespace {

constexpr int kDefaultPort = 29613;
constexpr int kMaxRanks = 1 << 20;
constexpr std::size_t kMaxSecret = 512;

/// The variables of one launcher.
struct Names {
  const char* launcher;
  const char* rank;
  const char* ranks;
  const char* local_rank;
  const char* local_ranks;  ///< Null: it has none.
};

constexpr Names kTorchrun = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kOpenMpi = {"mpirun",
                            "OMPI_COMM_WORLD_RANK",
                            "OMPI_COMM_WORLD_SIZE",
                            "OMPI_COMM_WORLD_LOCAL_RANK",
                            "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kPmi = {"mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
// SLURM_PROCID alone is set in batch scripts too, outside of any srun.
constexpr Names kSrun = {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr};

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  [[nodiscard]] bool has(const char* name) const { return environment_(name) != nullptr; }

  [[nodiscard]] std::string text(const char* name) const {
    const char* const value = environment_(name);
    return value == nullptr ? "" : value;
  }

  /// A whole number from `lo` to `hi`.
  [[nodiscard]] int number(const char* name, int lo, int hi) const {
    const std::string value = text(name);
    const auto result = parse_number<int>(value);
    if (!result || *result < lo || *result > hi) {
      throw InputError(
          "{}={}: must be a whole number from {} to {}", name, printable(value), lo, hi);
    }
    return *result;
  }

 private:
  const Environment& environment_;
};

const Names* find_launcher(const Reader& reader) {
  if (reader.has(kTorchrun.rank) || reader.has(kTorchrun.ranks)) {
    return &kTorchrun;
  }
  if (reader.has(kOpenMpi.rank) || reader.has(kOpenMpi.ranks)) {
    return &kOpenMpi;
  }
  const bool has_srun = reader.has(kSrun.ranks);
  // srun --mpi=pmi2 sets the first two of PMI's variables, and SLURM's local rank.
  if (reader.has(kPmi.local_rank) || (reader.has(kPmi.rank) && !has_srun)) {
    return &kPmi;
  }
  return has_srun ? &kSrun : nullptr;
}

void require_all(const Reader& reader, const Names& names) {
  for (const char* name : {names.rank, names.ranks, names.local_rank, names.local_ranks}) {
    if (name != nullptr && !reader.has(name)) {
      throw InputError(
          "{} is not set, but other variables of {} are; start stepcal "
          "with {}, or unset them",
          name,
          names.launcher,
          names.launcher);
    }
  }
}

/// "gpu[03-05,9],x1" begins with gpu03.
std::string first_host(const std::string& list) {
  const std::size_t end = list.find_first_of(",[");
  if (end == std::string::npos || list[end] == ',') {
    return list.substr(0, end);
  }
  const std::size_t digits_end = list.find_first_of(",-]", end);
  const std::size_t close = list.find(']', end);
  if (digits_end == std::string::npos || close == std::string::npos) {
    return "";
  }
  const std::size_t tail_end = list.find(',', close);
  return list.substr(0, end) + list.substr(end + 1, digits_end - end - 1) +
         list.substr(close + 1, tail_end == std::string::npos ? tail_end : tail_end - close - 1);
}

/// The address of rank 0's machine.
std::string find_address(const Reader& reader, const Names& names, int ranks, int local_ranks) {
  if (reader.has("MASTER_ADDR")) {
    return reader.text("MASTER_ADDR");
  }
  if (local_ranks == ranks) {
    return "127.0.0.1";
  }
  std::string host = first_host(reader.text("SLURM_STEP_NODELIST"));
  if (&names != &kSrun || host.empty()) {
    throw InputError(
        "MASTER_ADDR is not set: the ranks of {} are on several machines and need "
        "to know rank 0's; set MASTER_ADDR to its name on all of them",
        names.launcher);
  }
  return host;
}

int find_port(const Reader& reader) {
  constexpr int kMaxPort = 65535;
  if (reader.has("STEPSIM_PORT")) {
    return reader.number("STEPSIM_PORT", 1, kMaxPort);
  }
  return reader.has("MASTER_PORT") ? reader.number("MASTER_PORT", 1, kMaxPort - 1) + 1
                                   : kDefaultPort;
}

/// STEPSIM_SECRET, else what torchrun, Open MPI (PMIx) or Slurm call the job; may be empty.
std::string find_secret(const Reader& reader) {
  for (const char* name : {"STEPSIM_SECRET", "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE"}) {
    if (reader.has(name)) {
      std::string secret = reader.text(name);
      if (secret.size() > kMaxSecret) {
        throw InputError("{}: {} bytes; at most {} are sent", name, secret.size(), kMaxSecret);
      }
      return secret;
    }
  }
  return reader.has("SLURM_JOB_ID")
             ? reader.text("SLURM_JOB_ID") + "." + reader.text("SLURM_STEP_ID")
             : "";
}

/// Ranks on this machine; 0 = not told.
int find_local_ranks(const Reader& reader, const Names& names, int ranks) {
  if (names.local_ranks != nullptr) {
    return reader.number(names.local_ranks, 1, ranks);
  }
  return reader.text("SLURM_STEP_NUM_NODES") == "1" ? ranks : 0;
}

}  // namespace

std::optional<Launch> read_launch(const Environment& environment) {
  const Reader reader(environment);
  const Names* const names = find_launcher(reader);
  if (names == nullptr) {
    return std::nullopt;
  }
  require_all(reader, *names);
  Launch launch;
  launch.launcher = names->launcher;
  launch.ranks = reader.number(names->ranks, 1, kMaxRanks);
  launch.rank = reader.number(names->rank, 0, launch.ranks - 1);
  const int local_ranks = find_local_ranks(reader, *names, launch.ranks);
  launch.local_rank =
      reader.number(names->local_rank, 0, (local_ranks > 0 ? local_ranks : launch.ranks) - 1);
  if (launch.ranks == 1) {
    return std::nullopt;
  }
  launch.address = find_address(reader, *names, launch.ranks, local_ranks);
  launch.port = find_port(reader);
  launch.secret = find_secret(reader);
  return launch;
}

}  // namespace stepsim
