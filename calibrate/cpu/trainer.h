#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "costmodel/model/transformer.h"

namespace stepsim {

/// Is told when each op ends, in the order of Trainer::ops(). With a reducer the wait for a bucket
/// falls into its copy-out.
class OpTimer {
 public:
  virtual ~OpTimer() = default;
  virtual void op_done(std::size_t op_index) = 0;
};

/// Times of the parts of one step, seconds, and its loss.
struct TrainerStep {
  double data = 0;
  double forward = 0;  ///< Zeroing the gradients included.
  double backward = 0;
  double wait = 0;       ///< Waiting for all-reduces.
  double optimizer = 0;  ///< Copy-out of gradients and AdamW.
  double loss = 0;
};

/// How gradients leave the trainer. The live run all-reduces; measuring and tests do nothing.
class GradientReducer {
 public:
  virtual ~GradientReducer() = default;
  /// The bucket's gradients are in `data` (already divided by the world size). Called in launch
  /// order from the training thread; must not block.
  virtual void launch(std::size_t bucket, std::span<float> data) = 0;
  /// Blocks until the bucket's sum is in place.
  virtual void wait(std::size_t bucket) = 0;
};

/// A real transformer training step on the CPU in fp32 with Eigen: forward, backward, DDP's
/// bucketing, AdamW. All families of TransformerConfig, dense attention.
class Trainer {
 public:
  /// `world_size` only divides the gradients. Weights are random from `seed`, the same on all
  /// ranks. Raises InputError: attention other than dense, a dtype other than f32.
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

  /// One step on random token ids of these lengths, padded to the longest or to `padded_length`
  /// where that is more. `reducer` and `timer` may be absent.
  /// Raises InputError: no samples, or a length that the model does not accept.
  TrainerStep step(std::span<const std::int64_t> lengths,
                   double loss_scale,
                   GradientReducer* reducer,
                   OpTimer* timer,
                   std::int64_t padded_length = 0);

  /// For tests: [parameter] weights and gradients after the last backward, and the loss of a
  /// forward pass on the batch of the last step with the current weights.
  [[nodiscard]] std::span<float> weights(std::size_t parameter);
  [[nodiscard]] std::span<const float> gradient(std::size_t parameter) const;
  [[nodiscard]] double loss_of_last_batch();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace stepsim
