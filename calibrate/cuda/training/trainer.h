#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "calibrate/cuda/collectives/reducer.h"
#include "calibrate/cuda/device/device.h"
#include "calibrate/measure/backend.h"
#include "costmodel/model/transformer.h"

namespace stepsim::cuda {

/// Is told where the ops of a step begin and end in the stream, in the order of Trainer::ops().
class OpTimer {
 public:
  virtual ~OpTimer() = default;
  virtual void op_begin(std::size_t op) = 0;
  virtual void op_done(std::size_t op) = 0;
};

/// Times of the parts of one step on the device, seconds, and its loss.
struct TrainerStep {
  double data = 0;     ///< Collate on the host and the copy to the device.
  double forward = 0;  ///< Zeroing the gradients included.
  double backward = 0;
  double wait = 0;       ///< The stream waiting for all-reduces.
  double optimizer = 0;  ///< Copy-out of gradients and AdamW.
  double loss = 0;
};

/// A real transformer training step on the current device: forward, backward, DDP's bucketing,
/// AdamW. All families of TransformerConfig; dense, flash and varlen attention.
class Trainer {
 public:
  /// `world_size` only divides the gradients. Weights are random from `seed`, the same on all
  /// ranks. Raises InputError: a dtype or an attention that the device's libraries do not have.
  Trainer(const TransformerConfig& config, int world_size, std::uint64_t seed);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// See training_ops().
  [[nodiscard]] const std::vector<Op>& ops() const;

  /// Bucket lists in launch order (parameter indices); from the next step on. Until then: one
  /// bucket of all parameters. Raises InputError: not every parameter exactly once.
  void set_buckets(const std::vector<std::vector<int>>& buckets);

  /// Random token ids of the following steps. Ranks differ in their data, not in their weights.
  void seed_data(std::uint64_t seed);

  /// Builds the plans of fused attention for these batches, on all cores.
  void prepare(std::span<const StepBatch> batches);

  /// One step on random token ids of these lengths: padded to the longest or to `padded_length`
  /// where that is more, or without padding for varlen attention. Returns when the device is done.
  /// `reducer` and `timer` may be absent.
  /// Raises InputError: no samples, or a length that the model does not accept.
  TrainerStep step(std::span<const std::int64_t> lengths,
                   double loss_scale,
                   GradientReducer* reducer,
                   OpTimer* timer,
                   std::int64_t padded_length = 0);

  [[nodiscard]] const Stream& stream() const;
  [[nodiscard]] std::int64_t gemm_workspace_bytes() const;
  /// Where the last step began in the stream.
  [[nodiscard]] const Event& step_start() const;

  /// For tests: [parameter] weights and gradients after the last backward.
  [[nodiscard]] Array weights(std::size_t parameter) const;
  [[nodiscard]] Array gradient(std::size_t parameter) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace stepsim::cuda
