#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <nlohmann/json.hpp>

#include "calibrate/measure/backend.h"
#include "calibrate/measure/measure.h"

namespace stepsim::test {

/// What the fake machine charges for an op: known, so that a fit can be compared with it. Seconds.
[[nodiscard]] double planted_seconds(const Op& op, const BatchShape& batch);
/// Of one call. A reduce-scatter and an all-gather take half as long as an all-reduce.
[[nodiscard]] double planted_collective_seconds(CollectiveKind kind,
                                                std::int64_t bytes,
                                                bool pipelined);

/// A machine whose times are planted_seconds() times `slowdown`, with noise of the given relative
/// size from a fixed seed. Its time does not pass: every answer comes at once.
struct FakeMachine {
  double noise = 0;
  double slowdown = 1;
  std::string device = "fake";
  std::vector<CollectiveKind> collectives = {CollectiveKind::AllReduce};
  int overlaps = 0;  ///< Samples of overlaps().
  double delay = 0;  ///< Seconds that pass with every batch behind the first thirty, as on a
                     ///< machine that is slower than its probe.
  bool times_ops = true;
};

[[nodiscard]] BackendFactory fake_factory(const FakeMachine& machine);

/// A small model, and a request to measure it on two fake ranks.
[[nodiscard]] TransformerConfig small_model();
[[nodiscard]] MeasureRequest small_request(const std::string& samples_file);

/// Deterministic, nearly normal with deviation 1.
class Noise {
 public:
  explicit Noise(std::uint64_t seed) : state_(seed) {}
  double next();

 private:
  std::uint64_t state_;
};

}  // namespace stepsim::test
