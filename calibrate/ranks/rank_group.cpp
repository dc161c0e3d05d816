#include "calibrate/ranks/rank_group.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>

#include <fmt/core.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "costmodel/base/input_error.h"

namespace stepsim::ranks {
namespace {

/// Neighbours of a rank that dies fail soon after it; this long is waited to learn the cause.
constexpr int kGraceMilliseconds = 300;
/// The ranks are looked at this often, so that the seconds of RankPatience are numbers of looks.
constexpr int kLookMilliseconds = 1000;
/// A fault after so long without a word may come of waiting for a rank that hangs.
constexpr auto kHangTime = std::chrono::seconds(5);
/// Ranks on other machines have this long to send what they had when they were stopped. A launcher
/// that was interrupted may kill all processes after a second.
constexpr auto kDrainTime = std::chrono::seconds(3);
constexpr auto kDrainTimeOfInterrupt = std::chrono::milliseconds(500);

/// True when a signal or a debugger holds the process: state T or t of /proc/PID/stat, behind the
/// name in parentheses.
bool is_held(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(") ");
  if (name_end == std::string::npos || name_end + 2 >= text.size()) {
    return false;
  }
  const char state = text[name_end + 2];
  return state == 'T' || state == 't';
}

[[noreturn]] void run_child(const RankContext& context,
                            pid_t parent,
                            int pipe,
                            const RankBody& body) {
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

}  // namespace

void ForkedRank::start(const RankSeat& seat, const RankBody& body) {
  std::fflush(nullptr);  // Or the rank would print the parent's buffered text again.
  to_parent_.emplace();
  from_parent_.emplace();
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) {
    throw EnvironmentFault("cannot start a process: " + errno_text());
  }
  if (pid_ == 0) {
    to_parent_->close_reader();
    from_parent_->close_writer();
    run_child(RankContext(seat, to_parent_->writer(), from_parent_->reader()),
              parent,
              to_parent_->writer(),
              body);
  }
  to_parent_->close_writer();
  from_parent_->close_reader();
}

std::string ForkedRank::reap(const RankSeat& seat, bool has_told) {
  if (pid_ < 0) {
    return "";  // Stopped.
  }
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return fmt::format("rank {} of {} was ended by signal {} ({})",
                       seat.rank,
                       seat.ranks,
                       signal,
                       ::strsignal(signal));
  }
  return has_told ? ""
                  : fmt::format("rank {} of {} ended early with status {}",
                                seat.rank,
                                seat.ranks,
                                WEXITSTATUS(status));
}

std::string ForkedRank::look(const RankSeat& seat, const RankPatience& patience) {
  looks_while_held_ = pid_ > 0 && is_held(pid_) ? looks_while_held_ + 1 : 0;
  if (looks_while_held_ < patience.held.count()) {
    return "";
  }
  return fmt::format(
      "rank {} of {} (process {}) was held by a signal or a debugger for {} s, and the others "
      "waited for it",
      seat.rank,
      seat.ranks,
      pid_,
      patience.held.count());
}

void ForkedRank::stop() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
  }
  while (pid_ > 0 && ::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

bool MessageReader::read_some(int fd) {
  std::array<char, 65536> chunk{};
  const ssize_t got = ::read(fd, chunk.data(), chunk.size());
  if (got > 0) {
    pending_.append(chunk.data(), static_cast<std::size_t>(got));
  }
  return got > 0 || (got < 0 && errno == EINTR);
}

std::optional<std::string> MessageReader::next() {
  const std::size_t end = pending_.find('\n');
  if (end == std::string::npos) {
    return std::nullopt;
  }
  std::string message = pending_.substr(0, end);
  pending_.erase(0, end + 1);
  std::replace(message.begin(), message.end(), kNewline, '\n');
  return message;
}

RankGroup::RankGroup(std::vector<int> sockets, const OnLine& on_line, RankPatience patience)
    : ranks_(sockets.size()), on_line_(on_line), patience_(patience) {
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    ranks_[i].socket = sockets[i];
  }
}

RankGroup::~RankGroup() {
  stop();
}

void RankGroup::start(const RankBody& body, RankSeat seat) {
  seat.ranks = static_cast<int>(ranks_.size());
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    rank.seat = seat;
    rank.seat.rank = static_cast<int>(i);
    if (rank.socket < 0) {
      rank.seat.local_rank = seat.local_rank + static_cast<int>(i);
      rank.process.start(rank.seat, body);
    }
  }
}

bool RankGroup::run(int signals) {
  heard_at_ = std::chrono::steady_clock::now();
  while (any_open() && !grace_is_over()) {
    wait_for_input(signals, failure_.has_value() ? kGraceMilliseconds : kLookMilliseconds);
    look_at_ranks();
    if (interrupted_) {
      stop();
      drain();
      return false;
    }
  }
  if (failure_.has_value()) {
    if (failure_->cause == Failure::Fault && failed_at_ > heard_at_ + kHangTime) {
      failure_->text += unfinished();
    }
    stop();
    drain();
    if (failure_->cause == Failure::BadInput) {
      throw InputError(failure_->text);
    }
    throw EnvironmentFault(failure_->text);
  }
  tell_sockets(kFinished);
  stopped_ = true;
  return true;
}

bool RankGroup::any_open() const {
  return std::ranges::any_of(ranks_, [](const Rank& rank) { return rank.open; });
}

bool RankGroup::grace_is_over() const {
  constexpr auto kGrace = std::chrono::milliseconds(kGraceMilliseconds);
  return failure_.has_value() && std::chrono::steady_clock::now() >= failed_at_ + kGrace;
}

