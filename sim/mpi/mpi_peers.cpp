#include <list>
#include <utility>

#include <mpi.h>

#include "costmodel/base/input_error.h"
#include "sim/mpi/join_peers.h"
#include "sim/mpi/launched_processes.h"

namespace stepsim {

namespace {

/// The processes of MPI_COMM_WORLD. MPI ends the program where it fails itself.
class MpiPeers : public Peers {
 public:
  MpiPeers() {
    int provided = 0;
    // Points are computed by other threads, which send nothing.
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &own_);
    MPI_Comm_size(MPI_COMM_WORLD, &count_);
  }
  ~MpiPeers() override {
    for (Sent& sent : sent_) {
      MPI_Wait(&sent.request, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
  }

  [[nodiscard]] int own() const override { return own_; }
  [[nodiscard]] int count() const override { return count_; }

  /// Does not wait, so that two processes cannot wait for each other.
  void send(int to, const std::string& text) override {
    forget_sent();
    Sent& sent = sent_.emplace_back(Sent{text, {}});
    MPI_Isend(sent.text.data(),
              static_cast<int>(sent.text.size()),
              MPI_CHAR,
              to,
              0,
              MPI_COMM_WORLD,
              &sent.request);
  }

  [[nodiscard]] std::optional<PeerMessage> receive() override {
    forget_sent();
    int has_message = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &has_message, &status);
    if (has_message == 0) {
      return std::nullopt;
    }
    int size = 0;
    MPI_Get_count(&status, MPI_CHAR, &size);
    PeerMessage message;
    message.from = status.MPI_SOURCE;
    message.text.resize(static_cast<std::size_t>(size));
    MPI_Recv(
        message.text.data(), size, MPI_CHAR, message.from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return message;
  }

 private:
  /// A message that MPI may still read.
  struct Sent {
    std::string text;
    MPI_Request request;
  };

  void forget_sent() {
    sent_.remove_if([](Sent& sent) {
      int is_done = 0;
      MPI_Test(&sent.request, &is_done, MPI_STATUS_IGNORE);
      return is_done != 0;
    });
  }

  int own_ = 0;
  int count_ = 1;
  std::list<Sent> sent_;
};

}  // namespace

std::unique_ptr<Peers> join_peers() {
  const LaunchedProcesses launched = launched_processes();
  if (launched.count <= 1) {
    return nullptr;
  }
  auto peers = std::make_unique<MpiPeers>();
  if (peers->count() != launched.count) {
    throw EnvironmentFault(
        "{} has started {} processes, but MPI knows {}: start them with the mpirun of the MPI that "
        "stepsim was built with (srun --mpi=pmix where Slurm knows it), or let each process "
        "compute a part: --shard auto --resume 'part-{{shard}}.jsonl', then stepsim merge",
        launched.launcher,
        launched.count,
        peers->count());
  }
  return peers;
}

}  // namespace stepsim
