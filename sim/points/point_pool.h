#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "sim/points/point_runner.h"

namespace stepsim {

/// A point with its number in the round.
struct PointTask {
  std::size_t number = 0;
  std::string point;
};

/// What became of a task.
struct PointOutcome {
  PointTask task;
  bool failed = false;
  std::string text;  ///< The result, or why there is none.
};

/// Threads that compute points while their owner exchanges messages.
class PointPool {
 public:
  /// `answer` must outlive the pool.
  PointPool(int threads, const PointAnswer& answer);
  /// Waits for the points under way; those that no thread has begun are left.
  ~PointPool();
  PointPool(const PointPool&) = delete;
  PointPool& operator=(const PointPool&) = delete;

  [[nodiscard]] int threads() const { return static_cast<int>(threads_.size()); }
  void give(PointTask task);
  /// Returns the outcomes since the last call. Where there is none, waits for one a moment, about
  /// as long as a message takes.
  [[nodiscard]] std::vector<PointOutcome> outcomes();

 private:
  void work();

  const PointAnswer& answer_;
  std::mutex mutex_;
  std::condition_variable given_;
  std::condition_variable done_;
  std::deque<PointTask> tasks_;
  std::vector<PointOutcome> outcomes_;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace stepsim
