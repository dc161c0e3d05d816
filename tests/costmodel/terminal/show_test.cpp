#include "costmodel/terminal/show.h"

#include <doctest/doctest.h>

#include "costmodel/terminal/paint.h"

using namespace stepsim;

namespace {

Screen terminal(int columns, bool colour = false) {
  Screen screen;
  screen.columns = columns;
  screen.colour = colour;
  return screen;
}

const std::string kLong = "warning: of all the sizes that there are, the profile measured none";

}  // namespace

TEST_CASE("a pipe gets a report as it is") {
  CHECK(shown(kLong + "\n", {}) == kLong + "\n");
}

TEST_CASE("sentences break at blanks on a terminal") {
  CHECK(shown(kLong + "\nend", terminal(40)) ==
        "warning: of all the sizes that there\n"
        "  are, the profile measured none\nend");
  CHECK(shown("peak       " + kLong, terminal(50)) ==
        "peak       warning: of all the sizes that there\n"
        "           are, the profile measured none");
}

TEST_CASE("a command to copy stays on its line") {
  const std::string command =
      "next: stepsim sweep scenario.toml --over ddp.bucket_cap=1MiB..2GiB:x2\n";
  CHECK(shown(command, terminal(40)) == command);
}

TEST_CASE("what is to be copied stays on its line, too") {
  for (const std::string copied :
       {"    loss = loss * step.loss_scale  # in: for batch, step in it\n",
        "      stepsim diff run.jsonl after.jsonl   (did it become so?)\n",
        "  stepcal fit samples.jsonl --out mine.json   (a profile)\n"}) {
    CHECK(shown(copied, terminal(40)) == copied);
  }
  const std::string loop =
      "next: stepsim plan a.toml\n  for i in 1 2 3; do stepsim validate a.toml --live $i; done\n";
  CHECK(shown(loop, terminal(40)) == loop);
  CHECK(shown("next: stepsim run a.toml\n" + kLong, terminal(40)) ==
        "next: stepsim run a.toml\nwarning: of all the sizes that there\n"
        "  are, the profile measured none");
  CHECK(shown("      what is indented by more than that is no code\n", terminal(40)) ==
        "      what is indented by more than\n        that is no code\n");
}

TEST_CASE("labels have colours where a screen has them") {
  CHECK(shown("warning: x\n", terminal(80, true)) == "\x1b[33mwarning:\x1b[0m x\n");
  CHECK(shown("next: stepsim run\n", terminal(80, true)) == "next: \x1b[36mstepsim run\x1b[0m\n");
  CHECK(shown("warning: x\n", terminal(80)) == "warning: x\n");
}

TEST_CASE("control characters of a name are shown, on any screen, beside paint") {
  const std::string name = "a\x1b[31mred\x07\xc2\x9b\xff[2Jz";
  const std::string visible = "a\\x1b[31mred\\x07\\xc2\\x9b\\xff[2Jz";
  CHECK(shown(name + "\n", {}) == visible + "\n");
  CHECK(shown(name, terminal(80)) == visible);
  CHECK(shown(name, terminal(80, true)) == visible);
  const Screen coloured = terminal(80, true);
  CHECK(shown("use " + painted(name, Paint::Strong, coloured), coloured) ==
        "use \x1b[1m" + visible + "\x1b[0m");
}
