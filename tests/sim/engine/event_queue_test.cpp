#include "sim/engine/event_queue.h"

#include <algorithm>
#include <random>
#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>

using namespace stepsim;

namespace {

SimTime at(std::uint64_t ns) {
  return SimTime(Duration(static_cast<std::int64_t>(ns)));
}

bool earlier(const Event& a, const Event& b) {
  return a.time < b.time;
}

}  // namespace

TEST_CASE("events come out as a stable sort by time puts them") {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 generator(seed);
    const std::uint64_t times = 1 + generator() % 6;  // Few distinct times: many ties.
    std::vector<Event> expected;
    EventQueue queue;
    for (std::uint64_t i = 0; i < generator() % 80; ++i) {
      const SimTime time = at(generator() % times);
      expected.push_back({time, i, 1, 2, static_cast<std::int32_t>(i)});
      queue.push(time, 1, 2, static_cast<std::int32_t>(i));
    }
    std::stable_sort(expected.begin(), expected.end(), earlier);
    for (const Event& event : expected) {
      const Event popped = queue.pop();
      REQUIRE(popped.time == event.time);
      REQUIRE(popped.index == event.index);
      REQUIRE(popped.kind == 1);
      REQUIRE(popped.rank == 2);
      REQUIRE(queue.now() == event.time);
    }
    REQUIRE(queue.empty());
    REQUIRE(queue.events_handled() == expected.size());
  }
}

TEST_CASE("interleaved pushes and pops keep the order of a list that is stably sorted anew") {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 generator(seed);
    std::vector<Event> list;
    EventQueue queue;
    std::int32_t pushed = 0;
    for (int turn = 0; turn < 120; ++turn) {
      if (list.empty() || generator() % 5 < 3) {
        const SimTime time = queue.now() + Duration(static_cast<std::int64_t>(generator() % 3));
        list.push_back({time, 0, 0, 0, pushed});
        queue.push(time, 0, 0, pushed);
        ++pushed;
      } else {
        std::stable_sort(list.begin(), list.end(), earlier);
        const Event popped = queue.pop();
        REQUIRE(popped.time == list.front().time);
        REQUIRE(popped.index == list.front().index);
        list.erase(list.begin());
      }
      REQUIRE(queue.size() == list.size());
    }
  }
}

TEST_CASE("an event at now() is taken and one before it is refused") {
  EventQueue queue(at(5));
  CHECK_THROWS_AS(queue.push(at(4), 0, 0, 0), std::logic_error);
  CHECK_NOTHROW(queue.push(at(5), 0, 0, 0));
  CHECK(queue.pop().time == at(5));
}

TEST_CASE("an empty queue has nothing to pop") {
  EventQueue queue;
  CHECK_THROWS_AS((void)queue.pop(), std::logic_error);
}
