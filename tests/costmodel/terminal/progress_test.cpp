#include "costmodel/terminal/progress.h"

#include <array>

#include <doctest/doctest.h>

using namespace stepsim;

namespace {

/// A progress line in memory, under a clock that the test sets.
struct Line {
  explicit Line(bool terminal) {
    if (terminal) {
      screen.columns = 80;
      screen.redraws = true;
    }
  }
  ~Line() { std::fclose(file); }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  [[nodiscard]] std::string text() const {
    std::rewind(file);
    std::array<char, 1000> buffer{};
    return {buffer.data(), std::fread(buffer.data(), 1, buffer.size(), file)};
  }

  std::FILE* file = std::tmpfile();
  Screen screen;
  double now = 100;
};

}  // namespace

TEST_CASE("a job of two seconds or less has no line") {
  Line line(true);
  Progress progress("sweeping", line.file, line.screen, [&] { return line.now; });
  for (const double share : {0.1, 0.5, 0.9}) {
    line.now = 100 + 1.5 * share;
    progress.at(share);
  }
  progress.done();
  CHECK(line.text().empty());
}

TEST_CASE("a longer one shows how far it is and when it ends, and leaves nothing behind") {
  Line line(true);
  {
    Progress progress("sweeping", line.file, line.screen, [&] { return line.now; });
    line.now = 100.9;
    progress.at(0.1);
    CHECK(line.text().empty());
    line.now = 110;
    progress.at(0.25);
    CHECK(line.text() == "\r\x1b[Ksweeping  #####                 25 %, about 30 s left");
    line.now = 200;
    progress.at(0.25, 150);
    CHECK(line.text().find("25 %, about 2:30 min left") != std::string::npos);
  }
  CHECK(line.text().ends_with("left\r\x1b[K"));
}

TEST_CASE("what has hardly begun says how long it has taken, and not that it takes for days") {
  Line line(true);
  Progress progress("searching 5000 points", line.file, line.screen, [&] { return line.now; });
  line.now = 160;
  progress.at(2.0 / 5000);  // By the time so far 41 hours are left.
  CHECK(line.text().find("0 %, 1:00 min so far") != std::string::npos);
  CHECK(line.text().find("left") == std::string::npos);
}

TEST_CASE("work of unknown size shows how long it has taken") {
  Line line(true);
  Progress progress("reading 1 trace", line.file, line.screen, [&] { return line.now; });
  line.now = 103.5;
  progress.at(0);
  CHECK(line.text() == "\r\x1b[Kreading 1 trace, 4 s so far");
}

TEST_CASE("there is no line where nobody looks") {
  Line line(false);
  Progress progress("sweeping", line.file, line.screen, [&] { return line.now; });
  line.now = 150;
  progress.at(0.5);
  progress.done();
  CHECK(line.text().empty());
}
