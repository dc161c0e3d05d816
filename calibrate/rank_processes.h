#pragma once

#include <functional>
#include <string>

namespace stepsim {

/// What a forked rank gets: its number, and a channel to the parent.
class RankContext {
 public:
  RankContext(int rank, int ranks, std::string folder, int pipe)
      : rank_(rank), ranks_(ranks), folder_(std::move(folder)), pipe_(pipe) {}
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] const std::string& folder() const { return folder_; }  ///< Shared, for rendezvous.
  /// Sends one line to the parent (no newline inside).
  void send(const std::string& line) const;

 private:
  int rank_;
  int ranks_;
  std::string folder_;
  int pipe_;
};

/// Forks `ranks` processes on this machine, runs `body` in each, and hands the parent every line
/// they send, as it arrives. When one rank fails (exception, signal) the others are stopped.
/// SIGINT and SIGTERM stop all ranks, after every whole line already sent was handed over; ranks
/// also end with their parent. One call at a time in a process, and from a single thread: what
/// other threads hold while it forks stays locked in the ranks.
///
/// Raises: InputError or EnvironmentFault with the failing rank's message; Interrupted on a signal;
/// whatever `on_line` throws.
void run_ranks(int ranks,
               const std::function<void(const RankContext&)>& body,
               const std::function<void(int rank, const std::string& line)>& on_line);

/// Ctrl-C: the exit status is 130, and what was written before stays.
struct Interrupted {};

}  // namespace stepsim
