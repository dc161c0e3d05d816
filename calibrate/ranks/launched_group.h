#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "calibrate/ranks/launcher.h"
#include "calibrate/ranks/rank_group.h"

namespace stepsim {

/// Thrown on ranks above 0 when rank 0 has failed, was interrupted or has left. Rank 0 itself tells
/// why.
struct StoppedByRank0 {};

/// The processes that a launcher started, connected to rank 0's by TCP while this lives. For every
/// run each of them forks a child that works as its rank, so that a run begins with a fresh process
/// as it does without a launcher. Rank 0's process decides what is run; only it gets lines, prints
/// and writes.
class LaunchedGroup {
 public:
  /// Waits until all ranks have connected. Raises InputError (the ranks disagree on how many they
  /// are) or EnvironmentFault (some do not come within `patience`, the port is taken, …).
  explicit LaunchedGroup(Launch launch,
                         std::chrono::milliseconds patience = std::chrono::seconds(60));
  /// On rank 0: tells the others that no more runs follow.
  ~LaunchedGroup();
  LaunchedGroup(const LaunchedGroup&) = delete;
  LaunchedGroup& operator=(const LaunchedGroup&) = delete;

  [[nodiscard]] bool leads() const { return launch_.rank == 0; }
  [[nodiscard]] int ranks() const { return launch_.ranks; }
  [[nodiscard]] int nodes() const { return nodes_; }
  [[nodiscard]] const std::string& launcher() const { return launch_.launcher; }

  /// On ranks above 0: waits until rank 0 starts another run (true) or says that none follows.
  [[nodiscard]] bool more();

  /// Does what run_ranks() does. Ranks above 0 get no lines; on them StoppedByRank0 is thrown when
  /// the run ends early elsewhere.
  void run(int ranks,
           const ranks::RankBody& body,
           const ranks::OnLine& on_line,
           RankPatience patience);

 private:
  void lead(std::chrono::milliseconds patience);
  void join(std::chrono::milliseconds patience);
  void follow(const ranks::RankBody& body, RankPatience patience);

  Launch launch_;
  int nodes_ = 1;
  std::vector<int> sockets_;  ///< On rank 0: [rank], -1 for itself. On others: the one to rank 0.
  std::string next_run_;      ///< On others: the message of a run that has begun.
};

/// Connects to the group that a launcher has started this process for. Returns null when there is
/// no launcher. Raises what read_launch() and LaunchedGroup raise.
[[nodiscard]] std::unique_ptr<LaunchedGroup> join_launched_group();

}  // namespace stepsim
