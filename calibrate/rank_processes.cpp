#include "calibrate/rank_processes.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <vector>

#include <fmt/core.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calibrate/rank_channel.h"
#include "costmodel/input_error.h"

namespace stepsim {
namespace {

using namespace ranks;  // NOLINT(google-build-using-namespace): this file's own parts.

/// Neighbours of a rank that dies fail soon after it; this long is waited to learn the cause.
constexpr int kGraceMilliseconds = 300;

/// Why a rank ended before its time. The lowest cause is reported: neighbours only notice a lost
/// connection.
struct Failure {
  enum Cause { BadInput, Crash, Fault };
  Cause cause;
  std::string text;
};

struct Rank {
  pid_t pid = -1;  ///< -1: not started, or reaped.
  Pipe pipe;       ///< To the parent.
  Pipe answers;    ///< From the parent.
  bool open = true;
  bool done = false;
  bool told = false;  ///< Has told its error.
  std::string pending;
};

[[noreturn]] void run_child(const RankContext& context,
                            pid_t parent,
                            int pipe,
                            const std::function<void(const RankContext&)>& body) {
  std::signal(SIGINT, SIG_IGN);  // Ctrl-C reaches the whole group; the parent stops the ranks.
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGPIPE, SIG_IGN);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) {
    ::_exit(kToldError);
  }
  int status = 0;
  try {
    try {
      body(context);
      send_message(pipe, kDone, "");
    } catch (const InputError& error) {
      status = kToldError;
      send_message(pipe, kInputError, error.what());
    } catch (const std::exception& error) {
      status = kToldError;
      send_message(pipe, kFault, error.what());
    }
  } catch (...) {
    status = kToldError;  // The parent is gone: nobody to tell.
  }
  std::fflush(nullptr);
  ::_exit(status);
}

