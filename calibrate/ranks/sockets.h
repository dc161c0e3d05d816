#pragma once

#include <chrono>
#include <string>

#include <sys/socket.h>

namespace stepsim::ranks {

/// A file descriptor that closes itself.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept : fd_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] int release();

 private:
  int fd_;
};

/// Listens on `port`: on the loopback device when `address` is one of its addresses, on all devices
/// otherwise. Raises EnvironmentFault.
[[nodiscard]] Socket listen_on(const std::string& address, int port);

/// Waits for the next connection. Returns an empty socket when none comes until `deadline`.
[[nodiscard]] Socket accept_until(const Socket& listener,
                                  std::chrono::steady_clock::time_point deadline);

/// Tries to connect until `deadline`. Returns an empty socket when nobody answered. Raises
/// EnvironmentFault when there is no such name.
[[nodiscard]] Socket connect_until(const std::string& address,
                                   int port,
                                   std::chrono::steady_clock::time_point deadline);

}  // namespace stepsim::ranks
