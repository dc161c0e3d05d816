#include "sim/points/point_pool.h"

#include <chrono>
#include <exception>
#include <utility>

namespace stepsim {

PointPool::PointPool(int threads, const PointAnswer& answer) : answer_(answer) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { work(); });
  }
}

PointPool::~PointPool() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  given_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void PointPool::give(PointTask task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  given_.notify_one();
}

std::vector<PointOutcome> PointPool::outcomes() {
  constexpr std::chrono::microseconds kMoment(100);
  std::unique_lock lock(mutex_);
  done_.wait_for(lock, kMoment, [this] { return !outcomes_.empty(); });
  return std::exchange(outcomes_, {});
}

void PointPool::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    given_.wait(lock, [this] { return ends_ || !tasks_.empty(); });
    if (ends_) {
      return;
    }
    PointOutcome outcome;
    outcome.task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    try {
      outcome.text = answer_(outcome.task.point);
    } catch (const std::exception& error) {
      outcome.failed = true;
      outcome.text = error.what();
    }
    lock.lock();
    outcomes_.push_back(std::move(outcome));
    done_.notify_one();
  }
}

}  // namespace stepsim
