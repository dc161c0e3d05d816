#include "sim/parallel/step_template.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "costmodel/base/index.h"
#include "sim/engine/program_check.h"

namespace stepsim {
namespace {

/// Whether both are the same but for their times.
bool same(const Instruction& a, const Instruction& b) {
  return a.kind == b.kind && a.stream == b.stream && a.phase == b.phase && a.index == b.index;
}

}  // namespace

StepTemplate::StepTemplate(StepProgram program, std::int32_t model_work, bool host_is_device)
    : program_(std::move(program)),
      host_is_device_(host_is_device),
      ranks_(program_.program.ranks.size()),
      collectives_(program_.program.collectives) {
  alike_ = std::ranges::all_of(program_.program.ranks, [&](const auto& rank) {
    return std::ranges::equal(
        rank, program_.program.ranks.front(), [](const auto& a, const auto& b) {
          return same(a, b) && a.host == b.host && a.latency == b.latency && a.work == b.work;
        });
  });
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    read(program_.program.ranks[r], model_work, ranks_[r]);
    for (Instruction& in : program_.program.ranks[r]) {
      in.label = -1;  // It is no label of the model.
    }
  }
}

void StepTemplate::read(const std::vector<Instruction>& instructions,
                        std::int32_t model_work,
                        Rank& rank) {
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    const Instruction& in = instructions[i];
    if (in.kind != Opcode::Work) {
      continue;
    }
    if (in.phase == Phase::Data) {
      const bool is_loaded = i > 1 && instructions[i - 2].kind == Opcode::HostUntil;
      rank.micro_batches.push_back({i, is_loaded, {}, 0});
    } else if (in.label >= model_work) {
      rank.own.push_back({i, in.label});
    } else if (in.label >= 0) {
      MicroBatch& batch = rank.micro_batches.back();
      batch.kernels.push_back({i, in.label});
      batch.first_backward += in.phase == Phase::Forward ? 1 : 0;
    }
  }
}

void StepTemplate::set_batch(int rank, std::size_t micro_batch, const MicroBatchWork& batch) {
  std::vector<Instruction>& instructions = program_.program.ranks[at(rank)];
  const MicroBatch& of_batch = ranks_[at(rank)].micro_batches[micro_batch];
  if (of_batch.is_loaded != batch.ready.has_value()) {
    throw std::invalid_argument("step template: another loader");
  }
  if (batch.ready) {
    instructions[of_batch.copy - 2].until = *batch.ready;
  }
  instructions[of_batch.copy - 1].host = batch.collate;
  set(instructions[of_batch.copy], batch.copy_input);
  instructions[of_batch.copy].bound = Bound::Unaffected;
}

void StepTemplate::set_own(int rank, std::span<const Kernel> kernels) {
  for (const Place& place : ranks_[at(rank)].own) {
    set(program_.program.ranks[at(rank)][place.instruction], kernels[at(place.number)]);
  }
}

void StepTemplate::hold_up(int rank, Duration by) {
  for (const MicroBatch& batch : ranks_[at(rank)].micro_batches) {
    if (!batch.kernels.empty()) {
      program_.program.ranks[at(rank)][batch.kernels.front().instruction].work += by;
      return;
    }
  }
}

bool StepTemplate::retime(const StepProgram& first_rank) {
  std::vector<std::vector<Instruction>>& ranks = program_.program.ranks;
  const std::vector<Instruction>& timed = first_rank.program.ranks.front();
  if (!alike_ || first_rank.program.collectives.size() != collectives_.size() ||
      !std::ranges::equal(ranks.front(), timed, same)) {
    return false;
  }
  for (std::vector<Instruction>& rank : ranks) {
    for (std::size_t i = 0; i < timed.size(); ++i) {
      rank[i].host = timed[i].host;
      rank[i].latency = timed[i].latency;
      rank[i].work = timed[i].work;
    }
  }
  collectives_ = first_rank.program.collectives;
  program_.program.collectives = collectives_;
  return true;
}

ExecutionTrace StepTemplate::play(Engine& engine) {
  const bool slows = engine.rules().interference.active();
  if (slows_ != slows) {
    check_program(program_.program, engine.rules(), ranks_.size());
    order_ = collective_order(program_.program, engine.rules());
    slows_ = slows;
  }
  return order_ ? engine.play(program_.program, *order_) : engine.play(program_.program);
}

void StepTemplate::set(const std::vector<Duration>& transfers) {
  for (std::size_t c = 0; c < transfers.size(); ++c) {
    program_.program.collectives[c].transfer = transfers[c];
  }
}

}  // namespace stepsim
