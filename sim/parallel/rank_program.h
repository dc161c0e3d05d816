#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/parallel/step_program.h"

namespace stepsim {

/// The collectives of a program. Every rank issues the same ones in the same order, so the n-th
/// that a rank issues is the n-th of all; there is one collective a group.
class CollectiveLog {
 public:
  CollectiveLog(const StepPrices& prices, StepProgram& program)
      : prices_(prices), program_(program) {}

  /// The collective that rank `rank` issues as its n-th.
  int issue(std::size_t n, int rank, const CollectiveUse& use, const RankGroup& among);

 private:
  const StepPrices& prices_;
  StepProgram& program_;
  std::vector<std::vector<int>> issued_;  ///< [n][group]
};

/// Writes the instructions of one rank's host for one step. A kind of parallelism derives its own
/// program from it, out of these.
class RankProgram {
 protected:
  /// All references must outlive this. The program has a list of instructions for each rank.
  RankProgram(const StepHost& host,
              const StepPrices& prices,
              const StepWork& step,
              CollectiveLog& log,
              StepProgram& program,
              int rank);

  void mark(StepMark mark);
  void host(Duration busy);
  void kernel(const Kernel& kernel, Phase phase, std::uint8_t stream = kComputeStream);
  /// `label`: of TrainedModel::labels; -1: what work of that phase is called.
  void memory(double bytes,
              Phase phase,
              std::uint8_t stream = kComputeStream,
              std::int32_t label = -1);
  void elements(OpClass op_class, std::int64_t count, Phase phase, std::uint8_t stream = 0);
  int collective(const CollectiveUse& use, std::uint8_t stream, const RankGroup& group = {});
  void stream_wait(int collective, std::uint8_t stream = kComputeStream);
  /// What Work.wait() does: with NCCL the stream waits, with gloo the host as well.
  void wait(int collective);
  void host_sync(std::uint8_t stream = kComputeStream);
  /// Records an event after what is on the stream now; returns its number.
  int record(std::uint8_t stream);
  /// The stream goes on after the event; `phase` is what it waits for.
  void event_wait(int event, Phase phase, std::uint8_t stream = kComputeStream);
  /// The host goes on after the event.
  void host_event_wait(int event);
  /// The batch is loaded and copied to the device.
  void data(const MicroBatchWork& batch);
  /// What follows is the optimizer's.
  void begin_optimizer() { other_ = Phase::OptimizerOther; }
  /// What every host does at the end of a step.
  void end_step();

  [[nodiscard]] const RankWork& work() const { return work_; }
  /// Makes room for so many instructions.
  void reserve(std::size_t instructions) { out_.reserve(instructions); }

 private:
  const StepHost& host_;
  const StepPrices& prices_;
  CollectiveLog& log_;
  Program& program_;
  std::vector<Instruction>& out_;
  int rank_;
  const RankWork& work_;
  std::size_t issued_ = 0;
  int events_ = 0;
  /// What Phase::Other is on the compute stream now, so that it counts with the pass that it is in.
  Phase other_ = Phase::Other;
};

/// Has the wanted ranks' instructions written by a `Rank` each.
template <typename Rank, typename Context>
void build_ranks(const Context& context,
                 const StepPrices& prices,
                 const StepWork& step,
                 StepProgram& program) {
  CollectiveLog log(prices, program);
  std::size_t instructions = 0;  // Ranks do the same.
  for (int rank = 0; rank < step.wanted_ranks(); ++rank) {
    std::vector<Instruction>& of_rank = program.program.ranks[static_cast<std::size_t>(rank)];
    of_rank.reserve(instructions);
    Rank(context, log, program, rank).build();
    instructions = of_rank.size();
    step.on_rank(of_rank);
  }
}

}  // namespace stepsim
