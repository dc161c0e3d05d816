#include "calibrate/cuda/training/trainer.h"

#include <algorithm>
#include <deque>
#include <set>

#include <fmt/core.h>

#include "calibrate/cuda/training/batch.h"
#include "calibrate/cuda/training/bucket_list.h"
#include "calibrate/cuda/training/parameter_store.h"
#include "calibrate/cuda/training/tape.h"
#include "calibrate/cuda/training/workspace.h"
#include "calibrate/training/training_ops.h"
#include "costmodel/base/input_error.h"

namespace stepsim::cuda {
namespace {

/// The model, if this backend computes it.
const TransformerConfig& supported(const TransformerConfig& config) {
  check(config);
  const bool half = config.dtype == Dtype::Bf16 || config.dtype == Dtype::F16;
  if (config.dtype == Dtype::F64 || config.parameter_dtype == Dtype::F64) {
    throw InputError("the CUDA backend computes in f32, tf32, bf16 and f16");
  }
  if (stored_as(config.parameter_dtype) != Dtype::F32 && config.parameter_dtype != config.dtype) {
    throw InputError(
        "the CUDA backend keeps parameters in f32 or in the model's dtype; set "
        "model.parameter_dtype = \"f32\"");
  }
  if (config.attention == AttentionKind::Dense) {
    return config;
  }
  if (!half || config.head_dim() % 8 != 0 || config.head_dim() > 256) {
    throw InputError(
        fmt::format("fused attention takes bf16 or f16 and heads of a multiple of 8 up to 256 "
                    "features; the model has {} and {}; set model.attention = \"dense\"",
                    name_of(config.dtype),
                    config.head_dim()));
  }
  return config;
}

/// Labels of a sample, or hidden when the loss is taken over the pooled features themselves.
std::int64_t label_count(const TransformerConfig& config) {
  return config.classes > 0 ? config.classes : config.hidden;
}

/// One step under way.
struct StepRun {
  GradientReducer* reducer;
  OpTimer* timer;
  std::size_t op = 0;

  /// Runs one op between the timer's marks.
  template <typename Run>
  void run(const Run& body) {
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

/// Where the parts of a step end.
struct PartMarks {
  Event start;
  Event data;
  Event forward;
  Event backward;
  Event end;
  std::deque<Event> before_wait;  ///< [bucket]
  std::deque<Event> after_wait;
};

}  // namespace

struct Trainer::State {
  State(const TransformerConfig& given, int ranks, std::uint64_t seed)
      : config(supported(given)),
        world_size(ranks),
        params(parameters(config)),
        step_list(stepsim::step_ops(config)),
        store(params, config.parameter_dtype, config.dtype),
        workspace(batch),
        tape({config, params, stream, store, batch, workspace, gemm, sdpa, seed}, step_list),
        random(seed) {}

  void check_lengths(std::span<const std::int64_t> lengths, std::int64_t padded_length) const;
  void forward(StepRun& run);
  void backward(StepRun& run);
  /// Waits for the buckets, copies them out and updates the weights.
  void finish(StepRun& run);
  [[nodiscard]] TrainerStep parts(bool waited) const;

