#include "calibrate/cuda/timing/op_clock.h"

#include <algorithm>
#include <utility>

#include "calibrate/cuda/timing/launch_queue.h"

namespace stepsim::cuda {

OpClock::OpClock(const Stream& stream, std::vector<int> launches, std::function<void()> at_work)
    : stream_(stream), at_work_(std::move(at_work)), most_(kQueued) {
  resize(std::move(launches));
}

void OpClock::resize(std::vector<int> launches) {
  launches_ = std::move(launches);
  divide();
}

void OpClock::halve_chunks() {
  most_ = std::max(kQueued / 16, most_ / 2);
  divide();
}

void OpClock::divide() {
  constexpr int kOfHold = 2;  // Its kernel, and the event behind it.
  chunks_.clear();
  chunk_of_.assign(ops(), 0);
  for (std::size_t op = 1; op < ops(); ++op) {
    const int queued = launches_[op] + 1;
    if (chunks_.empty() || chunks_.back().queued + queued > most_) {
      chunks_.push_back({op, kOfHold});
    }
    chunks_.back().queued += queued;
    chunk_of_[op] = chunks_.size() - 1;
  }
  begins_.resize(chunks_.size());
  ends_.resize(ops());
}

void OpClock::start(Marks marks) {
  marks_ = marks;
  hold_.start(begins_.size());
}

void OpClock::op_begin(std::size_t op) {
  if (op == 0) {
    collate_begin_.record(stream_);
  } else if (begins_chunk(op)) {
    const std::size_t chunk = chunk_of(op);
    if (chunks_[chunk].queued <= kQueued) {
      hold_.hold(stream_, chunk);
    }
    begins_[chunk].record(stream_);
  }
}

void OpClock::op_done(std::size_t op) {
  const bool last = op + 1 == ops() || begins_chunk(op + 1);
  if (marks_ == Marks::Ops || last) {
    ends_[op].record(stream_);
  }
  if (op > 0 && last) {
    hold_.release(chunk_of(op));
    at_work_();
  }
}

std::vector<double> OpClock::op_seconds() const {
  std::vector<double> seconds = {seconds_between(collate_begin_, ends_[0])};
  for (std::size_t op = 1; op < ops(); ++op) {
    const Event& from = begins_chunk(op) ? begins_[chunk_of(op)] : ends_[op - 1];
    seconds.push_back(seconds_between(from, ends_[op]));
  }
  return seconds;
}

std::vector<double> OpClock::chunk_seconds() const {
  std::vector<double> seconds;
  for (std::size_t chunk = 0; chunk < begins_.size(); ++chunk) {
    const std::size_t last = chunk + 1 < chunks_.size() ? chunks_[chunk + 1].first - 1 : ops() - 1;
    seconds.push_back(seconds_between(begins_[chunk], ends_[last]));
  }
  return seconds;
}

std::vector<double> OpClock::scaled(std::vector<double> ops,
                                    const std::vector<double>& chunks) const {
  std::vector<double> sums(chunks.size(), 0.0);
  for (std::size_t op = 1; op < ops.size(); ++op) {
    sums[chunk_of(op)] += ops[op];
  }
  for (std::size_t op = 1; op < ops.size(); ++op) {
    const std::size_t chunk = chunk_of(op);
    ops[op] *= sums[chunk] > 0 ? chunks[chunk] / sums[chunk] : 1.0;
  }
  return ops;
}

}  // namespace stepsim::cuda
