#include "sim/parallel/fsdp/zero3_program.h"

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "sim/parallel/ddp/rank_program_builder.h"

namespace stepsim {
namespace {

/// A DDP module whose reducer is replaced by gathers and scatters of units.
class Zero3RankProgram : public RankProgramBuilder {
 public:
  using RankProgramBuilder::RankProgramBuilder;

 private:
  void passes(const Iteration& iteration, const MicroBatchWork& batch, bool accumulates) override {
    forward_of_units(batch);
    mark(kForwardEnd);
    backward_of_units(batch, iteration.synchronises, accumulates);
  }
  void copy_out(int) override {}  // The scattered gradients lie where the optimizer reads them.

  void gather_unit(int unit);
  void use_unit(int unit);
  void forward_of_units(const MicroBatchWork& batch);
  void backward_of_units(const MicroBatchWork& batch, bool synchronises, bool accumulates);
  void scatter_unit(int unit);
  [[nodiscard]] double unit_bytes(int unit) const;

  std::vector<int> gathered_;  ///< [unit] its all-gather under way; -1.
};

double Zero3RankProgram::unit_bytes(int unit) const {
  double bytes = 0;
  for (const int parameter : context().model.units[at(unit)]) {
    bytes += static_cast<double>(context().model.parameters[at(parameter)].bytes);
  }
  return bytes;
}

/// Asks for the parameters of a unit. It may start when what was enqueued before is done, which
/// keeps at most two units' parameters beside the root's.
void Zero3RankProgram::gather_unit(int unit) {
  if (gathered_[at(unit)] < 0 && !context().model.units[at(unit)].empty()) {
    gathered_[at(unit)] =
        collective({CollectiveKind::AllGather, unit_bytes(unit), -1}, kComputeStream);
  }
}

void Zero3RankProgram::use_unit(int unit) {
  gather_unit(unit);
  if (gathered_[at(unit)] >= 0) {
    stream_wait(gathered_[at(unit)]);
  }
}

void Zero3RankProgram::forward_of_units(const MicroBatchWork& batch) {
  const auto units = static_cast<int>(context().model.units.size());
  gathered_.assign(at(units), -1);
  use_unit(0);
  int current = 0;
  for (std::size_t op = 0; op < batch.forward.size(); ++op) {
    const int unit = context().model.forward_unit[op];
    if (unit != current && unit != 0) {
      gather_unit(unit);
      if (unit + 1 < units) {
        gather_unit(unit + 1);
      }
      use_unit(unit);
      current = unit;
    }
    kernel(batch.forward[op], Phase::Forward);
  }
}

void Zero3RankProgram::backward_of_units(const MicroBatchWork& batch,
                                         bool synchronises,
                                         bool accumulates) {
  const auto units = static_cast<int>(context().model.units.size());
  begin_backward(at(units));
  const int root = gathered_.front();
  gathered_.assign(at(units), -1);
  gathered_.front() = root;  // The root keeps its parameters after the forward.
  std::vector<int> missing(at(units), 0);
  for (int unit = 0; unit < units; ++unit) {
    missing[at(unit)] = static_cast<int>(context().model.units[at(unit)].size());
  }
  std::vector<int> unit_of(context().model.parameters.size(), 0);
  for (int unit = 0; unit < units; ++unit) {
    for (const int parameter : context().model.units[at(unit)]) {
      unit_of[at(parameter)] = unit;
    }
  }
  int current = 0;
  for (std::size_t op = 0; op < batch.backward.size(); ++op) {
    const int unit = context().model.backward_unit[op];
    if (unit != current && unit != 0) {
      gather_unit(unit);
      if (unit > 1) {
        gather_unit(unit - 1);
      }
      use_unit(unit);
      current = unit;
    }
    kernel(batch.backward[op], Phase::Backward);
    for (const int parameter : context().model.completes[op]) {
      if (accumulates) {
        memory(3 * gradient_bytes_of(parameter), Phase::Backward);
      }
      if (--missing[at(unit_of[at(parameter)])] == 0 && synchronises) {
        scatter_unit(unit_of[at(parameter)]);
      }
    }
  }
}

void Zero3RankProgram::scatter_unit(int unit) {
  const std::int64_t count = sum_of(context().model.units[at(unit)], [&](const int parameter) {
    return context().model.elements(parameter);
  });
  elements(OpClass::GradientCopyIn, count, Phase::Backward);
  await_at_end(
      unit,
      collective({CollectiveKind::ReduceScatter, unit_bytes(unit) * context().reduce_scale, -1},
                 kComputeStream));
}

}  // namespace

StepProgram zero3_program(const TrainedModel& model,
                          const BucketLists& buckets,
                          const DdpOptions& options,
                          const StepHost& host,
                          const StepPrices& prices,
                          const StepWork& step) {
  return built_program<Zero3RankProgram>(step_context(model, buckets, options, host, prices, step));
}

}  // namespace stepsim
