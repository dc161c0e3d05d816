#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "costmodel/base/index.h"
#include "sim/engine/engine.h"
#include "sim/parallel/step_program.h"
#include "sim/parallel/step_work.h"

namespace stepsim {

/// The program of a step, built once and given the work of one step after another.
class StepTemplate {
 public:
  /// `program`: kernels of the model have labels below `model_work`, all others that depend on a
  /// rank have labels from there on. They are the numbers by which set() takes a kernel's time, and
  /// none of them takes time in the program.
  StepTemplate(StepProgram program, std::int32_t model_work, bool host_is_device);

  /// Gives a rank its kernels of the model in a micro-batch: `kernels` by their numbers, of which
  /// the first of each pass is held up. `jittered` is called with the work of each, in their order,
  /// and returns how long it takes.
  template <typename Jittered>
  void set_model(int rank,
                 std::size_t micro_batch,
                 std::span<const Kernel> kernels,
                 const PassStall& forward,
                 const PassStall& backward,
                 Jittered jittered) {
    std::vector<Instruction>& instructions = program_.program.ranks[at(rank)];
    const MicroBatch& of_batch = ranks_[at(rank)].micro_batches[micro_batch];
    for (std::size_t i = 0; i < of_batch.kernels.size(); ++i) {
      const Place& place = of_batch.kernels[i];
      Kernel kernel = kernels[at(place.number)];
      if (i == 0 || i == of_batch.first_backward) {
        const PassStall& stall = i < of_batch.first_backward ? forward : backward;
        kernel.launch += stall.host;
        kernel.work += stall.device;
      }
      kernel.work = jittered(kernel.work);
      set(instructions[place.instruction], kernel);
    }
  }
  /// Gives a rank all of a micro-batch but its kernels. Throws std::invalid_argument: its loader
  /// has workers and the program's has none, or the other way round.
  void set_batch(int rank, std::size_t micro_batch, const MicroBatchWork& batch);
  /// Gives a rank the kernels that are not the model's.
  void set_own(int rank, std::span<const Kernel> kernels);
  /// Holds up the first kernel of a rank.
  void hold_up(int rank, Duration by);
  /// Gives the program the times that another one of such a step has, of which rank 0 is enough:
  /// all but those of kernels. False: ranks differ by more than their kernels, or it is another
  /// step; nothing has changed then.
  [[nodiscard]] bool retime(const StepProgram& first_rank);
  /// `transfers`: [collective]
  void set(const std::vector<Duration>& transfers);

  [[nodiscard]] const StepProgram& program() const { return program_; }
  /// Plays the step as it is set. The engine has the rules of the first one.
  [[nodiscard]] ExecutionTrace play(Engine& engine);
  /// [collective] As the program was built.
  [[nodiscard]] const std::vector<Collective>& collectives() const { return collectives_; }

 private:
  struct Place {
    std::size_t instruction = 0;
    std::int32_t number = 0;
  };
  struct MicroBatch {
    std::size_t copy = 0;    ///< The instruction that copies the batch; the one before builds it.
    bool is_loaded = false;  ///< And one more before waits for a loader.
    std::vector<Place> kernels;
    std::size_t first_backward = 0;  ///< Of the kernels.
  };
  struct Rank {
    std::vector<MicroBatch> micro_batches;
    std::vector<Place> own;
  };

  void read(const std::vector<Instruction>& instructions, std::int32_t model_work, Rank& rank);
  void set(Instruction& in, const Kernel& kernel) const {
    in.bound = kernel.bound;
    in.blocks = kernel.blocks;
    in.work = kernel.work;
    if (!host_is_device_) {
      in.host = kernel.launch;
      in.latency = kernel.launch;
    }
  }

  StepProgram program_;
  bool host_is_device_;
  std::vector<Rank> ranks_;
  std::vector<Collective> collectives_;
  bool alike_ = false;         ///< Whether ranks differ by no more than their kernels.
  std::optional<bool> slows_;  ///< Whether order_ was found under interference; none: not yet.
  std::optional<CollectiveOrder> order_;
};

}  // namespace stepsim
