#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/ranks/launcher.h"
#include "calibrate/ranks/sockets.h"

namespace stepsim::ranks {

/// What a rank says first: who it is, and the secret of its job.
[[nodiscard]] std::string hello_text(const Launch& launch);

/// A rank that has come.
struct Guest {
  int rank = 0;
  bool is_first_of_machine = false;
  Socket socket;
};

/// Where rank 0 lets the other ranks of its job in. Anyone on the network can connect: who says
/// nothing for 5 s, or more than 4 KiB, or something else than a rank says, is shown out, without
/// keeping others waiting. A rank with another secret is told so and counted.
class Lobby {
 public:
  explicit Lobby(const Launch& launch)
      : launch_(launch), listener_(listen_on(launch.address, launch.port)) {}

  /// Waits for the next rank. The result is empty when none comes until `deadline`. Raises
  /// InputError when a rank was told another number of ranks.
  [[nodiscard]] std::optional<Guest> next(std::chrono::steady_clock::time_point deadline);
  /// How many came with another secret.
  [[nodiscard]] int strangers() const { return strangers_; }

 private:
  struct Visitor {
    Socket socket;
    std::string said;
    std::chrono::steady_clock::time_point leaves_at;
  };
  void receive_visitor();
  /// Reads what there is. Returns false when the visitor is to be shown out.
  [[nodiscard]] static bool listen_to(Visitor& visitor);
  /// A whole hello as a guest; empty when it is none.
  [[nodiscard]] std::optional<Guest> admit(Visitor& visitor);

  const Launch& launch_;
  Socket listener_;
  std::vector<Visitor> visitors_;
  int strangers_ = 0;
};

}  // namespace stepsim::ranks
