#include "calibrate/cuda/timing/op_clock.h"

#include <algorithm>

namespace stepsim::cuda {

OpClock::OpClock(const Stream& stream, std::size_t ops) : stream_(stream) {
  resize(ops);
}

void OpClock::resize(std::size_t ops) {
  ops_ = ops;
  begins_.resize(chunk_of(ops - 1) + 1);
  ends_.resize(ops);
}

void OpClock::halve_chunks() {
  constexpr std::size_t kFewest = 8;
  chunk_ = std::max(kFewest, chunk_ / 2);
  resize(ops_);
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
    hold_.hold(stream_, chunk);
    begins_[chunk].record(stream_);
  }
}

void OpClock::op_done(std::size_t op) {
  const bool last = op + 1 == ops_ || begins_chunk(op + 1);
  if (marks_ == Marks::Ops || last) {
    ends_[op].record(stream_);
  }
  if (op > 0 && last) {
    hold_.release(chunk_of(op));
  }
}

std::vector<double> OpClock::op_seconds() const {
  std::vector<double> seconds = {seconds_between(collate_begin_, ends_[0])};
  for (std::size_t op = 1; op < ops_; ++op) {
    const Event& from = begins_chunk(op) ? begins_[chunk_of(op)] : ends_[op - 1];
    seconds.push_back(seconds_between(from, ends_[op]));
  }
  return seconds;
}

std::vector<double> OpClock::chunk_seconds() const {
  std::vector<double> seconds;
  for (std::size_t chunk = 0; chunk < begins_.size(); ++chunk) {
    const std::size_t last = std::min(ops_ - 1, (chunk + 1) * chunk_);
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
