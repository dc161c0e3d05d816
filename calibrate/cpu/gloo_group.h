#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

namespace stepsim {

/// A process group of gloo, the library that PyTorch uses on CPUs, over TCP on this host. It
/// reduces by rings.
///
/// gloo starts threads: construct a group after the last fork of the process. Every rank must call
/// the collectives in the same order, or with different tags when several are in flight.
class GlooGroup {
 public:
  /// The ranks find each other through files in `folder`, which is the same for all ranks and used
  /// by one group only. A rank that does not arrive within 30 s, or a collective that takes longer
  /// than `timeout`, raises EnvironmentFault, and so does the death of a neighbour.
  GlooGroup(int rank,
            int ranks,
            const std::string& folder,
            std::chrono::milliseconds timeout = std::chrono::minutes(5));
  ~GlooGroup();
  GlooGroup(const GlooGroup&) = delete;
  GlooGroup& operator=(const GlooGroup&) = delete;

  /// Sums `data` over the ranks, in place. `tag` tells collectives in flight apart.
  void all_reduce(float* data, std::size_t count, unsigned tag);
  void barrier(unsigned tag);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The version of gloo, such as "0.5.0".
[[nodiscard]] std::string gloo_version();

}  // namespace stepsim
