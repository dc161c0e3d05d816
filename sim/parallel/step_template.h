#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/parallel/step_program.h"
#include "sim/parallel/step_work.h"

namespace stepsim {

/// The program of a step, built once and given the work of one step after another.
class StepTemplate {
 public:
  /// One of the kernels that are no op of the model, on a rank of this slowness.
  using OwnKernel = std::function<Kernel(std::int32_t number, double slowness)>;

  /// `program`: the kernels of the model have their place in the micro-batch for a label, those of
  /// the backward behind those of the forward; all other kernels that depend on a rank have
  /// `first_own` plus their number. None of them takes time.
  StepTemplate(StepProgram program, std::int32_t first_own, bool host_is_device);

  /// Gives a rank the work of a step. Throws std::invalid_argument: the step has other kernels.
  void set(int rank, const RankWork& work, const OwnKernel& own_kernel);
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
    std::int32_t number = 0;  ///< Among the kernels of the micro-batch, or of own_kernel.
  };
  struct MicroBatch {
    std::size_t copy = 0;    ///< The instruction that copies the batch; the one before builds it.
    bool is_loaded = false;  ///< And one more before waits for a loader.
    std::vector<Place> kernels;
  };
  struct Rank {
    std::vector<MicroBatch> micro_batches;
    std::vector<Place> own;
  };

  void read(const std::vector<Instruction>& instructions, std::int32_t first_own, Rank& rank);
  void set(Instruction& in, const Kernel& kernel) const;

  StepProgram program_;
  bool host_is_device_;
  std::vector<Rank> ranks_;
  std::vector<Collective> collectives_;
  bool is_checked_ = false;
  std::optional<CollectiveOrder> order_;
};

}  // namespace stepsim
