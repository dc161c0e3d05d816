#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace stepsim {

class LaunchedGroup;

/// Where a rank stands among the others.
struct RankSeat {
  int rank = 0;
  int ranks = 1;
  int local_rank = 0;  ///< Among the ranks of this machine: which of its devices is this rank's.
  int nodes = 1;       ///< Machines of all ranks.
  std::string folder;  ///< Shared by the ranks of a machine, for rendezvous.
};

/// What a forked rank gets: its seat, and pipes to and from the parent.
class RankContext {
 public:
  RankContext(RankSeat seat, int to_parent, int from_parent)
      : seat_(std::move(seat)), to_parent_(to_parent), from_parent_(from_parent) {}
  [[nodiscard]] int rank() const { return seat_.rank; }
  [[nodiscard]] int ranks() const { return seat_.ranks; }
  [[nodiscard]] int local_rank() const { return seat_.local_rank; }
  [[nodiscard]] int nodes() const { return seat_.nodes; }
  [[nodiscard]] const std::string& folder() const { return seat_.folder; }
  /// Sends one line to the parent (no newline inside).
  void send(const std::string& line) const;
  /// Returns rank 0's text on every rank; the others wait for it. Called by all ranks in the same
  /// order. For short texts: what no rank has read yet must fit into a pipe (64 KiB).
  [[nodiscard]] std::string broadcast(const std::string& from_rank_0) const;

 private:
  RankSeat seat_;
  int to_parent_;
  int from_parent_;
};

/// How long a rank may stand still before it is taken for lost. Ctrl-Z and a debugger's attaching
/// are shorter.
struct RankPatience {
  std::chrono::seconds held{10};    ///< By a signal or a debugger.
  std::chrono::seconds silent{30};  ///< Its process elsewhere, which speaks once a second.
};

/// Forks `ranks` processes on this machine, runs `body` in each, and hands the parent every line
/// they send, as it arrives. When one rank fails (exception, signal) the others are stopped. SIGINT
/// and SIGTERM stop all ranks, after every whole line already sent was handed over; ranks also end
/// with their parent. Call it from a process with a single thread, since locks that other threads
/// hold while it forks stay locked in the ranks, and once at a time.
///
/// With `launched`, the ranks are those of a launcher: each process that it started forks one. Rank
/// 0's process gets all lines, and the others return when it does (see LaunchedGroup).
///
/// Raises: InputError or EnvironmentFault with the failing rank's message; Interrupted on a signal;
/// whatever `on_line` throws.
void run_ranks(int ranks,
               const std::function<void(const RankContext&)>& body,
               const std::function<void(int rank, const std::string& line)>& on_line,
               LaunchedGroup* launched = nullptr,
               RankPatience patience = {});

/// Thrown after Ctrl-C: the exit status is 130, and what was written before stays.
struct Interrupted {};

}  // namespace stepsim
