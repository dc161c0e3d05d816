#pragma once

#include <cstddef>
#include <vector>

#include "sim/ddp/ddp_program.h"

namespace stepsim {

/// The buckets of one phase.
struct BucketList {
  const std::vector<Bucket>& list;
  std::vector<int> bucket_of;  ///< [parameter]; empty when no iteration of the step uses the list.
};

/// What the writers of all ranks share.
struct StepContext {
  const DdpModel& model;
  BucketList initial;
  BucketList rebuilt;
  const SyncOptions& options;
  const DdpPrices& prices;
  const DdpStep& step;
  int ranks = 1;
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

/// Writes one rank's step.
class RankProgramBuilder {
 public:
  RankProgramBuilder(const StepContext& context, CollectiveLog& log, Program& program, int rank);
  void write();

 private:
  // Instructions.
  void mark(DdpMark mark);
  void host(Duration busy);
  void kernel(const Kernel& kernel, Phase phase, std::uint8_t stream = kComputeStream);
  void memory(double bytes, Phase phase, std::uint8_t stream = kComputeStream);
  void elements(OpClass op_class, std::int64_t count, Phase phase, std::uint8_t stream = 0);
  int collective(const CollectiveUse& use, std::uint8_t stream, bool whole_world = true);
  void stream_wait(int collective, std::uint8_t stream = kComputeStream);
  /// As Work.wait(): a stream wait with NCCL, a blocked host with gloo.
  void wait(int collective);
  void host_sync(std::uint8_t stream = kComputeStream);
  /// Compute goes on after what is on the side stream now.
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
  [[nodiscard]] std::int64_t total_elements() const;

  const StepContext& context_;
  CollectiveLog& log_;
  Program& program_;
  std::vector<Instruction>& out_;
  int rank_;
  const RankWork& work_;
  const BucketList* buckets_;  ///< Of the micro-batch being written.
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
