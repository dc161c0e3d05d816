#include "sim/engine/event_queue.h"

#include <algorithm>
#include <stdexcept>

namespace stepsim {

namespace {

/// std:: heaps keep the largest in front, so the heap's order is "happens later".
struct Later {
  bool operator()(const Event& a, const Event& b) const {
    return a.time != b.time ? a.time > b.time : a.number > b.number;
  }
};

}  // namespace

EventQueue::EventQueue(SimTime start) : now_(start) {}

void EventQueue::push(SimTime time,
                      std::int32_t kind,
                      std::int32_t rank,
                      std::int32_t index,
                      std::int32_t generation) {
  if (time < now_) {
    throw std::logic_error("EventQueue: an event before now()");
  }
  heap_.push_back({time, next_number_++, kind, rank, index, generation});
  std::push_heap(heap_.begin(), heap_.end(), Later{});
}

Event EventQueue::pop() {
  if (heap_.empty()) {
    throw std::logic_error("EventQueue: pop of an empty queue");
  }
  std::pop_heap(heap_.begin(), heap_.end(), Later{});
  const Event earliest = heap_.back();
  heap_.pop_back();
  now_ = earliest.time;
  ++handled_;
  return earliest;
}

}  // namespace stepsim
