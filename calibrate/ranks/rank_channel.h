#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <string>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include "costmodel/base/input_error.h"

/// The parts of run_ranks(): messages, pipes, and signals as input.
namespace stepsim::ranks {

// The first character of a message on a rank's pipe.
inline constexpr char kLine = 'L';
inline constexpr char kInputError = 'I';
inline constexpr char kFault = 'E';
inline constexpr char kDone = 'D';
inline constexpr char kBroadcast = 'B';
// Between the processes of a launcher.
inline constexpr char kHello = 'H';       // To rank 0: who I am.
inline constexpr char kWelcome = 'W';     // From rank 0: all are here.
inline constexpr char kRun = 'R';         // From rank 0: a run begins.
inline constexpr char kFinished = 'F';    // From rank 0: all ranks are done with it.
inline constexpr char kQuit = 'Q';        // From rank 0: no more runs.
inline constexpr char kCrash = 'C';       // To rank 0: how my rank's process ended.
inline constexpr char kStop = 'S';        // Both ways: interrupted, or failed elsewhere.
inline constexpr char kStopped = 'Z';     // To rank 0: nothing comes any more.
inline constexpr char kAlive = 'A';       // To rank 0, once a second: this process works.
inline constexpr char kNewline = '\x1e';  // Stands for a line break inside an error message.

/// Exit status of a rank that has told its error.
inline constexpr int kToldError = 3;

inline std::string errno_text() {
  return std::system_category().message(errno);
}

inline void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      throw EnvironmentFault("cannot send to another process: " + errno_text());
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

inline void send_message(int fd, char kind, std::string text) {
  std::replace(text.begin(), text.end(), '\n', kNewline);
  write_all(fd, std::string(1, kind) + text + "\n");
}

/// Waits for the next message and returns it, its kind first, with line breaks restored. It is read
/// byte by byte, so that nothing behind it is taken.
inline std::string receive_message(int fd) {
  std::string text;
  for (char byte = 0;;) {
    const ssize_t got = ::read(fd, &byte, 1);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      throw EnvironmentFault("the parent process is gone");
    }
    if (byte == '\n') {
      std::replace(text.begin(), text.end(), kNewline, '\n');
      return text;
    }
    text += byte;
  }
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
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): a signal handler reads it.
inline volatile std::sig_atomic_t signal_pipe = -1;

inline void on_signal(int /*signal*/) {
  const int saved = errno;
  const char byte = 1;
  if (::write(static_cast<int>(signal_pipe), &byte, 1) < 0) {
    // Nothing can be done in a signal handler; the pipe is full of signals already.
  }
  errno = saved;
}

/// While this lives, SIGINT, SIGTERM and SIGHUP (unless nohup has it ignored) write to a pipe, so
/// that the parent's poll() wakes up, and writing to a rank that is gone is an error instead of a
/// signal.
class SignalsToPipe {
 public:
  SignalsToPipe() {
    signal_pipe = pipe_.writer();
    struct sigaction action {};
    action.sa_handler = on_signal;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &interrupt_before_);
    sigaction(SIGTERM, &action, &terminate_before_);
    sigaction(SIGHUP, &action, &hang_up_before_);
    if (hang_up_before_.sa_handler == SIG_IGN) {
      sigaction(SIGHUP, &hang_up_before_, nullptr);
    }
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, &lost_pipe_before_);
  }
  ~SignalsToPipe() {
    sigaction(SIGINT, &interrupt_before_, nullptr);
    sigaction(SIGTERM, &terminate_before_, nullptr);
    sigaction(SIGHUP, &hang_up_before_, nullptr);
    sigaction(SIGPIPE, &lost_pipe_before_, nullptr);
    signal_pipe = -1;
  }
  SignalsToPipe(const SignalsToPipe&) = delete;
  SignalsToPipe& operator=(const SignalsToPipe&) = delete;
  [[nodiscard]] int reader() const { return pipe_.reader(); }

 private:
  Pipe pipe_;
  struct sigaction interrupt_before_ {};
  struct sigaction terminate_before_ {};
  struct sigaction hang_up_before_ {};
  struct sigaction lost_pipe_before_ {};
};

}  // namespace stepsim::ranks
