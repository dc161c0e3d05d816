#pragma once

#include <cstddef>
#include <vector>

#include "sim/parallel/ddp/ddp_program.h"

namespace stepsim {

/// The buckets of one phase.
struct BucketList {
  const std::vector<Bucket>& list;
  std::vector<int> bucket_of;  ///< [parameter]; empty when no iteration of the step uses the list.
};

/// What the builders of all ranks share.
struct StepContext {
  const DdpModel& model;
  BucketList initial;
  BucketList rebuilt;
  const DdpOptions& options;
  const DdpHost& host;
  const DdpPrices& prices;
  const DdpStep& step;
  int ranks = 1;
  double gradient_scale = 1;  ///< Bytes of a gradient over bytes of its parameter.
  double reduce_scale = 1;    ///< Bytes on the wire over bytes of the parameters: 0.5 for bf16.

  /// Native mixed precision: parameters are cast in the forward.
  [[nodiscard]] bool casts_parameters() const { return options.mixed_param_dtype.has_value(); }
};

/// The collectives of a program. Every rank issues the same ones in the same order, so the n-th
/// that a rank issues is the n-th of all; those inside subgroups have one collective a group.
class CollectiveLog {
 public:
  CollectiveLog(const StepContext& context, DdpProgram& program)
      : context_(context), program_(program) {}

  /// The collective that rank `rank` issues as its n-th.
  int issue(std::size_t n, int rank, const CollectiveUse& use, bool whole_world);

 private:
  const StepContext& context_;
  DdpProgram& program_;
  std::vector<std::vector<int>> issued_;  ///< [n][subgroup; one entry for the whole world]
};

/// Builds the instructions of one rank's host for one step. The parts are in several files: the
/// step, its instructions and its end in rank_program_builder.cpp, the reducer in
/// rank_program_reducer.cpp, fully sharded training in rank_program_sharded.cpp, and the schedules
/// of the communication hooks in hooks/rank_program_hooks.cpp.
class RankProgramBuilder {
 public:
  RankProgramBuilder(const StepContext& context, CollectiveLog& log, Program& program, int rank);
  void build();

 private:
  // Instructions.
  void mark(DdpMark mark);
  void host(Duration busy);
  void kernel(const Kernel& kernel, Phase phase, std::uint8_t stream = kComputeStream);
  void memory(double bytes, Phase phase, std::uint8_t stream = kComputeStream);
  void elements(OpClass op_class, std::int64_t count, Phase phase, std::uint8_t stream = 0);
  int collective(const CollectiveUse& use, std::uint8_t stream, bool whole_world = true);
  void stream_wait(int collective, std::uint8_t stream = kComputeStream);
  /// What Work.wait() does: with NCCL the stream waits, with gloo the host as well.
  void wait(int collective);
  void host_sync(std::uint8_t stream = kComputeStream);
  /// Records an event after what is on the stream now; returns its number.
  int record(std::uint8_t stream);
  void event_wait(int event, std::uint8_t stream = kComputeStream);

  // Parts of a step.
  void data(const MicroBatchWork& batch);
  void before_forward(const Iteration& iteration, const MicroBatchWork& batch);
  void rebuild();
  void broadcast_buffers();
  void forward(const MicroBatchWork& batch);
  void backward(const Iteration& iteration, const MicroBatchWork& batch, bool accumulates);
  void backward_joined(const Iteration& iteration);
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
  void copy_out(int bucket);
  void await_bitmap();

  // Fully sharded (ZeRO-3).
  void gather_unit(int unit);
  void use_unit(int unit);
  void sharded_forward(const MicroBatchWork& batch);
  void sharded_backward(const MicroBatchWork& batch, bool synchronises, bool accumulates);
  void scatter_unit(int unit);
  [[nodiscard]] double unit_bytes(int unit) const;

  [[nodiscard]] bool hooked() const { return context_.options.hook != CommunicationHook::None; }
  [[nodiscard]] bool is_unused(int parameter) const;
  [[nodiscard]] bool aliased() const;
  [[nodiscard]] double gradient_bytes_of(int parameter) const;
  [[nodiscard]] double gradient_bytes(int bucket) const;
  [[nodiscard]] double wire_bytes(int bucket) const;
  [[nodiscard]] std::int64_t bucket_elements(int bucket) const;

  const StepContext& context_;
  CollectiveLog& log_;
  Program& program_;
  std::vector<Instruction>& out_;
  int rank_;
  const RankWork& work_;
  const BucketList* buckets_;  ///< The list that the current micro-batch reduces.
  std::size_t issued_ = 0;
  int events_ = 0;

  std::vector<int> pending_;  ///< [bucket] gradients still missing.
  std::size_t next_bucket_ = 0;
  std::vector<std::vector<int>> in_flight_;  ///< [bucket] collectives to wait for.
  std::vector<int> done_event_;  ///< [bucket] event after its work on the side stream; -1.
  bool first_hook_ = true;
  int bitmap_ = -1;
  int active_ranks_ = -1;      ///< Inside join(): the all-reduce that counts who still has inputs.
  std::vector<int> gathered_;  ///< [unit] its all-gather under way; -1.
};

}  // namespace stepsim
