#include "sim/parallel/step_template.h"

#include <stdexcept>
#include <utility>

#include "costmodel/base/index.h"
#include "sim/engine/program_check.h"

namespace stepsim {

StepTemplate::StepTemplate(StepProgram program, std::int32_t first_own, bool host_is_device)
    : program_(std::move(program)),
      host_is_device_(host_is_device),
      ranks_(program_.program.ranks.size()),
      collectives_(program_.program.collectives) {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    read(program_.program.ranks[r], first_own, ranks_[r]);
    for (Instruction& in : program_.program.ranks[r]) {
      in.label = -1;  // It is no label of the model.
    }
  }
}

void StepTemplate::read(const std::vector<Instruction>& instructions,
                        std::int32_t first_own,
                        Rank& rank) {
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    const Instruction& in = instructions[i];
    if (in.kind != Opcode::Work) {
      continue;
    }
    if (in.phase == Phase::Data) {
      const bool is_loaded = i > 1 && instructions[i - 2].kind == Opcode::HostUntil;
      rank.micro_batches.push_back({i, is_loaded, {}});
    } else if (in.label >= first_own) {
      rank.own.push_back({i, in.label - first_own});
    } else if (in.label >= 0) {
      rank.micro_batches.back().kernels.push_back({i, in.label});
    }
  }
}

void StepTemplate::set(Instruction& in, const Kernel& kernel) const {
  in.bound = kernel.bound;
  in.blocks = kernel.blocks;
  in.work = kernel.work;
  if (!host_is_device_) {
    in.host = kernel.launch;
    in.latency = kernel.launch;
  }
}

void StepTemplate::set(int rank, const RankWork& work, const OwnKernel& own_kernel) {
  std::vector<Instruction>& instructions = program_.program.ranks[at(rank)];
  const Rank& places = ranks_[at(rank)];
  if (places.micro_batches.size() != work.micro_batches.size()) {
    throw std::invalid_argument("step template: other micro-batches");
  }
  for (std::size_t m = 0; m < work.micro_batches.size(); ++m) {
    const MicroBatch& of_batch = places.micro_batches[m];
    const MicroBatchWork& batch = work.micro_batches[m];
    const std::size_t forward = batch.forward.size();
    if (of_batch.is_loaded != batch.ready.has_value() ||
        of_batch.kernels.size() != forward + batch.backward.size()) {
      throw std::invalid_argument("step template: other kernels");
    }
    if (batch.ready) {
      instructions[of_batch.copy - 2].until = *batch.ready;
    }
    instructions[of_batch.copy - 1].host = batch.collate;
    set(instructions[of_batch.copy], batch.copy_input);
    instructions[of_batch.copy].bound = Bound::Unaffected;
    for (const Place& place : of_batch.kernels) {
      const std::size_t number = at(place.number);
      set(instructions[place.instruction],
          number < forward ? batch.forward[number] : batch.backward[number - forward]);
    }
  }
  for (const Place& place : places.own) {
    set(instructions[place.instruction], own_kernel(place.number, work.factor));
  }
}

ExecutionTrace StepTemplate::play(Engine& engine) {
  if (!is_checked_) {
    check_program(program_.program, engine.rules(), ranks_.size());
    order_ = collective_order(program_.program, engine.rules());
    is_checked_ = true;
  }
  return order_ ? engine.play(program_.program, *order_) : engine.play(program_.program);
}

void StepTemplate::set(const std::vector<Duration>& transfers) {
  for (std::size_t c = 0; c < transfers.size(); ++c) {
    program_.program.collectives[c].transfer = transfers[c];
  }
}

}  // namespace stepsim
