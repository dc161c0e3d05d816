#include "calibrate/ranks/lobby.h"

#include <algorithm>
#include <array>
#include <utility>

#include <nlohmann/json.hpp>
#include <poll.h>

#include "calibrate/ranks/rank_channel.h"
#include "costmodel/base/input_error.h"
#include "costmodel/io/json_file.h"

namespace stepsim::ranks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kRanksFormat = "stepsim-ranks/1";
constexpr std::chrono::seconds kHelloLimit(5);
constexpr std::size_t kHelloBytes = 4096;
/// More than this many at once are not listened to until some have left.
constexpr std::size_t kMaxVisitors = 512;

/// Takes the same time wherever the first difference is.
bool is_same_secret(const std::string& a, const std::string& b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return difference == 0;
}

/// The hello in a message, or null.
Json parse_hello(const std::string& message) {
  const Json json = Json::parse(message.substr(1), nullptr, false);
  const auto is_whole = [&json](const char* key) {
    return json.contains(key) && json[key].is_number_integer();
  };
  const auto is_text = [&json](const char* key) {
    return json.contains(key) && json[key].is_string();
  };
  const bool is_hello = message[0] == kHello && json.is_object() && is_text("format") &&
                        json["format"] == kRanksFormat && is_text("secret") && is_whole("rank") &&
                        is_whole("ranks") && is_whole("local_rank");
  return is_hello ? json : Json();
}

}  // namespace

std::string hello_text(const Launch& launch) {
  const Json json = {{"format", kRanksFormat},
                     {"rank", launch.rank},
                     {"ranks", launch.ranks},
                     {"local_rank", launch.local_rank},
                     {"secret", launch.secret}};
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::optional<Guest> Lobby::next(Clock::time_point deadline) {
  while (Clock::now() < deadline) {
    std::vector<pollfd> polled;
    Clock::time_point until = deadline;
    for (const Visitor& visitor : visitors_) {
      polled.push_back({visitor.socket.fd(), POLLIN, 0});
      until = std::min(until, visitor.leaves_at);
    }
    if (visitors_.size() < kMaxVisitors) {
      polled.push_back({listener_.fd(), POLLIN, 0});
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    if (::poll(polled.data(), polled.size(), std::max(0, static_cast<int>(left))) < 0) {
      continue;  // A signal.
    }
    std::optional<Guest> guest;
    std::vector<Visitor> staying;
    for (std::size_t i = 0; i < visitors_.size(); ++i) {
      Visitor& visitor = visitors_[i];
      const bool stays = polled[i].revents == 0 || guest || listen_to(visitor);
      if (stays && !guest && visitor.said.ends_with('\n')) {
        guest = admit(visitor);
      } else if (stays && Clock::now() < visitor.leaves_at) {
        staying.push_back(std::move(visitor));
      }
    }
    const bool one_waits = polled.size() > visitors_.size() && polled.back().revents != 0;
    visitors_ = std::move(staying);
    if (one_waits) {
      receive_visitor();
    }
    if (guest) {
      return guest;
    }
  }
  return std::nullopt;
}

void Lobby::receive_visitor() {
  Socket socket = accept_until(listener_, Clock::now());
  if (socket.fd() >= 0) {
    visitors_.push_back({std::move(socket), "", Clock::now() + kHelloLimit});
  }
}

bool Lobby::listen_to(Visitor& visitor) {
  std::array<char, kHelloBytes> chunk{};
  const ssize_t got = ::recv(visitor.socket.fd(), chunk.data(), chunk.size(), MSG_DONTWAIT);
  if (got < 0) {
    return errno == EINTR || errno == EAGAIN;
  }
  visitor.said.append(chunk.data(), static_cast<std::size_t>(got));
  return got > 0 && visitor.said.size() <= kHelloBytes;
}

std::optional<Guest> Lobby::admit(Visitor& visitor) {
  const Json json = parse_hello(visitor.said);
  if (json.is_null()) {
    return std::nullopt;
  }
  const Json own = Json::parse(hello_text(launch_));  // Whose secret is UTF-8, whatever it was.
  if (!is_same_secret(json["secret"].get<std::string>(), own["secret"].get<std::string>())) {
    ++strangers_;
    try {
      send_message(visitor.socket.fd(), kInputError, "");
    } catch (const EnvironmentFault&) {
      // It is gone already.
    }
    return std::nullopt;
  }
  const auto rank = json["rank"].get<std::int64_t>();
  const auto ranks = json["ranks"].get<std::int64_t>();
  if (ranks != launch_.ranks || rank < 1 || rank >= ranks) {
    throw InputError("rank {} was told that there are {} ranks, rank 0 that there are {}",
                     rank,
                     ranks,
                     launch_.ranks);
  }
  return Guest{static_cast<int>(rank), json["local_rank"] == 0, std::move(visitor.socket)};
}

}  // namespace stepsim::ranks
