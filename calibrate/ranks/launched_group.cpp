#include "calibrate/ranks/launched_group.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include "calibrate/ranks/lobby.h"
#include "calibrate/ranks/rendezvous_folder.h"
#include "calibrate/ranks/sockets.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/parse_number.h"

namespace stepsim {

using namespace ranks;  // NOLINT(google-build-using-namespace): what this is built from.

namespace {

/// Ranks above 0 look at their process, and speak to rank 0, this often.
constexpr int kBeatMilliseconds = 1000;

/// Lists the ranks that have not connected yet.
std::string missing(const std::vector<int>& sockets) {
  std::string list;
  for (std::size_t rank = 1; rank < sockets.size(); ++rank) {
    if (sockets[rank] < 0) {
      list += fmt::format("{}{}", list.empty() ? "" : ", ", rank);
    }
  }
  return list;
}

}  // namespace

LaunchedGroup::LaunchedGroup(Launch launch, std::chrono::milliseconds patience)
    : launch_(std::move(launch)) {
  std::signal(SIGPIPE, SIG_IGN);  // A lost connection is an error and no signal.
  try {
    if (leads()) {
      lead(patience);
    } else {
      join(patience);
    }
  } catch (...) {
    for (const int socket : sockets_) {
      ::close(socket);
    }
    throw;
  }
}

LaunchedGroup::~LaunchedGroup() {
  for (const int socket : sockets_) {
    if (socket >= 0) {
      try {
        if (leads()) {
          send_message(socket, kQuit, "");
        }
      } catch (const EnvironmentFault&) {
        // It is gone already.
      }
      ::close(socket);
    }
  }
}

void LaunchedGroup::lead(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  Lobby lobby(launch_);
  sockets_.assign(static_cast<std::size_t>(launch_.ranks), -1);
  int nodes = 1;
  for (int here = 1; here < launch_.ranks; ++here) {
    std::optional<Guest> guest = lobby.next(deadline);
    if (!guest) {
      throw EnvironmentFault(
          "{} of {} ranks came within {:.0f} s to port {} of {}; missing: {}{}",
          here,
          launch_.ranks,
          std::chrono::duration<double>(patience).count(),
          launch_.port,
          launch_.address,
          missing(sockets_),
          lobby.strangers() == 0
              ? ""
              : fmt::format("; {} came with another STEPSIM_SECRET or job", lobby.strangers()));
    }
    int& place = sockets_[static_cast<std::size_t>(guest->rank)];
    if (place >= 0) {
      throw InputError("two processes were told that they are rank {}", guest->rank);
    }
    place = guest->socket.release();
    nodes += guest->is_first_of_machine ? 1 : 0;
  }
  nodes_ = nodes;
  for (std::size_t rank = 1; rank < sockets_.size(); ++rank) {
    send_message(sockets_[rank], kWelcome, std::to_string(nodes_));
  }
}

void LaunchedGroup::join(std::chrono::milliseconds patience) {
  Socket socket =
      connect_until(launch_.address, launch_.port, std::chrono::steady_clock::now() + patience);
  if (socket.fd() < 0) {
    throw EnvironmentFault("rank {}: rank 0 does not answer on port {} of {}",
                           launch_.rank,
                           launch_.port,
                           launch_.address);
  }
  send_message(socket.fd(), kHello, hello_text(launch_));
  std::string answer;
  try {
    answer = receive_message(socket.fd());
  } catch (const EnvironmentFault&) {
    throw StoppedByRank0{};
  }
  const std::optional<int> nodes =
      parse_number<int>(answer.substr(std::min<std::size_t>(1, answer.size())));
  if (!answer.starts_with(kWelcome) || !nodes) {
    throw InputError(
        "rank {}: what answers on port {} of {} is not rank 0 of this job, or was given another "
        "STEPSIM_SECRET",
        launch_.rank,
        launch_.port,
        launch_.address);
  }
  nodes_ = *nodes;
  sockets_ = {socket.release()};
}

std::unique_ptr<LaunchedGroup> join_launched_group() {
  const std::optional<Launch> launch = read_launch();
  return launch ? std::make_unique<LaunchedGroup>(*launch) : nullptr;
}

bool LaunchedGroup::more() {
  if (next_run_.empty()) {
    try {
      next_run_ = receive_message(sockets_[0]);
    } catch (const EnvironmentFault&) {
      throw EnvironmentFault("rank {}: rank 0's process is gone", launch_.rank);
    }
  }
  return next_run_[0] == kRun;
}

void LaunchedGroup::run(int ranks,
                        const RankBody& body,
                        const OnLine& on_line,
                        RankPatience patience) {
  if (!leads() && !more()) {
    throw StoppedByRank0{};  // It refuses the run and says why.
  }
  if (ranks != launch_.ranks) {
    throw InputError(
        "{} ranks are asked for, but {} has started {}", ranks, launch_.launcher, launch_.ranks);
  }
  if (!leads()) {
    follow(body, patience);
    return;
  }
  const RendezvousFolder folder;
  const SignalsToPipe signals;
  for (std::size_t rank = 1; rank < sockets_.size(); ++rank) {
    try {
      send_message(sockets_[rank], kRun, folder.path());
    } catch (const EnvironmentFault&) {
      // It is gone: the run will say so.
    }
  }
  RankGroup group(sockets_, on_line, patience);
  RankSeat seat;
  seat.local_rank = launch_.local_rank;
  seat.nodes = nodes_;
  seat.folder = folder.path();
  group.start(body, seat);
  if (!group.run(signals.reader())) {
    throw Interrupted{};
  }
}

namespace {

/// One run of a rank above 0: passes what its process says to rank 0, and what rank 0 says to it.
class Relay {
 public:
  Relay(int socket, RankSeat seat, RankPatience patience)
      : socket_(socket), seat_(std::move(seat)), patience_(patience) {}

