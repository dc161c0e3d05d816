#include "tests/sim/parallel/ddp/step_program.h"

#include <cstddef>
#include <utility>

namespace stepsim {

namespace {

enum Mark : std::int32_t { kStart, kDataEnd, kForwardEnd, kBackwardEnd, kMarks };

/// Writes one rank's instructions.
class Writer {
 public:
  explicit Writer(std::vector<Instruction>& out, std::size_t expected) : out_(out) {
    out_.reserve(expected);
  }

  void mark(Mark mark) {
    Instruction in;
    in.kind = Opcode::Mark;
    in.index = mark;
    out_.push_back(in);
  }

  void host(Duration busy) {
    Instruction in;
    in.host = busy;
    out_.push_back(in);
  }

  /// C' = max(C + device, H + critical), H' = H + host.
  void span(const Span& span, Phase phase) {
    Instruction in;
    in.kind = Opcode::Work;
    in.phase = phase;
    in.host = span.host;
    in.latency = span.critical - span.device;
    in.work = span.device;
    out_.push_back(in);
  }

  void collective(Opcode kind, std::size_t bucket) {
    Instruction in;
    in.kind = kind;
    in.phase = Phase::Wait;
    in.index = static_cast<std::int32_t>(bucket);
    out_.push_back(in);
  }

  void host_sync() {
    Instruction in;
    in.kind = Opcode::HostSync;
    out_.push_back(in);
  }

 private:
  std::vector<Instruction>& out_;
};

void write_rank(const RankStep& work, bool host_is_device, std::vector<Instruction>& out) {
  const std::size_t buckets = work.copy_out.size();
  Writer write(out, 5 * buckets + 10);
  write.mark(kStart);
  if (host_is_device) {
    write.host_sync();
  }
  write.host(work.data);
  write.span({}, Phase::Data);
  write.mark(kDataEnd);
  write.span(work.forward, Phase::Forward);
  write.mark(kForwardEnd);
  for (std::size_t b = 0; b < buckets; ++b) {
    write.span(work.backward[b], Phase::Backward);
    write.collective(Opcode::Collective, b);
  }
  write.span(work.backward[buckets], Phase::Backward);
  write.mark(kBackwardEnd);
  for (std::size_t b = 0; b < buckets; ++b) {
    write.collective(Opcode::StreamWait, b);
    if (host_is_device) {
      write.host_sync();
    }
    write.span(work.copy_out[b], Phase::CopyOut);
  }
  write.span(work.optimizer, Phase::Optimizer);
  if (host_is_device) {
    write.host_sync();
  }
}

RankTimeline timeline_of(const RankTrace& rank) {
  const auto part = [&](Phase which) { return rank.phases[static_cast<std::size_t>(which)]; };
  RankTimeline line;
  line.start = rank.marks[kStart];
  line.data_end = rank.marks[kDataEnd];
  line.forward_end = rank.marks[kForwardEnd];
  line.backward_end = rank.marks[kBackwardEnd];
  line.compute_end = line.backward_end;
  line.end = rank.device_end;
  line.exposed = part(Phase::Wait);
  line.waiting = rank.waiting_for_ranks;
  line.copy_out = part(Phase::CopyOut);
  line.optimizer = part(Phase::Optimizer);
  return line;
}

}  // namespace

Program step_program(const StepInput& input) {
  check(input);
  Program program;
  program.marks = kMarks;
  for (const Duration transfer : input.all_reduce) {
    program.collectives.push_back({0, transfer, 0, -1});
  }
  program.ranks.resize(input.ranks.size());
  for (std::size_t r = 0; r < input.ranks.size(); ++r) {
    write_rank(input.ranks[r], input.host_is_device, program.ranks[r]);
  }
  return program;
}

StepTimeline play_step(const StepInput& input, Engine& engine, bool record_spans) {
  const ExecutionTrace played = engine.play(step_program(input), record_spans);
  StepTimeline step;
  step.waits = played.waits;
  step.clocks = engine.clocks();
  for (const RankTrace& rank : played.ranks) {
    step.ranks.push_back(timeline_of(rank));
  }
  for (const CollectiveTrace& collective : played.collectives) {
    step.reduce_start.push_back(collective.start);
    step.reduce_end.push_back(collective.end);
    for (std::size_t r = 0; r < step.ranks.size(); ++r) {
      step.ranks[r].ready_at.push_back(collective.arrival[r]);
    }
  }
  return step;
}

}  // namespace stepsim
