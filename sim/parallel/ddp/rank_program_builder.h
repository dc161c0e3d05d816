#pragma once

#include <cstddef>
#include <vector>

#include "sim/parallel/ddp/ddp_options.h"
#include "sim/parallel/rank_program.h"

namespace stepsim {

/// The buckets of one phase.
struct BucketList {
  const std::vector<Bucket>& list;
  std::vector<int> bucket_of;  ///< [parameter]; empty when no iteration of the step uses the list.
};

/// What the builders of all ranks share.
struct StepContext {
  const TrainedModel& model;
  BucketList initial;
  BucketList rebuilt;
  const DdpOptions& options;
  const StepHost& host;
  const StepPrices& prices;
  const StepWork& step;
  int ranks = 1;
  double gradient_scale = 1;  ///< Bytes of a gradient over bytes of its parameter.
  double reduce_scale = 1;    ///< Bytes on the wire over bytes of the parameters: 0.5 for bf16.

  /// Native mixed precision: parameters are cast in the forward.
  [[nodiscard]] bool casts_parameters() const { return options.mixed_param_dtype.has_value(); }
};

/// What the builders of all ranks of a step share. Throws std::invalid_argument: a parameter is in
/// no bucket.
[[nodiscard]] StepContext step_context(const TrainedModel& model,
                                       const BucketLists& buckets,
                                       const DdpOptions& options,
                                       const StepHost& host,
                                       const StepPrices& prices,
                                       const StepWork& step);

/// Builds the instructions of one rank's host for one step of a DDP module. The parts are in
/// several files: the step and its end in rank_program_builder.cpp, the reducer in
/// rank_program_reducer.cpp, and the schedules of the communication hooks in
/// hooks/rank_program_hooks.cpp. What else wraps a module as DDP does has its own passes.
class RankProgramBuilder : public RankProgram {
 public:
  RankProgramBuilder(const StepContext& context,
                     CollectiveLog& log,
                     StepProgram& program,
                     int rank);
  virtual ~RankProgramBuilder() = default;
  RankProgramBuilder(const RankProgramBuilder&) = delete;
  RankProgramBuilder& operator=(const RankProgramBuilder&) = delete;
  void build();

 protected:
  /// Forward and backward of a micro-batch, with kForwardEnd between them. `accumulates`: its
  /// gradients are added to earlier ones.
  virtual void passes(const Iteration& iteration, const MicroBatchWork& batch, bool accumulates);
  /// What follows the reduction of a bucket.
  virtual void copy_out(int bucket);

  [[nodiscard]] const StepContext& context() const { return context_; }
  [[nodiscard]] double gradient_bytes_of(int parameter) const;
  /// Forgets the collectives of the passes before, and makes room for those of so many buckets.
  void begin_backward(std::size_t buckets);
  /// The end of the step waits for this collective.
  void await_at_end(int bucket, int collective) {
    in_flight_[static_cast<std::size_t>(bucket)] = {collective};
  }

 private:
  // Parts of a step.
  void before_forward(const Iteration& iteration, const MicroBatchWork& batch);
  void rebuild();
  void broadcast_buffers();
  void forward(const MicroBatchWork& batch);
  void backward(const Iteration& iteration, const MicroBatchWork& batch, bool accumulates);
  void backward_joined(const Iteration& iteration);
  void await_side_work(int bucket, Phase phase);
  void finalize(const MicroBatchWork& batch);
  void after_step();

  // The reducer.
  void gradient_ready(int parameter);
  void copy_in(int parameter);
  /// Copies the gradient in and launches all buckets that are complete up to the first one not.
  void mark_ready(int parameter);
  void launch(int bucket);
  void launch_all_after_graph(const Iteration& iteration);
  void send_bitmap();
  void reduce(int bucket);
  void reduce_with_hook(int bucket);
  void power_sgd(int bucket, const std::vector<HookCollective>& parts);
  void await_bitmap();

  [[nodiscard]] bool hooked() const { return context_.options.hook != CommunicationHook::None; }
  [[nodiscard]] bool is_unused(int parameter) const;
  [[nodiscard]] bool aliased() const;
  [[nodiscard]] double gradient_bytes(int bucket) const;
  [[nodiscard]] double wire_bytes(int bucket) const;
  [[nodiscard]] std::int64_t bucket_elements(int bucket) const;

  const StepContext& context_;
  const BucketList* buckets_;  ///< The list that the current micro-batch reduces.

  std::vector<int> pending_;  ///< [bucket] gradients still missing.
  std::size_t next_bucket_ = 0;
  std::vector<std::vector<int>> in_flight_;  ///< [bucket] collectives to wait for.
  std::vector<int> done_event_;  ///< [bucket] event after its work on the side stream; -1.
  bool first_hook_ = true;
  int bitmap_ = -1;
  int active_ranks_ = -1;  ///< Inside join(): the all-reduce that counts who still has inputs.
};

/// The program of a step whose ranks are built by `Builder`.
template <typename Builder>
[[nodiscard]] StepProgram built_program(const StepContext& context) {
  StepProgram result = empty_program(context.model, context.step);
  build_ranks<Builder>(context, context.prices, context.step, result);
  return result;
}

}  // namespace stepsim
