#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "calibrate/training/batch.h"
#include "calibrate/training/bucket_list.h"
#include "calibrate/training/gradient_reducer.h"
#include "calibrate/training/op_timer.h"
#include "calibrate/training/parameter_store.h"
#include "calibrate/training/random_stream.h"
#include "calibrate/training/tape.h"
#include "calibrate/training/trainer_step.h"
#include "calibrate/training/training_ops.h"
#include "calibrate/training/workspace.h"
#include "costmodel/base/input_error.h"

namespace stepsim {

/// A real transformer training step on a device: forward, backward, DDP's bucketing, AdamW, for all
/// families of TransformerConfig.
///
/// `Device` names the device's types (Array, Buffer, HostBuffer, Stream, Event, …), holds its
/// stream and matrix products, and tells which models it supports. See cpu/training_device.h and
/// cuda/training/training_device.h.
template <typename Device>
class Trainer {
 public:
  using Array = typename Device::Array;
  using Reducer = GradientReducer<Array>;

  /// `world_size` only divides the gradients. Weights are random from `seed`, the same on all
  /// ranks. Raises InputError: a model that the device does not compute.
  Trainer(const TransformerConfig& config, int world_size, std::uint64_t seed)
      : config_(Device::supported(config)),
        world_size_(world_size),
        parameters_(stepsim::parameters(config_)),
        step_ops_(step_ops(config_)),
        device_(config_),
        store_(device_.stream, parameters_, config_.parameter_dtype, config_.dtype),
        workspace_(batch_),
        tape_({config_, parameters_, device_, store_, batch_, workspace_, seed}, step_ops_),
        random_(seed) {
    set_buckets({ready_order(config_)});
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// See training_ops().
  [[nodiscard]] const std::vector<Op>& ops() const { return ops_; }

  /// Sets the bucket lists of the following steps: parameter indices in launch order. Until then
  /// one bucket holds all parameters. Raises InputError: not every parameter exactly once.
  void set_buckets(const std::vector<std::vector<int>>& buckets);

  /// Seeds the random tokens of the following steps. Ranks differ in their data, not in their
  /// weights.
  void seed_data(std::uint64_t seed) { random_ = RandomStream(seed); }

  void set_learning_rate(float rate) { store_.set_learning_rate(rate); }

  /// The size of a batch of these lengths. Raises InputError: no samples, or a length that the
  /// model does not accept.
  [[nodiscard]] BatchSize batch_size(std::span<const std::int64_t> lengths,
                                     std::int64_t padded_length) const;

  /// Trains one step on random tokens of these lengths: padded to the longest or to `padded_length`
  /// where that is more, or without padding for varlen attention. Returns when the device is done.
  /// `reducer` and `timer` may be null. Raises InputError as batch_size() does.
  TrainerStep step(std::span<const std::int64_t> lengths,
                   double loss_scale,
                   Reducer* reducer,
                   OpTimer* timer,
                   std::int64_t padded_length = 0);

  /// Gives back all memory that grows with the batch, so that the next step begins anew, also after
  /// one that raised in its middle.
  void release_memory() {
    workspace_.release();
    tape_.release();
    device_.release_scratch();
  }

  [[nodiscard]] Device& device() { return device_; }
  [[nodiscard]] const Device& device() const { return device_; }
  [[nodiscard]] const typename Device::Stream& stream() const { return device_.stream; }
  /// Where the last step began in the stream.
  [[nodiscard]] const typename Device::Event& step_start() const { return marks_.start; }

  /// For tests: [parameter] weights and gradients after the last backward, and the loss of a
  /// forward pass on the batch of the last step with the current weights.
  [[nodiscard]] std::int64_t elements(std::size_t parameter) const {
    return store_.elements(parameter);
  }
  [[nodiscard]] Array weights(std::size_t parameter) const { return store_.weights(parameter); }
  [[nodiscard]] Array gradient(std::size_t parameter) const { return store_.gradient(parameter); }
  [[nodiscard]] double loss_of_last_batch();

 private:
  /// One step under way.
  struct StepRun {
    Reducer* reducer;
    OpTimer* timer;
    std::size_t op = 0;

    /// Runs one op between the timer's marks.
    template <typename Body>
    void run(const Body& body) {
      if (timer != nullptr) {
        timer->op_begin(op);
      }
      body();
      if (timer != nullptr) {
        timer->op_done(op);
      }
      ++op;
    }
  };

  /// Where the phases of a step end in the stream.
  struct PhaseMarks {
    using Event = typename Device::Event;
    Event start;
    Event data;
    Event forward;
    Event backward;
    Event end;
    std::deque<Event> before_wait;  ///< [bucket]
    std::deque<Event> after_wait;   ///< [bucket]
  };

  void check_length(std::int64_t length) const;
  void collate(std::span<const std::int64_t> lengths, const BatchSize& size);
  void forward(StepRun& run);
  void backward(StepRun& run);
  /// Waits for the buckets, copies them out and updates the weights.
  void finish(StepRun& run);
  [[nodiscard]] TrainerStep times(bool waited) const;

  TransformerConfig config_;
  int world_size_;
  std::vector<Parameter> parameters_;
  StepOps step_ops_;
  Device device_;
  ParameterStore<Device> store_;
  Batch<Device> batch_;
  Workspace<Device> workspace_;
  Tape<Device> tape_;
  RandomStream random_;
  BucketList<Device> buckets_;
  std::vector<Op> ops_;
  PhaseMarks marks_;
};

template <typename Device>
void Trainer<Device>::set_buckets(const std::vector<std::vector<int>>& buckets) {
  buckets_.assign(buckets, store_);
  ops_ = training_ops(config_, buckets);
  marks_.before_wait.resize(std::max(marks_.before_wait.size(), buckets.size()));
  marks_.after_wait.resize(marks_.before_wait.size());
}

template <typename Device>
void Trainer<Device>::check_length(std::int64_t length) const {
  if (length < 1 || (config_.max_length > 0 && length > config_.max_length)) {
    throw InputError(
        "a sample of {} tokens: the model accepts 1 to {}", length, config_.max_length);
  }
}

template <typename Device>
BatchSize Trainer<Device>::batch_size(std::span<const std::int64_t> lengths,
                                      std::int64_t padded_length) const {
  if (lengths.empty()) {
    throw InputError("a training step needs at least one sample");
  }
  for (const std::int64_t length : lengths) {
    check_length(length);
  }
  check_length(std::max<std::int64_t>(1, padded_length));
  return stepsim::batch_size(lengths, padded_length, config_.attention == AttentionKind::Varlen);
}

template <typename Device>
void Trainer<Device>::collate(std::span<const std::int64_t> lengths, const BatchSize& size) {
  // Without classes the loss is taken over the pooled features themselves.
  const std::int64_t labels = config_.classes > 0 ? config_.classes : config_.hidden;
  batch_.collate(device_, size, lengths, {config_.vocab, labels}, random_);
}

template <typename Device>
void Trainer<Device>::forward(StepRun& run) {
  for (std::size_t i = 0; i < step_ops_.forward.size(); ++i) {
    run.run([&] { tape_.forward(i); });
  }
}

template <typename Device>
void Trainer<Device>::backward(StepRun& run) {
  const float share = 1.0F / static_cast<float>(world_size_);
  for (std::size_t i = 0; i < step_ops_.backward.size(); ++i) {
    run.run([&] { tape_.backward(i); });
    for (const int parameter : step_ops_.backward[i].completes) {
      const auto p = static_cast<std::size_t>(parameter);
      run.run([&] { buckets_.copy_in(device_.stream, store_, p, share); });
      std::size_t bucket = 0;
      while (run.reducer != nullptr && buckets_.next_ready(bucket)) {
        run.reducer->launch(bucket, buckets_.data(bucket), buckets_.elements(bucket));
      }
    }
  }
}

template <typename Device>
void Trainer<Device>::finish(StepRun& run) {
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    if (run.reducer != nullptr) {
      marks_.before_wait[bucket].record(device_.stream);
      run.reducer->wait(bucket);
      marks_.after_wait[bucket].record(device_.stream);
    }
    run.run([&] { buckets_.copy_out(device_.stream, store_, bucket); });
  }
  run.run([&] { store_.optimizer_step(device_); });
}

template <typename Device>
TrainerStep Trainer<Device>::times(bool waited) const {
  TrainerStep result;
  result.data = seconds_between(marks_.start, marks_.data);
  result.forward = seconds_between(marks_.data, marks_.forward);
  result.backward = seconds_between(marks_.forward, marks_.backward);
  for (std::size_t bucket = 0; waited && bucket < buckets_.size(); ++bucket) {
    result.wait += seconds_between(marks_.before_wait[bucket], marks_.after_wait[bucket]);
  }
  result.optimizer = seconds_between(marks_.backward, marks_.end) - result.wait;
  result.loss = tape_.loss();
  return result;
}

template <typename Device>
TrainerStep Trainer<Device>::step(std::span<const std::int64_t> lengths,
                                  double loss_scale,
                                  Reducer* reducer,
                                  OpTimer* timer,
                                  std::int64_t padded_length) {
  const BatchSize size = batch_size(lengths, padded_length);
  [[maybe_unused]] const typename Device::StepGuard guard{};
  StepRun run{reducer, timer};
  marks_.start.record(device_.stream);
  batch_.set_loss_scale(loss_scale);
  run.run([&] { collate(lengths, size); });
  buckets_.start_step();
  marks_.data.record(device_.stream);
  run.run([&] { store_.zero_gradients(device_.stream); });
  forward(run);
  marks_.forward.record(device_.stream);
  backward(run);
  marks_.backward.record(device_.stream);
  finish(run);
  marks_.end.record(device_.stream);
  tape_.fetch_loss();
  device_.stream.synchronize();
  return times(reducer != nullptr);
}

template <typename Device>
double Trainer<Device>::loss_of_last_batch() {
  [[maybe_unused]] const typename Device::StepGuard guard{};
  for (std::size_t i = 0; i < step_ops_.forward.size(); ++i) {
    tape_.forward(i);
  }
  tape_.fetch_loss();
  device_.stream.synchronize();
  return tape_.loss();
}

}  // namespace stepsim
