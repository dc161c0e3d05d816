#include "calibrate/cpu/trainer.h"

#include <algorithm>

#include <fmt/core.h>

#include "calibrate/cpu/batch.h"
#include "calibrate/cpu/bucket_list.h"
#include "calibrate/cpu/parameter_store.h"
#include "calibrate/cpu/processor.h"
#include "calibrate/cpu/tape.h"
#include "calibrate/cpu/workspace.h"
#include "calibrate/training/clock.h"
#include "calibrate/training/training_ops.h"
#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

/// The model, if this backend computes it.
const TransformerConfig& supported(const TransformerConfig& config) {
  check(config);
  if (config.attention != AttentionKind::Dense) {
    throw InputError("the CPU backend computes dense attention; set model.attention = \"dense\"");
  }
  if (config.dtype != Dtype::F32 || config.parameter_dtype != Dtype::F32) {
    throw InputError(
        "the CPU backend computes in f32; set model.dtype and model.parameter_dtype = \"f32\"");
  }
  cpu::require_built_for_this_processor();
  return config;
}

/// One step under way.
struct StepRun {
  GradientReducer* reducer;
  OpTimer* timer;
  std::size_t op = 0;
  double wait = 0;

  void op_done() {
    if (timer != nullptr) {
      timer->op_done(op);
    }
    ++op;
  }
};

/// Labels of a sample, or hidden when the loss is taken over the pooled features themselves.
cpu::TargetRange target_range(const TransformerConfig& config) {
  return {config.vocab, config.classes > 0 ? config.classes : config.hidden};
}

}  // namespace

struct Trainer::State {
  State(const TransformerConfig& given, int ranks, std::uint64_t seed)
      : config(supported(given)),
        world_size(ranks),
        params(parameters(config)),
        step_list(step_ops(config)),
        store(params),
        workspace(batch),
        tape({config, params, store, batch, workspace, seed}, step_list),
        random(seed) {}

  void check_lengths(std::span<const std::int64_t> lengths) const;
  void check_length(std::int64_t length) const;
  void forward(StepRun& run);
  void backward(StepRun& run);
  /// Waits for the buckets, copies them out and updates the weights.
  void finish(StepRun& run);

  TransformerConfig config;
  int world_size;
  std::vector<Parameter> params;
  StepOps step_list;
  cpu::ParameterStore store;
  cpu::Batch batch;
  cpu::Workspace workspace;
  cpu::Tape tape;
  RandomStream random;
  cpu::BucketList buckets;
  std::vector<Op> ops;
};

void Trainer::State::check_lengths(std::span<const std::int64_t> lengths) const {
  if (lengths.empty()) {
    throw InputError("a training step needs at least one sample");
  }
  for (const std::int64_t length : lengths) {
    check_length(length);
  }
}

void Trainer::State::check_length(std::int64_t length) const {
  if (length < 1 || (config.max_length > 0 && length > config.max_length)) {
    throw InputError(
        fmt::format("a sample of {} tokens: the model accepts 1 to {}", length, config.max_length));
  }
}

void Trainer::State::forward(StepRun& run) {
  for (std::size_t i = 0; i < step_list.forward.size(); ++i) {
    tape.forward(i);
    run.op_done();
  }
}

void Trainer::State::backward(StepRun& run) {
  const float share = 1.0F / static_cast<float>(world_size);
  for (std::size_t i = 0; i < step_list.backward.size(); ++i) {
    tape.backward(i);
    run.op_done();
    for (const int parameter : step_list.backward[i].completes) {
      buckets.copy_in(store, parameter, share);
      run.op_done();
      std::size_t bucket = 0;
      while (run.reducer != nullptr && buckets.next_ready(bucket)) {
        run.reducer->launch(bucket, buckets.data(bucket));
      }
    }
  }
}

void Trainer::State::finish(StepRun& run) {
  for (std::size_t bucket = 0; bucket < buckets.size(); ++bucket) {
    if (run.reducer != nullptr) {
      const double wait_start = clock_seconds();
      run.reducer->wait(bucket);
      run.wait += clock_seconds() - wait_start;
    }
    buckets.copy_out(store, bucket);
    run.op_done();
  }
  store.optimizer_step();
  run.op_done();
}

Trainer::Trainer(const TransformerConfig& config, int world_size, std::uint64_t seed)
    : state_(std::make_unique<State>(config, world_size, seed)) {
  set_buckets({ready_order(state_->config)});
}

Trainer::~Trainer() = default;

const std::vector<Op>& Trainer::ops() const {
  return state_->ops;
}

void Trainer::set_buckets(const std::vector<std::vector<int>>& buckets) {
  state_->buckets.assign(buckets, state_->store);
  state_->ops = training_ops(state_->config, buckets);
}

void Trainer::seed_data(std::uint64_t seed) {
  state_->random = RandomStream(seed);
}

TrainerStep Trainer::step(std::span<const std::int64_t> lengths,
                          double loss_scale,
                          GradientReducer* reducer,
                          OpTimer* timer,
                          std::int64_t padded_length) {
  State& s = *state_;
  s.check_lengths(lengths);
  s.check_length(std::max<std::int64_t>(1, padded_length));
  const cpu::FlushDenormals flush;
  StepRun run{reducer, timer};
  TrainerStep result;
  const double start = clock_seconds();
  s.batch.loss_scale = loss_scale;
  cpu::collate(s.batch, lengths, padded_length, target_range(s.config), s.random);
  s.buckets.start_step();
  run.op_done();
  const double data_end = clock_seconds();
  s.store.zero_gradients();
  run.op_done();
  s.forward(run);
  result.loss = s.tape.loss();
  const double forward_end = clock_seconds();
  s.backward(run);
  const double backward_end = clock_seconds();
  s.finish(run);
  result.data = data_end - start;
  result.forward = forward_end - data_end;
  result.backward = backward_end - forward_end;
  result.wait = run.wait;
  result.optimizer = clock_seconds() - backward_end - run.wait;
  return result;
}

std::span<float> Trainer::weights(std::size_t parameter) {
  return {state_->store.weights(parameter),
          static_cast<std::size_t>(state_->store.elements(parameter))};
}

std::span<const float> Trainer::gradient(std::size_t parameter) const {
  const cpu::ParameterStore& store = state_->store;
  return {store.gradient(parameter), static_cast<std::size_t>(store.elements(parameter))};
}

double Trainer::loss_of_last_batch() {
  const cpu::FlushDenormals flush;
  for (std::size_t i = 0; i < state_->step_list.forward.size(); ++i) {
    state_->tape.forward(i);
  }
  return state_->tape.loss();
}

}  // namespace stepsim
