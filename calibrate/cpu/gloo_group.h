#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace stepsim {

/// A gloo process group over TCP on this host (the library PyTorch uses on CPUs). Ring all-reduce.
class GlooGroup {
 public:
  /// Rendezvous through files in `folder`, the same for all ranks. Raises EnvironmentFault.
  GlooGroup(int rank, int ranks, const std::string& folder);
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

}  // namespace stepsim
