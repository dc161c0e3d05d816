#pragma once

#include <vector>

#include "sim/predict/draws/lane_queue.h"
#include "sim/predict/draws/lane_schedule.h"
#include "sim/predict/draws/lane_work.h"

namespace stepsim {

/// What happens to one rank in a step, in each lane.
struct LaneRank {
  LaneTimes host;                  ///< [lane] The clocks; they go on from step to step.
  std::vector<LaneTimes> streams;  ///< [stream][lane]
  std::vector<LaneQueue> queues;   ///< [stream] Empty: they hold whatever is launched.
  std::vector<LaneTimes> events;   ///< [LaneSchedule::place_of_event()][lane]
  std::vector<LaneTimes> marks;    ///< [mark][lane]
  std::vector<LaneTimes> phases;   ///< [phase][draw] In the first run of each draw.
  LaneTimes waiting;               ///< [draw]
  LaneWork work;
};

}  // namespace stepsim
