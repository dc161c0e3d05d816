#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "costmodel/base/units.h"

namespace stepsim {

/// What happens at a point of simulated time; plain data, interpreted by the simulator's switch.
struct Event {
  SimTime time;
  std::uint64_t number = 0;  ///< Insertion number: ties are first in, first out.
  std::int32_t kind = 0;
  std::int32_t rank = 0;
  std::int32_t index = 0;
  std::int32_t generation = 0;  ///< Tells an event that was overtaken by a change of rate.
};

/// Binary heap by (time, insertion number); owns the simulated now().
class EventQueue {
 public:
  explicit EventQueue(SimTime start = SimTime{});
  [[nodiscard]] bool empty() const { return heap_.empty(); }
  [[nodiscard]] std::size_t size() const { return heap_.size(); }
  [[nodiscard]] SimTime now() const { return now_; }
  [[nodiscard]] std::uint64_t events_handled() const { return handled_; }

  /// `time` must not lie before now().
  void push(SimTime time,
            std::int32_t kind,
            std::int32_t rank,
            std::int32_t index,
            std::int32_t generation = 0);
  /// Earliest event; advances now().
  [[nodiscard]] Event pop();

 private:
  std::vector<Event> heap_;
  SimTime now_;
  std::uint64_t next_number_ = 0;
  std::uint64_t handled_ = 0;
};

}  // namespace stepsim
