#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "calibrate/ranks/rank_channel.h"
#include "calibrate/ranks/rank_processes.h"

namespace stepsim::ranks {

using RankBody = std::function<void(const RankContext&)>;
using OnLine = std::function<void(int rank, const std::string& line)>;

/// One rank in a process of its own, forked from this one.
class ForkedRank {
 public:
  ForkedRank() = default;
  ~ForkedRank() { stop(); }
  ForkedRank(const ForkedRank&) = delete;
  ForkedRank& operator=(const ForkedRank&) = delete;

  /// Forks a process that runs `body` and says in a message how it ended. Raises EnvironmentFault.
  void start(const RankSeat& seat, const RankBody& body);
  [[nodiscard]] int reader() const { return to_parent_->reader(); }
  [[nodiscard]] int writer() const { return from_parent_->writer(); }
  /// Waits for the end of the process. Returns what there is to say about it: nothing when it left
  /// by itself. `has_told` means that it has sent a message about its end.
  [[nodiscard]] std::string reap(const RankSeat& seat, bool has_told);
  /// Looks whether the process works; call it once a second. Returns what there is to say when a
  /// signal or a debugger has held it at as many looks in a row as patience has seconds, so that
  /// time in which this process was held too does not count.
  [[nodiscard]] std::string look(const RankSeat& seat, const RankPatience& patience);
  /// Kills the process and waits for its end.
  void stop();

 private:
  pid_t pid_ = -1;            ///< -1: not started, or reaped.
  int looks_while_held_ = 0;  ///< In a row.
  // They are made at the start: a rank that was forked before would keep their ends open.
  std::optional<Pipe> to_parent_;
  std::optional<Pipe> from_parent_;
};

/// Collects what arrives on a pipe or socket and gives out whole messages.
class MessageReader {
 public:
  /// Reads once. Returns false when the other end is closed.
  bool read_some(int fd);
  /// The next whole message, its kind first, with line breaks restored.
  [[nodiscard]] std::optional<std::string> next();

 private:
  std::string pending_;
};

/// The ranks of one run as rank 0's parent sees them: forked here, or behind sockets.
class RankGroup {
 public:
  /// `sockets` is [rank]: the connection to a rank elsewhere, -1 for one to be forked here.
  RankGroup(std::vector<int> sockets, const OnLine& on_line, RankPatience patience);
  /// Stops the ranks that still run.
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  /// Starts the ranks. `seat` is what they have in common; rank and local rank are filled in for
  /// each that is forked.
  void start(const RankBody& body, RankSeat seat);
  /// Works until all ranks are done. Returns false when a signal arrived. Raises what a rank has
  /// failed with.
  bool run(int signals);

 private:
  /// Why a rank ended before its time. The first cause of this list is reported when ranks give
  /// several, since neighbours only notice a lost connection.
  struct Failure {
    enum Cause { BadInput, Crash, Fault };
    Cause cause;
    std::string text;
  };
  struct Rank {
    RankSeat seat;
    ForkedRank process;
    int socket = -1;  ///< -1 when the rank is forked here.
    MessageReader messages;
    bool open = true;
    bool done = false;
    bool told = false;     ///< It has told its error.
    int silent_looks = 0;  ///< In a row, of a rank behind a socket.
    [[nodiscard]] int reader() const { return socket >= 0 ? socket : process.reader(); }
    [[nodiscard]] int writer() const { return socket >= 0 ? socket : process.writer(); }
  };

  [[nodiscard]] bool any_open() const;
  [[nodiscard]] bool grace_is_over() const;
  /// Handles what there is to read, after waiting for it at most `timeout` ms (-1 = for ever).
  void wait_for_input(int signals, int timeout);
  void read_some(Rank& rank);
  /// Once a second: fails when a rank is held, or nothing is heard of one that is elsewhere.
  void look_at_ranks();
  /// Names the ranks that had not ended when others failed: what those waited for.
  [[nodiscard]] std::string unfinished() const;
  void handle(Rank& rank, const std::string& message);
  /// Passes rank 0's text on to all others.
  void broadcast(const std::string& text);
  void tell_sockets(char kind);
  void fail(Failure failure);
  void close(Rank& rank);
  void stop();
  /// Hands over the whole lines that stopped ranks left behind.
  void drain();

  std::vector<Rank> ranks_;
  const OnLine& on_line_;
  RankPatience patience_;
  std::optional<Failure> failure_;
  std::chrono::steady_clock::time_point failed_at_;
  std::chrono::steady_clock::time_point looked_at_;
  std::chrono::steady_clock::time_point heard_at_;  ///< The last line or broadcast of any rank.
  bool interrupted_ = false;
  bool stopped_ = false;  ///< The ranks behind sockets have been told that the run is over.
};

}  // namespace stepsim::ranks
