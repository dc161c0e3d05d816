#include "sim/parallel/rank_program.h"

#include <algorithm>

#include "costmodel/base/index.h"

namespace stepsim {

int CollectiveLog::issue(std::size_t n,
                         int rank,
                         const CollectiveUse& use,
                         const RankGroup& among) {
  const int group = among.of(rank);
  if (n == issued_.size()) {
    issued_.emplace_back();
  }
  std::vector<int>& ids = issued_[n];
  ids.resize(std::max(ids.size(), at(group) + 1), -1);
  if (ids[at(group)] < 0) {
    Collective collective;
    collective.communicator = among.communicator + group;
    collective.transfer = prices_.transfer(use.kind, use.bytes, among);
    collective.channels = prices_.channels(use.bytes);
    ids[at(group)] = static_cast<int>(program_.program.collectives.size());
    program_.program.collectives.push_back(collective);
    program_.uses.push_back(use);
  }
  return ids[at(group)];
}

RankProgram::RankProgram(const StepHost& host,
                         const StepPrices& prices,
                         const StepWork& step,
                         CollectiveLog& log,
                         StepProgram& program,
                         int rank)
    : host_(host),
      prices_(prices),
      log_(log),
      program_(program.program),
      out_(program.program.ranks[at(rank)]),
      rank_(rank),
      work_(step.ranks[at(rank)]) {}

void RankProgram::mark(StepMark mark) {
  Instruction in;
  in.kind = Opcode::Mark;
  in.index = mark;
  if (mark == kForwardEnd) {
    other_ = Phase::BackwardOther;
  }
  out_.push_back(in);
}

void RankProgram::host(Duration busy) {
  if (busy == Duration::zero()) {
    return;
  }
  Instruction in;
  in.phase = other_;
  if (host_.is_device) {
    in.kind = Opcode::Work;
    in.work = busy;
  } else {
    in.host = busy;
  }
  out_.push_back(in);
}

void RankProgram::kernel(const Kernel& kernel, Phase phase, std::uint8_t stream) {
  Instruction& in = out_.emplace_back();
  in.kind = Opcode::Work;
  in.stream = stream;
  in.phase = phase == Phase::Other && stream == kComputeStream ? other_ : phase;
  in.bound = kernel.bound;
  in.blocks = kernel.blocks;
  in.label = kernel.label;
  in.work = kernel.work;
  if (!host_.is_device) {
    in.host = kernel.launch;
    in.latency = kernel.launch;
  }
}

void RankProgram::memory(double bytes, Phase phase, std::uint8_t stream, std::int32_t label) {
  Kernel pass = prices_.memory(bytes, work_.factor);
  pass.label = pass.label < 0 ? label : pass.label;
  kernel(pass, phase, stream);
}

void RankProgram::elements(OpClass op_class, std::int64_t count, Phase phase, std::uint8_t stream) {
  kernel(prices_.elements(op_class, count, work_.factor), phase, stream);
}

int RankProgram::collective(const CollectiveUse& use, std::uint8_t stream, const RankGroup& group) {
  if (host_.is_device) {
    host(prices_.enqueue);
  }
  Instruction in;
  in.kind = Opcode::Collective;
  in.stream = stream;
  in.index = log_.issue(issued_++, rank_, use, group);
  if (!host_.is_device) {
    in.host = prices_.enqueue;
    in.latency = prices_.enqueue;
  }
  out_.push_back(in);
  return in.index;
}

void RankProgram::stream_wait(int collective, std::uint8_t stream) {
  Instruction in;
  in.kind = Opcode::StreamWait;
  in.stream = stream;
  in.phase = Phase::Wait;
  in.index = collective;
  out_.push_back(in);
}

void RankProgram::wait(int collective) {
  if (host_.waits_for_collectives && !host_.is_device) {
    Instruction in;
    in.kind = Opcode::HostWait;
    in.index = collective;
    out_.push_back(in);
  }
  stream_wait(collective);
}

void RankProgram::host_sync(std::uint8_t stream) {
  Instruction in;
  in.kind = Opcode::HostSync;
  in.stream = stream;
  in.latency = host_.is_device ? Duration::zero() : prices_.sync;
  out_.push_back(in);
}

int RankProgram::record(std::uint8_t stream) {
  Instruction in;
  in.kind = Opcode::Record;
  in.stream = stream;
  in.index = events_++;
  program_.events = std::max(program_.events, events_);
  out_.push_back(in);
  return in.index;
}

void RankProgram::event_wait(int event, Phase phase, std::uint8_t stream) {
  Instruction in;
  in.kind = Opcode::EventWait;
  in.stream = stream;
  in.phase = phase;
  in.index = event;
  out_.push_back(in);
}

void RankProgram::host_event_wait(int event) {
  Instruction in;
  in.kind = Opcode::HostEvent;
  in.index = event;
  in.latency = prices_.sync;
  out_.push_back(in);
}

void RankProgram::data(const MicroBatchWork& batch) {
  other_ = Phase::Other;
  if (host_.is_device) {
    host_sync();
  }
  if (batch.ready) {
    Instruction in;
    in.kind = Opcode::HostUntil;
    in.until = *batch.ready;
    out_.push_back(in);
  }
  Instruction collate;
  collate.host = batch.collate;
  out_.push_back(collate);
  // The device goes on when the batch is there: a batch is built on the host in either case.
  Kernel copy = batch.copy_input;
  copy.bound = Bound::Unaffected;
  kernel(copy, Phase::Data);
}

void RankProgram::end_step() {
  if (host_.is_device || host_.syncs_each_step) {
    host_sync();
  }
}

}  // namespace stepsim
