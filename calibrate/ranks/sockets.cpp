#include "calibrate/ranks/sockets.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include "calibrate/ranks/rank_channel.h"
#include "costmodel/base/input_error.h"

namespace stepsim::ranks {
namespace {

struct FreeAddress {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddress>;

Addresses resolve(const std::string& address, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) {
    throw EnvironmentFault("rank 0's address '{}': {}", address, ::gai_strerror(error));
  }
  return Addresses(list);
}

void set_option(int fd, int level, int name, int value) {
  ::setsockopt(fd, level, name, &value, sizeof(value));
}

/// A machine that vanishes is noticed within half a minute; small messages go at once.
void set_up(int fd) {
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

/// Makes a loopback address stay, and any other one all of its family.
void widen(sockaddr* address) {
  if (address->sa_family == AF_INET) {
    auto* v4 = reinterpret_cast<sockaddr_in*>(address);
    if ((ntohl(v4->sin_addr.s_addr) >> 24U) != 127) {
      v4->sin_addr.s_addr = htonl(INADDR_ANY);
    }
  } else if (address->sa_family == AF_INET6) {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(address);
    if (!IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr)) {
      v6->sin6_addr = in6addr_any;
    }
  }
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

int Socket::release() {
  return std::exchange(fd_, -1);
}

Socket listen_on(const std::string& address, int port) {
  const Addresses addresses = resolve(address, port);
  widen(addresses->ai_addr);
  Socket socket(::socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  set_option(socket.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (socket.fd() < 0 || ::bind(socket.fd(), addresses->ai_addr, addresses->ai_addrlen) != 0 ||
      ::listen(socket.fd(), SOMAXCONN) != 0) {
    throw EnvironmentFault(
        "cannot wait for the other ranks on port {}: {}; set STEPSIM_PORT to another",
        port,
        errno_text());
  }
  return socket;
}

Socket accept_until(const Socket& listener, std::chrono::steady_clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
  pollfd polled{listener.fd(), POLLIN, 0};
  if (::poll(&polled, 1, std::max(0, static_cast<int>(left.count()))) <= 0) {
    return Socket();
  }
  Socket socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  set_up(socket.fd());
  return socket;
}

Socket connect_until(const std::string& address,
                     int port,
                     std::chrono::steady_clock::time_point deadline) {
  const Addresses addresses = resolve(address, port);
  do {
    for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
      Socket socket(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (::connect(socket.fd(), one->ai_addr, one->ai_addrlen) == 0) {
        set_up(socket.fd());
        return socket;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (std::chrono::steady_clock::now() < deadline);
  return Socket();
}

}  // namespace stepsim::ranks
