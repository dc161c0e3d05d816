#include "sim/parallel/step_schedule.h"

#include <algorithm>
#include <utility>

namespace stepsim {
namespace {

/// Reads the instructions of one rank from the first to the last; every member takes what it
/// expects next and leaves the rest.
class ScheduleReader {
 public:
  ScheduleReader(const StepProgram& program, const StepHost& host)
      : program_(program), host_(host), rest_(program.program.ranks.front()) {}

  std::optional<StepSchedule> read() {
    schedule_.collectives = program_.uses;
    const bool before = take(Opcode::Mark, kStepStart) && take_host_sync() && take_batch() &&
                        take(Opcode::Mark, kDataEnd);
    if (!before) {
      return std::nullopt;
    }
    take_work(Phase::Forward, schedule_.forward);
    if (!take(Opcode::Mark, kForwardEnd) || !take_backward() || !take(Opcode::Mark, kBackwardEnd) ||
        !take_copy_outs()) {
      return std::nullopt;
    }
    take_work(Phase::Optimizer, schedule_.optimizer);
    return take_host_sync() && next_ == rest_.size() ? std::optional(std::move(schedule_))
                                                     : std::nullopt;
  }

 private:
  /// Whether the next instruction is of that kind, on the compute stream, and takes no time.
  [[nodiscard]] bool is_next(Opcode kind) const {
    if (next_ == rest_.size()) {
      return false;
    }
    const Instruction& in = rest_[next_];
    const Duration none = Duration::zero();
    return in.kind == kind && in.stream == kComputeStream && in.host == none &&
           in.latency == none && in.work == none;
  }

  bool take(Opcode kind, std::int32_t index = -1) {
    const bool taken = is_next(kind) && rest_[next_].index == index;
    next_ += taken ? 1 : 0;
    return taken;
  }

  /// A host that computes waits for the device before and after the step, any other one never.
  bool take_host_sync() { return !host_.is_device || take(Opcode::HostSync); }

  /// The batch is built on the host, and the device waits for it.
  bool take_batch() {
    return take(Opcode::Host) && is_next(Opcode::Work) && rest_[next_].phase == Phase::Data &&
           take(Opcode::Work);
  }

  /// All work of a phase that comes next, as long as it says what work it is.
  void take_work(Phase phase, std::vector<std::int32_t>& work) {
    while (is_next(Opcode::Work) && rest_[next_].phase == phase && rest_[next_].label >= 0) {
      work.push_back(rest_[next_++].label);
      ++schedule_.kernels;
    }
  }

  /// Backward work up to the launch of each bucket, in the order of the buckets.
  bool take_backward() {
    const auto buckets = static_cast<std::int32_t>(schedule_.collectives.size());
    for (std::int32_t bucket = 0; bucket < buckets; ++bucket) {
      const CollectiveUse& use = schedule_.collectives[static_cast<std::size_t>(bucket)];
      const Collective& collective = program_.program.collectives[static_cast<std::size_t>(bucket)];
      take_work(Phase::Backward, schedule_.backward.emplace_back());
      if (use.kind != CollectiveKind::AllReduce || use.bucket != bucket ||
          collective.communicator != 0 || !take(Opcode::Collective, bucket)) {
        return false;
      }
    }
    take_work(Phase::Backward, schedule_.backward.emplace_back());
    return true;
  }

  bool take_copy_outs() {
    const auto buckets = static_cast<std::int32_t>(schedule_.collectives.size());
    for (std::int32_t bucket = 0; bucket < buckets; ++bucket) {
      if (!take(Opcode::StreamWait, bucket)) {
        return false;
      }
      take_work(Phase::CopyOut, schedule_.copy_out.emplace_back());
    }
    return true;
  }

  const StepProgram& program_;
  const StepHost& host_;
  const std::vector<Instruction>& rest_;
  std::size_t next_ = 0;
  StepSchedule schedule_;
};

}  // namespace

std::optional<StepSchedule> schedule_of(const StepProgram& program, const StepHost& host) {
  return ScheduleReader(program, host).read();
}

}  // namespace stepsim
