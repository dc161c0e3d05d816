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
  double delay = 0;  ///< Seconds that pass in every step behind the first thirty, as on a
                     ///< machine that is slower than its probe.
};

[[nodiscard]] BackendFactory fake_factory(const FakeMachine& machine);

/// A backend that does nothing, for tests that fill in one function.
class IdleBackend : public Backend {
 public:
  [[nodiscard]] const std::vector<Op>& ops() const override { return ops_; }
  [[nodiscard]] std::vector<double> time_step(std::span<const std::int64_t> /*lengths*/) override {
    return {};
  }
  [[nodiscard]] std::vector<CollectiveKind> collectives() const override { return {}; }
  [[nodiscard]] CollectiveTimes time_collective(CollectiveKind /*kind*/,
                                                Bytes /*bytes*/,
                                                int /*calls*/) override {
    return {};
  }
  [[nodiscard]] TrainedStep train_step(std::span<const std::int64_t> /*lengths*/,
                                       double /*loss_scale*/,
                                       std::int64_t /*padded_length*/) override {
    return {};
  }
  void set_buckets(const std::vector<std::vector<int>>& /*buckets*/) override {}
  void barrier() override {}
  [[nodiscard]] Json description() const override { return {{"device", "idle"}}; }

 private:
  std::vector<Op> ops_;
};

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
