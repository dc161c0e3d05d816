#include "calibrate/rank_processes.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "costmodel/input_error.h"

namespace stepsim {
namespace {

// The first character of a message on a rank's pipe.
constexpr char kLine = 'L';
constexpr char kInputError = 'I';
constexpr char kFault = 'E';
constexpr char kDone = 'D';
constexpr char kNewline = '\x1e';  // Stands for a line break inside an error message.

/// Exit status of a rank that has told its error.
constexpr int kToldError = 3;

/// Neighbours of a rank that dies fail soon after it; this long is waited to learn the cause.
constexpr int kGraceMilliseconds = 300;

std::string errno_text() {
  return std::system_category().message(errno);
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      throw EnvironmentFault("cannot send results to the parent process: " + errno_text());
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void send_message(int fd, char kind, std::string text) {
  std::replace(text.begin(), text.end(), '\n', kNewline);
  write_all(fd, std::string(1, kind) + text + "\n");
}

/// A pipe whose ends close themselves.
class Pipe {
 public:
  Pipe() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) {
      throw EnvironmentFault("cannot make a pipe: " + errno_text());
    }
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  [[nodiscard]] int reader() const { return ends_[0]; }
  [[nodiscard]] int writer() const { return ends_[1]; }
  void close_reader() { close_end(0); }
  void close_writer() { close_end(1); }

 private:
  void close_end(std::size_t end) {
    if (ends_[end] >= 0) {
      ::close(ends_[end]);
      ends_[end] = -1;
    }
  }
  std::array<int, 2> ends_{-1, -1};
};

/// Where the signal handler writes; -1 while no ranks run.
volatile std::sig_atomic_t signal_pipe = -1;

void on_signal(int /*signal*/) {
  const int saved = errno;
  const char byte = 1;
  if (::write(static_cast<int>(signal_pipe), &byte, 1) < 0) {
    // Nothing can be done in a signal handler; the pipe is full of signals already.
  }
  errno = saved;
}

/// SIGINT and SIGTERM go to a pipe while it lives, so that the parent's poll wakes up.
class SignalsToPipe {
 public:
  SignalsToPipe() {
    signal_pipe = pipe_.writer();
    struct sigaction action {};
    action.sa_handler = on_signal;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &interrupt_before_);
    sigaction(SIGTERM, &action, &terminate_before_);
  }
  ~SignalsToPipe() {
    sigaction(SIGINT, &interrupt_before_, nullptr);
    sigaction(SIGTERM, &terminate_before_, nullptr);
    signal_pipe = -1;
  }
  SignalsToPipe(const SignalsToPipe&) = delete;
  SignalsToPipe& operator=(const SignalsToPipe&) = delete;
  [[nodiscard]] int reader() const { return pipe_.reader(); }

 private:
  Pipe pipe_;
  struct sigaction interrupt_before_ {};
  struct sigaction terminate_before_ {};
};

class RendezvousFolder {
 public:
  RendezvousFolder() {
    path_ = (std::filesystem::temp_directory_path() / "stepsim-ranks-XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr) {
      throw EnvironmentFault(fmt::format("cannot make a folder {}: {}", path_, errno_text()));
    }
  }
  ~RendezvousFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  RendezvousFolder(const RendezvousFolder&) = delete;
  RendezvousFolder& operator=(const RendezvousFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Why a rank ended before its time. The lowest cause is reported: neighbours only notice a lost
/// connection.
struct Failure {
  enum Cause { BadInput, Crash, Fault };
  Cause cause;
  std::string text;
};

struct Rank {
  pid_t pid = -1;  ///< -1: not started, or reaped.
  Pipe pipe;
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
          if (&other != &ranks_[i]) {
            other.pipe.close_writer();
          }
        }
        const int writer = ranks_[i].pipe.writer();
        run_child(RankContext(static_cast<int>(i), static_cast<int>(ranks_.size()), folder, writer),
                  parent,
                  writer,
                  body);
      }
      ranks_[i].pid = pid;
      ranks_[i].pipe.close_writer();
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
    } else if (kind == kDone) {
      ranks_[i].done = true;
    } else {
      ranks_[i].told = true;
      fail({kind == kInputError ? Failure::BadInput : Failure::Fault, text});
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
  send_message(pipe_, kLine, line);
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
