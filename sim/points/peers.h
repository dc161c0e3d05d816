#pragma once

#include <optional>
#include <string>

namespace stepsim {

/// A message of one process to another.
struct PeerMessage {
  int from = 0;
  std::string text;
};

/// The processes that a launcher such as mpirun started to work on one command together. Process 0
/// leads: it decides which points there are, and it alone prints and writes.
///
/// The members are called from one thread. All may raise EnvironmentFault.
class Peers {
 public:
  Peers() = default;
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;
  virtual ~Peers() = default;

  [[nodiscard]] virtual int own() const = 0;    ///< This process's number, from 0.
  [[nodiscard]] virtual int count() const = 0;  ///< At least 2.
  virtual void send(int to, const std::string& text) = 0;
  /// Returns a message that has arrived, in the order in which its sender sent them. Does not wait.
  [[nodiscard]] virtual std::optional<PeerMessage> receive() = 0;
};

}  // namespace stepsim
