#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace stepsim {

/// A process group of gloo, the library that PyTorch uses on CPUs, over TCP on this host. It
/// reduces by rings.
///
/// gloo starts threads: construct a group after the last fork of the process. Every rank must call
/// the collectives in the same order, one at a time.
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

  [[nodiscard]] int ranks() const;

  /// Sums `data` over the ranks, in place.
  void all_reduce(float* data, std::size_t count);
  /// Leaves this rank's share of the sum at its place in `data`; `count` is a multiple of the
  /// ranks. The whole of a copy is summed, as PyTorch's group does for want of a reduce-scatter in
  /// gloo. Source: PyTorch, torch/csrc/distributed/c10d/ProcessGroupGloo.cpp,
  /// reduce_scatter_tensor_coalesced.
  void reduce_scatter(float* data, std::size_t count);
  /// The inverse: from each rank's share at its place to all of `data` on all ranks.
  void all_gather(float* data, std::size_t count);
  void barrier();

 private:
  struct State;
  void run(const char* what, const std::function<void(unsigned tag)>& collective);

  std::unique_ptr<State> state_;
};

/// The version of gloo, such as "0.5.0".
[[nodiscard]] std::string gloo_version();

}  // namespace stepsim
