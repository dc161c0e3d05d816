#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "costmodel/base/index.h"
#include "sim/parallel/lockstep.h"

namespace stepsim {

/// [lane] Times in whole nanoseconds. A lane is one run of one draw; whatever is done is done to
/// all lanes in a loop that the compiler turns into vectors. Whole numbers up to kExactTime are
/// exact, and so are their sums and maxima.
using LaneTimes = std::vector<double>;
inline constexpr double kExactTime = 0x1p52;  ///< 52 days.

/// The schedule of a step with the times that it has in each lane.
class LaneSchedule {
 public:
  /// The times of a move: [lane] each. The latency of work includes the work.
  struct Times {
    const double* host;
    const double* latency;
    const double* work;
  };

  /// A schedule without times. `schedule` must outlive this.
  LaneSchedule(const LockstepSchedule& schedule, std::size_t lanes);

  void set(std::size_t lane, const LockstepTimes& times);

  [[nodiscard]] const LockstepSchedule& schedule() const { return *schedule_; }
  [[nodiscard]] Times times(std::size_t move) const {
    return {column(3 * move), column(3 * move + 1), column(3 * move + 2)};
  }
  /// The streams that it uses beside the compute stream.
  [[nodiscard]] const std::vector<std::uint8_t>& side_streams() const { return side_streams_; }
  /// Where an event is kept, which many share one after another; -1: nothing waits for it.
  [[nodiscard]] std::int32_t place_of_event(std::int32_t event) const {
    return place_of_event_[at(event)];
  }
  [[nodiscard]] std::size_t event_places() const { return event_places_; }
  /// Lists the kernels of all stretches, for kernels() and model_kernels(). `model_work`: below it
  /// are the numbers of the model's.
  void list_kernels(std::int32_t model_work);
  [[nodiscard]] const std::vector<std::int32_t>& kernels(std::size_t stretch,
                                                         std::size_t rank) const {
    const std::vector<std::vector<std::int32_t>>& ranks = kernels_[stretch];
    return ranks.size() == 1 ? ranks.front() : ranks[rank];
  }
  /// How many of a micro-batch's kernels are the model's.
  [[nodiscard]] std::size_t model_kernels(std::size_t micro_batch) const {
    return model_kernels_[micro_batch];
  }
  /// [lane] Of a collective of the program, its transfer.
  [[nodiscard]] const double* transfer(std::int32_t collective) const {
    return &transfers_[call_[at(collective)] * lanes_];
  }

 private:
  static constexpr std::int32_t kZero = -1;

  [[nodiscard]] const double* column(std::size_t time) const {
    return columns_[time] == kZero ? zeros_.data() : &values_[at(columns_[time]) * lanes_];
  }
  void set(std::size_t time, std::size_t lane, Duration value);
  void place_events();

  const LockstepSchedule* schedule_;
  std::size_t lanes_;
  LaneTimes zeros_;
  std::vector<std::int32_t> columns_;  ///< [3 move + host, latency or work] kZero in most.
  LaneTimes values_;                   ///< [column][lane]
  std::vector<std::uint8_t> side_streams_;
  std::vector<std::int32_t> place_of_event_;
  std::size_t event_places_ = 0;
  /// [stretch][rank] One list where all ranks do the same.
  std::vector<std::vector<std::vector<std::int32_t>>> kernels_;
  std::vector<std::size_t> model_kernels_;  ///< [micro-batch]
  std::vector<std::size_t> call_;  ///< [collective of the program] its number among the calls.
  LaneTimes transfers_;            ///< [in the order of the calls][lane]
};

}  // namespace stepsim
