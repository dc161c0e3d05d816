#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

namespace stepsim {

/// A gloo process group over TCP on this host (the library PyTorch uses on CPUs). Ring all-reduce.
///
/// gloo starts threads: construct it after the last fork of the process. Collectives must be
/// called in the same order on every rank, or with different tags when several are in flight.
class GlooGroup {
 public:
  /// Rendezvous through files in `folder`, the same for all ranks and used by one group only.
  /// A rank that does not arrive within 30 s, or a collective that takes longer than `timeout`,
  /// raises EnvironmentFault, and so does the death of a neighbour.
  GlooGroup(int rank,
            int ranks,
            const std::string& folder,
            std::chrono::milliseconds timeout = std::chrono::minutes(5));
  ~GlooGroup();
  GlooGroup(const GlooGroup&) = delete;
  GlooGroup& operator=(const GlooGroup&) = delete;

  /// Sum over ranks, in place. `tag` tells collectives in flight apart.
  void all_reduce(float* data, std::size_t count, unsigned tag);
  void barrier(unsigned tag);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// "0.5.0"
[[nodiscard]] std::string gloo_version();

}  // namespace stepsim
