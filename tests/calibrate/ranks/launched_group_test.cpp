#include "calibrate/ranks/launched_group.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calibrate/ranks/sockets.h"
#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

using namespace std::chrono_literals;

constexpr RankPatience kShortPatience{2s, 5s};
const auto kIgnoreLines = [](int, const std::string&) {};

/// How a process of a rank above 0 ended.
enum Status { Left = 0, Stopped = 20, Fault = 21, WasInterrupted = 22, Other = 23 };

Launch launch_of(int rank, int ranks) {
  static int runs = 0;
  runs += rank == 0 ? 1 : 0;
  Launch launch;
  launch.launcher = "hands";
  launch.rank = rank;
  launch.ranks = ranks;
  launch.local_rank = rank;
  launch.address = "127.0.0.1";
  launch.port = 20000 + (::getppid() * 7 + ::getpid() + runs) % 20000;
  return launch;
}

/// Processes of the ranks above 0, started by hand; those that are left are killed at the end.
class Others {
 public:
  /// `body` of all runs that rank 0 starts.
  Others(Launch launch, const ranks::RankBody& body) {
    const int ranks = launch.ranks;
    std::fflush(nullptr);  // Or their children would print the buffered text again.
    for (int rank = 1; rank < ranks; ++rank) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        launch.rank = rank;
        launch.local_rank = rank;
        ::_exit(follow(launch, body));
      }
      pids_.push_back(pid);
    }
  }
  ~Others() {
    for (const pid_t pid : pids_) {
      if (pid > 0) {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
      }
    }
  }
  void kill(int rank, int signal) const {
    ::kill(pids_[static_cast<std::size_t>(rank) - 1], signal);
  }
  int status(int rank) {
    int status = 0;
    ::waitpid(std::exchange(pids_[static_cast<std::size_t>(rank) - 1], -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  static int follow(const Launch& launch, const ranks::RankBody& body) {
    try {
      LaunchedGroup group(launch, 10s);
      while (group.more()) {
        run_ranks(launch.ranks, body, kIgnoreLines, &group, kShortPatience);
      }
      return Left;
    } catch (const StoppedByRank0&) {
      return Stopped;
    } catch (const EnvironmentFault&) {
      return Fault;
    } catch (const Interrupted&) {
      return WasInterrupted;
    } catch (...) {
      return Other;
    }
  }
  std::vector<pid_t> pids_;
};

/// The message of the error that a run of three launched ranks ends with; how the others ended.
template <typename Error>
std::string error_of(const ranks::RankBody& body, std::vector<int>* statuses) {
  const Launch launch = launch_of(0, 3);
  Others others(launch, body);
  std::string message = "no error";
  {
    LaunchedGroup group(launch, 10s);
    try {
      run_ranks(3, body, kIgnoreLines, &group, kShortPatience);
    } catch (const Error& error) {
      message = error.what();
    }
  }
  *statuses = {others.status(1), others.status(2)};
  return message;
}

}  // namespace

TEST_CASE(
    "launched ranks: lines arrive at rank 0 in order, and its broadcasts at all, run by run") {
  const auto body = [](const RankContext& context) {
    const std::string id = context.broadcast(context.rank() == 0 ? "two\nlines" : "");
    for (int i = 0; i < 3000; ++i) {
      context.send(std::to_string(i));
    }
    const bool right = id == "two\nlines" && context.local_rank() == context.rank() &&
                       context.ranks() == 3 && context.nodes() == 1 && !context.folder().empty();
    context.send(right ? "right" : "wrong");
  };
  const Launch launch = launch_of(0, 3);
  Others others(launch, body);
  {
    LaunchedGroup group(launch, 10s);
    CHECK(group.leads());
    CHECK(group.nodes() == 1);
    for (int run = 0; run < 3; ++run) {
      std::vector<int> next(3, 0);
      int right = 0;
      run_ranks(
          3,
          body,
          [&](int rank, const std::string& line) {
            int& expected = next[static_cast<std::size_t>(rank)];
            right += line == "right" ? 1 : 0;
            expected += line == std::to_string(expected) ? 1 : 0;
          },
          &group);
      CHECK(next == std::vector<int>{3000, 3000, 3000});
      CHECK(right == 3);
    }
    CHECK_THROWS_WITH_AS(run_ranks(4, body, kIgnoreLines, &group),
                         "4 ranks are asked for, but hands has started 3",
                         InputError);
  }
  CHECK(others.status(1) == Left);
  CHECK(others.status(2) == Left);
}

TEST_CASE("launched ranks: the error of any rank reaches rank 0, and the others are stopped") {
  std::vector<int> statuses;
  const auto bad = [](const RankContext& context) {
    if (context.rank() == 2) {
      throw InputError("two lines:\nthe second");
    }
    ::sleep(60);
  };
  CHECK(error_of<InputError>(bad, &statuses) == "two lines:\nthe second");
  CHECK(statuses == std::vector<int>{Stopped, Stopped});
  const auto faulty = [](const RankContext& context) {
    if (context.rank() == 0) {
      throw EnvironmentFault("disk full");
    }
    ::sleep(60);
  };
  CHECK(error_of<EnvironmentFault>(faulty, &statuses) == "disk full");
  CHECK(statuses == std::vector<int>{Stopped, Stopped});
  const auto aborting = [](const RankContext& context) {
    if (context.rank() == 1) {
      std::signal(SIGABRT, SIG_DFL);
      std::abort();
    }
    ::sleep(60);
  };
  CHECK(error_of<EnvironmentFault>(aborting, &statuses) ==
        "rank 1 of 3 was ended by signal 6 (Aborted)");
  const auto leaving = [](const RankContext& context) {
    if (context.rank() == 1) {
      ::_exit(7);
    }
    ::sleep(60);
  };
  CHECK(error_of<EnvironmentFault>(leaving, &statuses) == "rank 1 of 3 ended early with status 7");
}

TEST_CASE("launched ranks: one whose process is killed is an error, and rank 0's death ends all") {
  const auto body = [](const RankContext& context) {
    context.send("here");
    ::sleep(60);
  };
  const Launch launch = launch_of(0, 3);
  Others others(launch, body);
  LaunchedGroup group(launch, 10s);
  int here = 0;
  const auto kill_one = [&](int, const std::string&) {
    if (++here == 3) {
      others.kill(1, SIGKILL);
    }
  };
  CHECK_THROWS_WITH_AS(run_ranks(3, body, kill_one, &group),
                       "rank 1 of 3: the connection to it is lost",
                       EnvironmentFault);
  CHECK(others.status(2) == Stopped);

  // A process in between is rank 0's and dies in the middle of a run.
  const Launch second = launch_of(0, 3);
  const pid_t leader = ::fork();
  if (leader == 0) {
    LaunchedGroup dying(second, 10s);
    run_ranks(
        3, body, [](int, const std::string&) { ::kill(::getpid(), SIGKILL); }, &dying);
    ::_exit(0);
  }
  Others orphans(second, body);
  CHECK(orphans.status(1) == Fault);
  CHECK(orphans.status(2) == Fault);
  ::waitpid(leader, nullptr, 0);
}

TEST_CASE("launched ranks: a signal to any process stops all, and lines sent before it are kept") {
  for (const int rank : {0, 1}) {
    CAPTURE(rank);
    const auto body = [](const RankContext& context) {
      context.send("before");
      context.send("ready");
      ::sleep(60);
    };
    const Launch launch = launch_of(0, 3);
    Others others(launch, body);
    LaunchedGroup group(launch, 10s);
    int before = 0;
    int ready = 0;
    const auto on_line = [&](int, const std::string& line) {
      before += line == "before" ? 1 : 0;
      ready += line == "ready" ? 1 : 0;
      if (line == "ready" && ready == 3) {
        if (rank == 0) {
          std::raise(SIGTERM);
        } else {
          others.kill(rank, SIGTERM);
        }
      }
    };
    CHECK_THROWS_AS(run_ranks(3, body, on_line, &group), Interrupted);
    CHECK(before == 3);
    CHECK(others.status(1) == (rank == 1 ? WasInterrupted : Stopped));
    CHECK(others.status(2) == Stopped);
  }
}

TEST_CASE("launched ranks: those that do not come, or do not agree, are named") {
  Launch launch = launch_of(0, 3);
  launch.ranks = 2;
  Others one(launch, [](const RankContext&) {});
  launch.ranks = 3;
  try {
    LaunchedGroup group(launch, 2s);
    CHECK(false);
  } catch (const InputError& error) {
    CHECK(std::string(error.what()) ==
          "rank 1 was told that there are 2 ranks, rank 0 that there are 3");
  }
  CHECK(one.status(1) == Stopped);

  const Launch alone = launch_of(0, 3);
  CHECK_THROWS_WITH_AS(LaunchedGroup(alone, 200ms),
                       ("1 of 3 ranks came within 0 s to port " + std::to_string(alone.port) +
                        " of 127.0.0.1; missing: 1, 2")
                           .c_str(),
                       EnvironmentFault);
  Launch late = alone;
  late.rank = 1;
  CHECK_THROWS_WITH_AS(
      LaunchedGroup(late, 200ms),
      ("rank 1: rank 0 does not answer on port " + std::to_string(late.port) + " of 127.0.0.1")
          .c_str(),
      EnvironmentFault);
}

TEST_CASE("launched ranks: whoever else connects to the port is ignored; a taken port is told") {
  const Launch launch = launch_of(0, 2);
  const pid_t other = ::fork();
  if (other == 0) {
    const ranks::Socket stranger =
        ranks::connect_until(launch.address, launch.port, std::chrono::steady_clock::now() + 5s);
    ranks::write_all(stranger.fd(), "GET / HTTP/1.1\r\n\r\n");
    Launch mine = launch;
    mine.rank = 1;
    LaunchedGroup group(mine, 10s);
    ::_exit(group.more() ? 1 : 0);
  }
  { const LaunchedGroup group(launch, 10s); }
  int status = -1;
  ::waitpid(other, &status, 0);
  CHECK(status == 0);
  const Launch second = launch_of(0, 2);
  const ranks::Socket taken = ranks::listen_on(second.address, second.port);
  CHECK_THROWS_WITH_AS(LaunchedGroup(second, 200ms),
                       ("cannot wait for the other ranks on port " + std::to_string(second.port) +
                        ": Address already in use; set STEPSIM_PORT to another")
                           .c_str(),
                       EnvironmentFault);
}

TEST_CASE("launched ranks: strangers who say nothing or too much do not keep the ranks waiting") {
  const Launch launch = launch_of(0, 2);
  Others one(launch, [](const RankContext&) {});
  std::vector<ranks::Socket> strangers;
  const pid_t crowd = ::fork();
  if (crowd == 0) {
    for (int i = 0; i < 20; ++i) {
      strangers.push_back(
          ranks::connect_until(launch.address, launch.port, std::chrono::steady_clock::now() + 5s));
      if (i % 2 == 0) {
        try {
          ranks::write_all(strangers.back().fd(), std::string(10'000, 'H'));
        } catch (const std::exception&) {  // Rank 0 has already turned this one away.
        }
      }
    }
    ::sleep(60);
    ::_exit(0);
  }
  // Each of the ten that are silent is kept for 5 s: one after another they would take too long.
  { const LaunchedGroup group(launch, 40s); }
  CHECK(one.status(1) == Left);
  ::kill(crowd, SIGKILL);
  ::waitpid(crowd, nullptr, 0);
}

TEST_CASE("launched ranks: one with another secret is refused, and both sides say so") {
  Launch launch = launch_of(0, 2);
  launch.secret = "of this job";
  const pid_t other = ::fork();
  if (other == 0) {
    Launch mine = launch;
    mine.rank = 1;
    mine.secret = "of this jab";
    try {
      const LaunchedGroup group(mine, 5s);
    } catch (const InputError& error) {
      ::_exit(std::string(error.what()).find("another STEPSIM_SECRET") != std::string::npos ? 0
                                                                                            : 1);
    }
    ::_exit(2);
  }
  CHECK_THROWS_WITH_AS(LaunchedGroup(launch, 2s),
                       ("1 of 2 ranks came within 2 s to port " + std::to_string(launch.port) +
                        " of 127.0.0.1; missing: 1; 1 came with another STEPSIM_SECRET or job")
                           .c_str(),
                       EnvironmentFault);
  int status = -1;
  ::waitpid(other, &status, 0);
  CHECK(status == 0);
  launch.port = launch_of(0, 2).port;
  launch.secret = "\xff no UTF-8";
  Others same(launch, [](const RankContext&) {});
  { const LaunchedGroup group(launch, 10s); }
  CHECK(same.status(1) == Left);
}

TEST_CASE("ranks: one that is held by a signal is named, here and elsewhere") {
  const auto body = [](const RankContext& context) {
    if (context.rank() == 1) {
      std::raise(SIGSTOP);
    }
    ::sleep(60);
  };
  const auto begin = std::chrono::steady_clock::now();
  std::string here;
  try {
    run_ranks(2, body, kIgnoreLines, nullptr, kShortPatience);
  } catch (const EnvironmentFault& error) {
    here = error.what();
  }
  CHECK(here.starts_with("rank 1 of 2 (process "));
  CHECK(
      here.ends_with(") was held by a signal or a debugger for 2 s, and the others waited for it"));
  CHECK(std::chrono::steady_clock::now() - begin >= 2s);
  CHECK(std::chrono::steady_clock::now() - begin < 40s);
  std::vector<int> statuses;
  const std::string elsewhere = error_of<EnvironmentFault>(body, &statuses);
  CHECK(elsewhere.starts_with("rank 1 of 3 (process "));
  CHECK(elsewhere.find("was held by a signal") != std::string::npos);
  CHECK(statuses == std::vector<int>{Stopped, Stopped});
}

TEST_CASE("launched ranks: one whose process says nothing any more is named, and nobody waits") {
  const auto body = [](const RankContext& context) {
    context.send("here");
    ::sleep(60);
  };
  const Launch launch = launch_of(0, 3);
  Others others(launch, body);
  {
    LaunchedGroup group(launch, 10s);
    int here = 0;
    const auto hold_one = [&](int, const std::string&) {
      if (++here == 3) {
        others.kill(1, SIGSTOP);  // As a machine that has lost its power or its network.
      }
    };
    CHECK_THROWS_WITH_AS(run_ranks(3, body, hold_one, &group, kShortPatience),
                         "rank 1 of 3: nothing was heard of its process for 5 s; it is held, or "
                         "its machine is gone",
                         EnvironmentFault);
  }
  CHECK(others.status(2) == Stopped);
  CHECK(RankPatience().held == 10s);  // What README.md says.
  CHECK(RankPatience().silent == 30s);
}

TEST_CASE("ranks: a fault after a long silence names the rank that hangs") {
  const auto body = [](const RankContext& context) {
    if (context.rank() == 0) {
      std::this_thread::sleep_for(5500ms);
      throw EnvironmentFault("all-reduce timed out");
    }
    ::sleep(60);
  };
  CHECK_THROWS_WITH_AS(run_ranks(2, body, kIgnoreLines),
                       "all-reduce timed out; rank 1 of 2 was still busy or hung then",
                       EnvironmentFault);
}

TEST_CASE("ranks: SIGHUP stops them as Ctrl-C does, and lines sent before it are kept") {
  const auto body = [](const RankContext& context) {
    context.send("ready");
    ::sleep(60);
  };
  int ready = 0;
  const auto on_line = [&](int, const std::string&) {
    if (++ready == 2) {
      std::raise(SIGHUP);
    }
  };
  const auto before = std::signal(SIGHUP, SIG_DFL);  // A test under nohup ignores it.
  CHECK_THROWS_AS(run_ranks(2, body, on_line), Interrupted);
  std::signal(SIGHUP, before);
  CHECK(ready == 2);
}

}  // namespace stepsim