  TransformerConfig config;
  int world_size;
  std::vector<Parameter> params;
  StepOps step_list;
  Stream stream;
  Gemm gemm;
  Sdpa sdpa;
  ParameterStore store;
  Batch batch;
  Workspace workspace;
  Tape tape;
  RandomStream random;
  BucketList buckets;
  std::vector<Op> ops;
  PartMarks marks;
};

void Trainer::State::check_lengths(std::span<const std::int64_t> lengths,
                                   std::int64_t padded_length) const {
  if (lengths.empty()) {
    throw InputError("a training step needs at least one sample");
  }
  const auto check_one = [this](std::int64_t length) {
    if (length < 1 || (config.max_length > 0 && length > config.max_length)) {
      throw InputError(fmt::format(
          "a sample of {} tokens: the model accepts 1 to {}", length, config.max_length));
    }
  };
  std::for_each(lengths.begin(), lengths.end(), check_one);
  check_one(std::max<std::int64_t>(1, padded_length));
}

void Trainer::State::forward(StepRun& run) {
  for (std::size_t i = 0; i < step_list.forward.size(); ++i) {
    run.run([&] { tape.forward(i); });
  }
}

void Trainer::State::backward(StepRun& run) {
  const float share = 1.0F / static_cast<float>(world_size);
  for (std::size_t i = 0; i < step_list.backward.size(); ++i) {
    run.run([&] { tape.backward(i); });
    for (const int parameter : step_list.backward[i].completes) {
      run.run([&] { buckets.copy_in(stream, store, parameter, share); });
      std::size_t bucket = 0;
      while (run.reducer != nullptr && buckets.next_ready(bucket)) {
        run.reducer->launch(stream, bucket, buckets.data(bucket), buckets.elements(bucket));
      }
    }
  }
}

void Trainer::State::finish(StepRun& run) {
  for (std::size_t bucket = 0; bucket < buckets.size(); ++bucket) {
    if (run.reducer != nullptr) {
      marks.before_wait[bucket].record(stream);
      run.reducer->wait(stream, bucket);
      marks.after_wait[bucket].record(stream);
    }
    run.run([&] { buckets.copy_out(stream, store, bucket); });
  }
  run.run([&] { store.optimizer_step(stream); });
}

TrainerStep Trainer::State::parts(bool waited) const {
  TrainerStep result;
  result.data = seconds_between(marks.start, marks.data);
  result.forward = seconds_between(marks.data, marks.forward);
  result.backward = seconds_between(marks.forward, marks.backward);
  for (std::size_t bucket = 0; waited && bucket < buckets.size(); ++bucket) {
    result.wait += seconds_between(marks.before_wait[bucket], marks.after_wait[bucket]);
  }
  result.optimizer = seconds_between(marks.backward, marks.end) - result.wait;
  result.loss = tape.loss();
  return result;
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
  State& s = *state_;
  s.buckets.assign(buckets, s.store);
  s.ops = training_ops(s.config, buckets);
  s.marks.before_wait.resize(std::max(s.marks.before_wait.size(), buckets.size()));
  s.marks.after_wait.resize(s.marks.before_wait.size());
}

void Trainer::seed_data(std::uint64_t seed) {
  state_->random = RandomStream(seed);
}

void Trainer::prepare(std::span<const StepBatch> batches) {
  State& s = *state_;
  if (s.config.attention == AttentionKind::Dense) {
    return;
  }
  std::set<SdpaShape> shapes;
  for (const StepBatch& batch : batches) {
    s.check_lengths(batch.lengths, batch.padded_length);
    const bool packed = s.config.attention == AttentionKind::Varlen;
    const BatchSize size = batch_size(batch.lengths, batch.padded_length, packed);
    shapes.insert(s.tape.sdpa_shape(size));
  }
  s.sdpa.prepare(std::vector<SdpaShape>(shapes.begin(), shapes.end()));
}

TrainerStep Trainer::step(std::span<const std::int64_t> lengths,
                          double loss_scale,
                          GradientReducer* reducer,
                          OpTimer* timer,
                          std::int64_t padded_length) {
  State& s = *state_;
  s.check_lengths(lengths, padded_length);
  StepRun run{reducer, timer};
  s.marks.start.record(s.stream);
  s.batch.set_loss_scale(loss_scale);
  run.run([&] {
    s.batch.collate(s.stream,
                    lengths,
                    padded_length,
                    s.config.attention == AttentionKind::Varlen,
                    s.config.vocab,
                    label_count(s.config),
                    s.random);
  });
  s.buckets.start_step();
  s.marks.data.record(s.stream);
  run.run([&] { s.store.zero_gradients(s.stream); });
  s.forward(run);
  s.marks.forward.record(s.stream);
  s.backward(run);
  s.marks.backward.record(s.stream);
  s.finish(run);
  s.marks.end.record(s.stream);
  s.tape.fetch_loss();
  s.stream.synchronize();
  return s.parts(reducer != nullptr);
}

const Stream& Trainer::stream() const {
  return state_->stream;
}

std::int64_t Trainer::gemm_workspace_bytes() const {
  return state_->gemm.workspace_bytes();
}

const Event& Trainer::step_start() const {
  return state_->marks.start;
}

Array Trainer::weights(std::size_t parameter) const {
  return state_->store.weights(parameter);
}

Array Trainer::gradient(std::size_t parameter) const {
  return state_->store.gradient(parameter);
}

}  // namespace stepsim::cuda
