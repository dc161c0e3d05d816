#include "calibrate/cpu/gloo_reducer.h"

#include <algorithm>

#include "calibrate/training/clock.h"

namespace stepsim {

GlooReducer::GlooReducer(GlooGroup& group) : group_(group), worker_([this] { work(); }) {}

GlooReducer::~GlooReducer() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  launched_.notify_one();
  worker_.join();
}

void GlooReducer::start_step() {
  const std::lock_guard<std::mutex> lock(mutex_);
  jobs_.clear();
  completed_ = 0;
  times_.clear();
}

void GlooReducer::launch(std::size_t bucket, cpu::Array data, std::int64_t elements) {
  const std::span<float> floats(data.data, static_cast<std::size_t>(elements));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    times_.resize(std::max(times_.size(), bucket + 1));
    times_[bucket] = {clock_seconds(), 0, floats.size_bytes()};
    jobs_.push_back({bucket, floats});
  }
  launched_.notify_one();
}

void GlooReducer::wait(std::size_t bucket) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto is_bucket = [bucket](const Job& job) { return job.bucket == bucket; };
  ended_.wait(lock, [&] {
    const auto ended = jobs_.begin() + static_cast<std::ptrdiff_t>(completed_);
    return error_ != nullptr || std::find_if(jobs_.begin(), ended, is_bucket) != ended;
  });
  if (error_ != nullptr) {
    std::rethrow_exception(error_);
  }
}

void GlooReducer::barrier() {
  group_.barrier(next_tag_++);
}

void GlooReducer::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    launched_.wait(lock, [this] { return stopping_ || completed_ < jobs_.size(); });
    if (stopping_) {
      return;
    }
    const Job job = jobs_[completed_];
    const unsigned tag = next_tag_++;
    lock.unlock();
    try {
      group_.all_reduce(job.data.data(), job.data.size(), tag);
      lock.lock();
    } catch (...) {
      lock.lock();
      error_ = std::current_exception();
      ended_.notify_all();
      return;
    }
    times_[job.bucket].end = clock_seconds();
    ++completed_;
    ended_.notify_all();
  }
}

}  // namespace stepsim
