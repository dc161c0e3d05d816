#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "calibrate/ranks/launcher.h"
#include "calibrate/ranks/rank_group.h"

namespace stepsim {

/// Rank 0 has failed, was interrupted or has left, and tells why itself.
struct StoppedByRank0 {};

/// The processes of a launcher, connected to rank 0's by TCP while this lives. Each forks a child
/// for every run, which works as its rank, so that a run begins with a fresh process as it does
/// without a launcher. Rank 0's process decides what is run; only it gets lines, prints and writes.
class LaunchedGroup {
 public:
  /// Waits until all ranks are here. Raises InputError (the ranks do not agree on how many they
  /// are), EnvironmentFault (some do not come within `patience`, the port is taken, …).
  explicit LaunchedGroup(Launch launch,
                         std::chrono::milliseconds patience = std::chrono::seconds(60));
  /// Rank 0 tells the others that no more runs follow.
  ~LaunchedGroup();
  LaunchedGroup(const LaunchedGroup&) = delete;
  LaunchedGroup& operator=(const LaunchedGroup&) = delete;

  [[nodiscard]] bool leads() const { return launch_.rank == 0; }
  [[nodiscard]] int ranks() const { return launch_.ranks; }
  [[nodiscard]] int nodes() const { return nodes_; }
  [[nodiscard]] const std::string& launcher() const { return launch_.launcher; }

  /// For ranks above 0: whether rank 0 starts another run; waits for it.
  [[nodiscard]] bool more();

  /// As run_ranks(). On ranks above 0 no line arrives, and StoppedByRank0 is thrown when the run
  /// ends early elsewhere.
  void run(int ranks, const ranks::RankBody& body, const ranks::OnLine& on_line);

 private:
  void lead(std::chrono::milliseconds patience);
  void join(std::chrono::milliseconds patience);
  void follow(const ranks::RankBody& body);

  Launch launch_;
  int nodes_ = 1;
  std::vector<int> sockets_;  ///< Of rank 0: [rank], -1 for itself. Of others: to rank 0.
  std::string next_run_;      ///< Of others: the message of a run that has begun.
};

/// The group that a launcher has started this process for, connected; null when there is none.
/// Raises what read_launch() and LaunchedGroup raise.
[[nodiscard]] std::unique_ptr<LaunchedGroup> join_launched_group();

}  // namespace stepsim
