#include <vector>

#include <doctest/doctest.h>

#include "sim/engine/engine.h"

using namespace stepsim;

TEST_CASE("a host that waits until a time pays its own call, whichever is later") {
  const auto fetched = [](Duration before, Duration call, SimTime until) {
    Instruction busy;
    busy.host = before;
    Instruction fetch;
    fetch.kind = Opcode::HostUntil;
    fetch.host = call;
    fetch.until = until;
    Program program;
    program.ranks = {{busy, fetch}};
    Engine engine({}, std::vector<RankClock>(1));
    return engine.play(program).ranks.at(0).fetches.at(0);
  };
  CHECK(fetched(Duration(4), Duration(3), SimTime(Duration(5))) == SimTime(Duration(7)));
  CHECK(fetched(Duration(4), Duration(3), SimTime(Duration(9))) == SimTime(Duration(9)));
}