class RankGroup {
 public:
  RankGroup(int count, const std::function<void(int, const std::string&)>& on_line)
      : ranks_(static_cast<std::size_t>(count)), on_line_(on_line) {}
  ~RankGroup() { stop(); }
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  void start(const std::function<void(const RankContext&)>& body, const std::string& folder) {
    std::fflush(nullptr);  // Or every rank would print the parent's buffered text again.
    const pid_t parent = ::getpid();
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const pid_t pid = ::fork();
      if (pid < 0) {
        throw EnvironmentFault("cannot start a process: " + errno_text());
      }
      if (pid == 0) {
        for (Rank& other : ranks_) {
          other.pipe.close_reader();
          other.answers.close_writer();
          if (&other != &ranks_[i]) {
            other.pipe.close_writer();
            other.answers.close_reader();
          }
        }
        const auto rank = static_cast<int>(i);
        const int writer = ranks_[i].pipe.writer();
        run_child(RankContext({rank, static_cast<int>(ranks_.size()), rank, 1, folder},
                              writer,
                              ranks_[i].answers.reader()),
                  parent,
                  writer,
                  body);
      }
      ranks_[i].pid = pid;
      ranks_[i].pipe.close_writer();
      ranks_[i].answers.close_reader();
    }
  }

  /// Until all ranks are done. False: a signal arrived.
  bool run(int signals) {
    while (any_open() && !grace_is_over()) {
      wait_for_input(signals, failure_.has_value() ? kGraceMilliseconds : -1);
      if (interrupted_) {
        stop();
        drain();
        return false;
      }
    }
    stop();
    if (failure_.has_value()) {
      if (failure_->cause == Failure::BadInput) {
        throw InputError(failure_->text);
      }
      throw EnvironmentFault(failure_->text);
    }
    return true;
  }

 private:
  [[nodiscard]] bool any_open() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.open; });
  }

  [[nodiscard]] bool grace_is_over() const {
    constexpr auto kGrace = std::chrono::milliseconds(kGraceMilliseconds);
    return failure_.has_value() && std::chrono::steady_clock::now() >= failed_at_ + kGrace;
  }

  /// Handles what is there to read; waits for it at most `timeout` ms, -1 for ever.
  void wait_for_input(int signals, int timeout) {
    std::vector<pollfd> polled{{signals, POLLIN, 0}};
    std::vector<std::size_t> who{0};
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i].open) {
        polled.push_back({ranks_[i].pipe.reader(), POLLIN, 0});
        who.push_back(i);
      }
    }
    if (::poll(polled.data(), polled.size(), timeout) < 0) {
      return;  // A signal: its byte is in the pipe next time.
    }
    interrupted_ = (polled[0].revents & POLLIN) != 0;
    for (std::size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents != 0) {
        read_some(who[i]);
      }
    }
  }

  void read_some(std::size_t i) {
    Rank& rank = ranks_[i];
    std::array<char, 65536> chunk{};
    const ssize_t got = ::read(rank.pipe.reader(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) {
      return;
    }
    if (got <= 0) {
      rank.open = false;
      reap(i);
      return;
    }
    rank.pending.append(chunk.data(), static_cast<std::size_t>(got));
    std::size_t begin = 0;
    for (std::size_t end = rank.pending.find('\n'); end != std::string::npos;
         end = rank.pending.find('\n', begin)) {
      handle(i, rank.pending[begin], rank.pending.substr(begin + 1, end - begin - 1));
      begin = end + 1;
    }
    rank.pending.erase(0, begin);
  }

  void handle(std::size_t i, char kind, std::string text) {
    std::replace(text.begin(), text.end(), kNewline, '\n');
    if (kind == kLine) {
      on_line_(static_cast<int>(i), text);
    } else if (kind == kBroadcast) {
      broadcast(text);
    } else if (kind == kDone) {
      ranks_[i].done = true;
    } else {
      ranks_[i].told = true;
      fail({kind == kInputError ? Failure::BadInput : Failure::Fault, text});
    }
  }

  /// Passes rank 0's text on to all others.
  void broadcast(const std::string& text) {
    for (std::size_t i = 1; i < ranks_.size(); ++i) {
      try {
        send_message(ranks_[i].answers.writer(), kBroadcast, text);
      } catch (const EnvironmentFault&) {
        // That rank has ended; why is told when it is reaped.
      }
    }
  }

  void fail(Failure failure) {
    if (!failure_.has_value()) {
      failed_at_ = std::chrono::steady_clock::now();
    }
    if (!failure_.has_value() || failure.cause < failure_->cause) {
      failure_ = std::move(failure);
    }
  }

  void reap(std::size_t i) {
    Rank& rank = ranks_[i];
    if (rank.pid < 0) {
      return;  // Stopped.
    }
    int status = 0;
    while (::waitpid(rank.pid, &status, 0) < 0 && errno == EINTR) {
    }
    rank.pid = -1;
    if (WIFSIGNALED(status)) {
      const int signal = WTERMSIG(status);
      fail({Failure::Crash,
            fmt::format("rank {} of {} was ended by signal {} ({})",
                        i,
                        ranks_.size(),
                        signal,
                        ::strsignal(signal))});
    } else if (!rank.done && !rank.told) {
      fail(
          {Failure::Crash,
           fmt::format(
               "rank {} of {} ended early with status {}", i, ranks_.size(), WEXITSTATUS(status))});
    }
  }

  /// Ends the ranks that still run, by their process ids, and waits for them.
  void stop() {
    for (const Rank& rank : ranks_) {
      if (rank.pid > 0) {
        ::kill(rank.pid, SIGKILL);
      }
    }
    for (Rank& rank : ranks_) {
      while (rank.pid > 0 && ::waitpid(rank.pid, nullptr, 0) < 0 && errno == EINTR) {
      }
      rank.pid = -1;
    }
  }

  /// Hands over the whole lines that stopped ranks left in their pipes.
  void drain() {
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      while (ranks_[i].open) {
        read_some(i);
      }
    }
  }

  std::vector<Rank> ranks_;
  const std::function<void(int, const std::string&)>& on_line_;
  std::optional<Failure> failure_;
  std::chrono::steady_clock::time_point failed_at_;
  bool interrupted_ = false;
};

}  // namespace

void RankContext::send(const std::string& line) const {
  send_message(to_parent_, kLine, line);
}

std::string RankContext::broadcast(const std::string& from_rank_0) const {
  if (seat_.rank > 0) {
    return receive_message(from_parent_).substr(1);
  }
  send_message(to_parent_, kBroadcast, from_rank_0);
  return from_rank_0;
}

void run_ranks(int ranks,
               const std::function<void(const RankContext&)>& body,
               const std::function<void(int rank, const std::string& line)>& on_line) {
  if (ranks < 1) {
    throw InputError(fmt::format("ranks: {} is too few; at least 1 process is needed", ranks));
  }
  const RendezvousFolder folder;
  const SignalsToPipe signals;
  RankGroup group(ranks, on_line);
  group.start(body, folder.path());
  if (!group.run(signals.reader())) {
    throw Interrupted{};
  }
}

}  // namespace stepsim