  void run(const RankBody& body) {
    const SignalsToPipe signals;
    process_.start(seat_, body);
    while (true) {
      std::vector<pollfd> polled = {{signals.reader(), POLLIN, 0}, {socket_, POLLIN, 0}};
      if (open_) {
        polled.push_back({process_.reader(), POLLIN, 0});
      }
      if (::poll(polled.data(), polled.size(), kBeatMilliseconds) < 0) {
        continue;  // A signal: its byte is in the pipe next time.
      }
      beat();
      if (polled[0].revents != 0) {
        send_message(socket_, kStop, "");
        end();
        throw Interrupted{};
      }
      if (open_ && polled[2].revents != 0) {
        pass_on();
      }
      if (polled[1].revents != 0 && hear()) {
        return;
      }
    }
  }

 private:
  /// Once a second: looks at the process and tells rank 0 that all is well, or is not.
  void beat() {
    const auto now = std::chrono::steady_clock::now();
    if (!open_ || now < beat_at_ + std::chrono::milliseconds(kBeatMilliseconds)) {
      return;
    }
    beat_at_ = now;
    const std::string held = process_.look(seat_, patience_);
    try {
      send_message(socket_, held.empty() ? kAlive : kCrash, held);
    } catch (const EnvironmentFault&) {
      // Rank 0 is gone: reading from it says so.
    }
  }

  /// Passes messages from the process on to rank 0.
  void pass_on() {
    open_ = messages_.read_some(process_.reader());
    while (const std::optional<std::string> message = messages_.next()) {
      told_ = told_ || message->front() != kLine;
      // The group reports a rank as done when its process has ended.
      done_ = done_ || message->front() == kDone;
      if (message->front() != kDone) {
        send_message(socket_, message->front(), message->substr(1));
      }
    }
    if (!open_) {
      const std::string text = process_.reap(seat_, told_);
      if (!text.empty()) {
        send_message(socket_, kCrash, text);
      } else if (done_) {
        send_message(socket_, kDone, "");
      }
    }
  }

  /// Handles a message from rank 0. Returns true when the run is over.
  bool hear() {
    std::string message;
    try {
      message = receive_message(socket_);
    } catch (const EnvironmentFault&) {
      process_.stop();
      throw EnvironmentFault("rank {}: rank 0's process is gone", seat_.rank);
    }
    if (message[0] == kStop) {
      end();
      throw StoppedByRank0{};
    }
    if (message[0] == kBroadcast && open_) {
      try {
        send_message(process_.writer(), kBroadcast, message.substr(1));
      } catch (const EnvironmentFault&) {
        // The process has ended; why is told when it is reaped.
      }
    }
    return message[0] == kFinished;
  }

  /// Stops the process; lines that it had sent still reach rank 0.
  void end() {
    process_.stop();
    told_ = true;
    try {
      while (open_) {
        pass_on();
      }
      send_message(socket_, kStopped, "");
    } catch (const EnvironmentFault&) {
      // Rank 0 has not waited for it.
    }
  }

  int socket_;
  RankSeat seat_;
  RankPatience patience_;
  ForkedRank process_;
  MessageReader messages_;
  bool open_ = true;
  bool told_ = false;
  bool done_ = false;
  std::chrono::steady_clock::time_point beat_at_;
};

}  // namespace

void LaunchedGroup::follow(const RankBody& body, RankPatience patience) {
  RankSeat seat;
  seat.rank = launch_.rank;
  seat.ranks = launch_.ranks;
  seat.local_rank = launch_.local_rank;
  seat.nodes = nodes_;
  seat.folder = next_run_.substr(1);
  next_run_.clear();
  Relay(sockets_[0], seat, patience).run(body);
}

}  // namespace stepsim
