
#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "sim/parallel/ddp/rank_program_builder.h"

namespace stepsim {

double RankProgramBuilder::unit_bytes(int unit) const {
  double bytes = 0;
  for (const int parameter : context_.model.units[at(unit)]) {
    bytes += static_cast<double>(context_.model.parameters[at(parameter)].bytes);
  }
  return bytes;
}

/// Asks for the parameters of a unit. It may start when what was enqueued before is done, which
/// keeps at most two units' parameters beside the root's.
void RankProgramBuilder::gather_unit(int unit) {
  if (gathered_[at(unit)] < 0 && !context_.model.units[at(unit)].empty()) {
    gathered_[at(unit)] =
        collective({CollectiveKind::AllGather, unit_bytes(unit), -1}, kComputeStream);
  }
}

void RankProgramBuilder::use_unit(int unit) {
  gather_unit(unit);
  if (gathered_[at(unit)] >= 0) {
    stream_wait(gathered_[at(unit)]);
  }
}

void RankProgramBuilder::sharded_forward(const MicroBatchWork& batch) {
  const auto units = static_cast<int>(context_.model.units.size());
  gathered_.assign(at(units), -1);
  use_unit(0);
  int current = 0;
  for (std::size_t op = 0; op < batch.forward.size(); ++op) {
    const int unit = context_.model.forward_unit[op];
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

void RankProgramBuilder::sharded_backward(const MicroBatchWork& batch,
                                          bool synchronises,
                                          bool accumulates) {
  const auto units = static_cast<int>(context_.model.units.size());
  in_flight_.assign(at(units), {});
  done_event_.assign(at(units), -1);
  bitmap_ = -1;
  const int root = gathered_.front();
  gathered_.assign(at(units), -1);
  gathered_.front() = root;  // The root keeps its parameters after the forward.
  std::vector<int> missing(at(units), 0);
  for (int unit = 0; unit < units; ++unit) {
    missing[at(unit)] = static_cast<int>(context_.model.units[at(unit)].size());
  }
  std::vector<int> unit_of(context_.model.parameters.size(), 0);
  for (int unit = 0; unit < units; ++unit) {
    for (const int parameter : context_.model.units[at(unit)]) {
      unit_of[at(parameter)] = unit;
    }
  }
  int current = 0;
  for (std::size_t op = 0; op < batch.backward.size(); ++op) {
    const int unit = context_.model.backward_unit[op];
    if (unit != current && unit != 0) {
      gather_unit(unit);
      if (unit > 1) {
        gather_unit(unit - 1);
      }
      use_unit(unit);
      current = unit;
    }
    kernel(batch.backward[op], Phase::Backward);
    for (const int parameter : context_.model.completes[op]) {
      if (accumulates) {
        memory(3 * gradient_bytes_of(parameter), Phase::Backward);
      }
      if (--missing[at(unit_of[at(parameter)])] == 0 && synchronises) {
        scatter_unit(unit_of[at(parameter)]);
      }
    }
  }
}

void RankProgramBuilder::scatter_unit(int unit) {
  const std::int64_t count = sum_of(context_.model.units[at(unit)], [&](const int parameter) {
    return context_.model.elements(parameter);
  });
  elements(OpClass::GradientCopyIn, count, Phase::Backward);
  in_flight_[at(unit)] = {
      collective({CollectiveKind::ReduceScatter, unit_bytes(unit) * context_.reduce_scale, -1},
                 kComputeStream)};
}

}  // namespace stepsim
