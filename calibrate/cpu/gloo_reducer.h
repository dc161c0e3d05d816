#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "calibrate/cpu/device.h"
#include "calibrate/cpu/gloo_group.h"
#include "calibrate/training/gradient_reducer.h"

namespace stepsim {

/// All-reduces buckets in its own thread while the training thread computes on.
///
/// One worker takes the buckets in launch order, so that one collective runs at a time, as on a
/// NCCL stream. (PyTorch's gloo group has two workers. On cores that the ranks fill, two gain
/// nothing in sum, and the collective in front ends later.)
class GlooReducer : public GradientReducer<cpu::Array> {
 public:
  explicit GlooReducer(GlooGroup& group);
  ~GlooReducer() override;
  GlooReducer(const GlooReducer&) = delete;
  GlooReducer& operator=(const GlooReducer&) = delete;

  /// Forgets the times of the step before. All its buckets must have been waited for.
  void start_step();
  void launch(std::size_t bucket, cpu::Array data, std::int64_t elements) override;
  /// Raises EnvironmentFault when a collective has failed.
  void wait(std::size_t bucket) override;
  /// Waits for all ranks. No bucket may be under way.
  void barrier();

  /// When a bucket was launched and when its all-reduce ended, in seconds on the host's clock.
  struct Times {
    double launch = 0;
    double end = 0;
    std::size_t bytes = 0;
  };
  /// [bucket] Valid for buckets that were waited for.
  [[nodiscard]] const std::vector<Times>& times() const { return times_; }

 private:
  struct Job {
    std::size_t bucket;
    std::span<float> data;
  };
  void work();

  GlooGroup& group_;
  unsigned next_tag_ = 0;  ///< The next collective's tag, the same on all ranks.
  std::mutex mutex_;
  std::condition_variable launched_;
  std::condition_variable ended_;
  std::vector<Job> jobs_;      ///< In launch order; kept until the next start_step().
  std::size_t completed_ = 0;  ///< Jobs from the front that have ended.
  std::vector<Times> times_;   ///< [bucket]
  std::exception_ptr error_;
  bool stopping_ = false;
  std::thread worker_;
};

}  // namespace stepsim