void RankGroup::wait_for_input(int signals, int timeout) {
  std::vector<pollfd> polled{{signals, POLLIN, 0}};
  std::vector<std::size_t> who{0};
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].open) {
      polled.push_back({ranks_[i].reader(), POLLIN, 0});
      who.push_back(i);
    }
  }
  if (::poll(polled.data(), polled.size(), timeout) < 0) {
    return;  // A signal: its byte is in the pipe next time.
  }
  interrupted_ = interrupted_ || (polled[0].revents & POLLIN) != 0;
  for (std::size_t i = 1; i < polled.size(); ++i) {
    if (polled[i].revents != 0) {
      read_some(ranks_[who[i]]);
    }
  }
}

void RankGroup::look_at_ranks() {
  const auto now = std::chrono::steady_clock::now();
  if (now < looked_at_ + std::chrono::milliseconds(kLookMilliseconds)) {
    return;
  }
  looked_at_ = now;
  for (Rank& rank : ranks_) {
    if (!rank.open) {
      continue;
    }
    if (rank.socket < 0) {
      const std::string held = rank.process.look(rank.seat, patience_);
      if (!held.empty()) {
        fail({Failure::Crash, held});
      }
    } else if (++rank.silent_looks == patience_.silent.count()) {
      fail({Failure::Crash,
            fmt::format("rank {} of {}: nothing was heard of its process for {} s; it is held, or "
                        "its machine is gone",
                        rank.seat.rank,
                        rank.seat.ranks,
                        patience_.silent.count())});
    }
  }
}

std::string RankGroup::unfinished() const {
  std::string list;
  int count = 0;
  for (const Rank& rank : ranks_) {
    if (rank.open && !rank.told && !rank.done) {
      list += fmt::format("{}{}", count++ > 0 ? ", " : "", rank.seat.rank);
    }
  }
  return count == 0 ? ""
                    : fmt::format("; rank{} {} of {} {} still busy or hung then",
                                  count == 1 ? "" : "s",
                                  list,
                                  ranks_.size(),
                                  count == 1 ? "was" : "were");
}

void RankGroup::read_some(Rank& rank) {
  rank.silent_looks = 0;
  const bool open = rank.messages.read_some(rank.reader());
  while (const std::optional<std::string> message = rank.messages.next()) {
    handle(rank, *message);
  }
  if (!open) {
    close(rank);
  }
}

void RankGroup::handle(Rank& rank, const std::string& message) {
  const char kind = message.empty() ? kFault : message[0];
  const std::string text = message.substr(std::min<std::size_t>(1, message.size()));
  if (kind == kLine || kind == kBroadcast) {
    heard_at_ = std::chrono::steady_clock::now();
  }
  if (kind == kLine) {
    if (!stopped_ || interrupted_) {
      on_line_(rank.seat.rank, text);
    }
  } else if (kind == kBroadcast) {
    broadcast(text);
  } else if (kind == kAlive) {
    return;
  } else if (kind == kDone) {
    rank.done = true;
    rank.open = rank.socket < 0;  // A process that was forked here is still to be reaped.
  } else if (kind == kStop) {
    interrupted_ = true;
  } else if (kind == kStopped) {
    rank.open = false;
  } else {
    rank.told = true;
    fail({kind == kInputError ? Failure::BadInput
          : kind == kCrash    ? Failure::Crash
                              : Failure::Fault,
          text});
  }
}

void RankGroup::broadcast(const std::string& text) {
  for (std::size_t i = 1; i < ranks_.size(); ++i) {
    try {
      send_message(ranks_[i].writer(), kBroadcast, text);
    } catch (const EnvironmentFault&) {
      // The rank has ended. Whoever reaps its process reports why.
    }
  }
}

void RankGroup::tell_sockets(char kind) {
  for (const Rank& rank : ranks_) {
    if (rank.socket >= 0) {
      try {
        send_message(rank.socket, kind, "");
      } catch (const EnvironmentFault&) {
        // It is gone already.
      }
    }
  }
}

void RankGroup::fail(Failure failure) {
  if (!failure_.has_value()) {
    failed_at_ = std::chrono::steady_clock::now();
  }
  if (!failure_.has_value() || failure.cause < failure_->cause) {
    failure_ = std::move(failure);
  }
}

void RankGroup::close(Rank& rank) {
  rank.open = false;
  std::string text;
  if (rank.socket < 0) {
    text = rank.process.reap(rank.seat, rank.done || rank.told);
  } else if (!rank.told && !stopped_) {
    text =
        fmt::format("rank {} of {}: the connection to it is lost", rank.seat.rank, rank.seat.ranks);
  }
  if (!text.empty()) {
    fail({Failure::Crash, text});
  }
}

void RankGroup::stop() {
  for (Rank& rank : ranks_) {
    rank.process.stop();
  }
  if (!stopped_) {
    stopped_ = true;
    tell_sockets(kStop);
  }
}

void RankGroup::drain() {
  const auto deadline =
      std::chrono::steady_clock::now() + (interrupted_ ? kDrainTimeOfInterrupt : kDrainTime);
  for (Rank& rank : ranks_) {
    while (rank.open && std::chrono::steady_clock::now() < deadline) {
      pollfd polled{rank.reader(), POLLIN, 0};
      if (::poll(&polled, 1, 100) > 0) {
        read_some(rank);
      }
    }
  }
}

}  // namespace stepsim::ranks
