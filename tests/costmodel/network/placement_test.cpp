#include "costmodel/network/placement.h"

#include <doctest/doctest.h>

#include "tests/costmodel/helpers.h"

namespace stepsim {
namespace {

using test::error_of;

TEST_CASE("ranks fill nodes in order, and the last node may be partly filled") {
  CHECK(Placement::filled(4, 0) == Placement({4}));
  CHECK(Placement::filled(4, 2) == Placement({2, 2}));
  CHECK(Placement::filled(4, 3) == Placement({3, 1}));
  CHECK(Placement::filled(2, 8) == Placement({2}));
  const Placement placement({1, 2, 4});
  CHECK(placement.ranks() == 7);
  CHECK(placement.nodes() == 3);
  CHECK(placement.fullest() == 4);
  CHECK_FALSE(placement.is_even());
  const std::vector<int> nodes = {0, 1, 1, 2, 2, 2, 2};
  for (int rank = 0; rank < 7; ++rank) {
    CHECK(placement.node_of(rank) == nodes[static_cast<std::size_t>(rank)]);
  }
  CHECK(placement.first(2) == Placement({1, 1}));
  CHECK(placement.first(7) == placement);
}

TEST_CASE("a placement's text is short and reads back") {
  for (const char* text : {"1", "4", "2x1", "1+2+4", "2x8", "16x4"}) {
    CHECK(text_of(parse_placement(text)) == text);
  }
  CHECK(parse_placement("1+1") == Placement({1, 1}));
  CHECK(text_of(Placement({8, 8})) == "2x8");
}

TEST_CASE("what is no placement is refused") {
  for (const char* text : {"", "0", "1+", "+1", "2x", "x2", "1+0", "-1", "1,2", "70000", "2.5"}) {
    CAPTURE(text);
    CHECK(error_of([&] { (void)parse_placement(text); }).find("is no placement") !=
          std::string::npos);
  }
  CHECK(error_of([] { (void)parse_placement("1000x1000"); }) ==
        "a placement of 1000000 ranks; expected at most 65536");
}

}  // namespace
}  // namespace stepsim
