#include <algorithm>

#include "sim/predict/priced_run.h"

namespace stepsim {
namespace {

/// Lays the ops of one rank's plain step out in time, as the spans they were folded to do.
class OpWriter {
 public:
  OpWriter(std::int32_t rank, SimTime host, SimTime device, Duration launch, StepTimeline& step)
      : rank_(rank), host_(host), device_(device), launch_(launch), step_(step) {}

  void work(Phase phase, std::int32_t label, Duration duration) {
    const SimTime begin = std::max(device_, host_ + launch_);
    device_ = begin + duration;
    add(phase, label, begin, device_);
    host_ += launch_;
  }

  /// The batch is there.
  void data(SimTime time) {
    add(Phase::Data, -1, device_, time);
    skip_to(time);
  }
  /// The device waits for something else than its work.
  void skip_to(SimTime time) { device_ = std::max(device_, time); }

  [[nodiscard]] SimTime host() const { return host_; }
  void host_waits_for_device() { host_ = device_; }

 private:
  void add(Phase phase, std::int32_t label, SimTime begin, SimTime end) {
    if (end > begin) {
      step_.spans.push_back({rank_, label, kComputeStream, phase, begin, end, host_});
    }
  }

  std::int32_t rank_;
  SimTime host_;
  SimTime device_;
  Duration launch_;
  StepTimeline& step_;
};

}  // namespace

StepTimeline StepSimulator::next_with_ops() {
  const std::vector<RankClock> clocks = clocks_;
  const auto step = static_cast<std::size_t>(step_);
  StepTimeline timeline = next();
  if (run_.plain_) {
    name_buckets(step, timeline);
    for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
      add_plain_ops(step, rank, clocks[rank], timeline);
    }
  }
  return timeline;
}

/// What the engine says of its collectives.
void StepSimulator::name_buckets(std::size_t step, StepTimeline& timeline) const {
  const std::vector<Bucket>& buckets = step == 0 ? run_.buckets_.initial : run_.buckets_.rebuilt;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    timeline.reduce_names.emplace_back(name_of(CollectiveKind::AllReduce));
    timeline.reduce_bytes.push_back(
        static_cast<double>(bucket_bytes(buckets[b], run_.ddp_model_.parameters)));
    timeline.reduce_buckets.push_back(static_cast<int>(b));
  }
}

void StepSimulator::add_plain_ops(std::size_t step,
                                  std::size_t rank,
                                  const RankClock& clock,
                                  StepTimeline& timeline) {
  const BucketCosts& buckets = step == 0 ? run_.initial_ : run_.rebuilt_;
  const std::size_t batch = step * timeline.ranks.size() + rank;
  const bool host_is_device = run_.profile_.host_is_device;
  const RankOps ops = run_.model_->rank_ops(*run_.batches_[batch],
                                            buckets,
                                            draw_rank_factor(static_cast<int>(rank)),
                                            run_.batch_factor_[batch]);
  RankTimeline& times = timeline.ranks[rank];
  const SimTime host = host_is_device ? std::max(clock.host, clock.device) : clock.host;
  const Duration data = run_.differs_by(Change::NoData) ? Duration::zero() : ops.data;
  OpWriter writer(static_cast<std::int32_t>(rank), host + data, times.start, ops.launch, timeline);
  writer.data(times.data_end);
  for (const OpWork& op : ops.forward) {
    writer.work(Phase::Forward, op.label, op.work);
  }
  std::size_t bucket = 0;
  for (std::size_t i = 0; i < ops.backward.size(); ++i) {
    writer.work(Phase::Backward, ops.backward[i].label, ops.backward[i].work);
    for (; bucket < buckets.launch_after.size() && buckets.launch_after[bucket] == i; ++bucket) {
      times.enqueued_at.push_back(writer.host());
    }
  }
  for (std::size_t b = 0; b < timeline.reduce_end.size(); ++b) {
    writer.skip_to(timeline.reduce_end[b]);
    if (host_is_device) {
      writer.host_waits_for_device();
    }
    for (const Duration work : ops.copy_out[b]) {
      writer.work(Phase::CopyOut, -1, work);
    }
  }
  writer.work(Phase::Optimizer, -1, ops.optimizer);
}

}  // namespace stepsim
