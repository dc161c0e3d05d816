#include "costmodel/base/input_error.h"

#include <doctest/doctest.h>

#include "tests/costmodel/helpers.h"

using namespace stepsim;

TEST_CASE("an error with a place shows file, line, column, the line and a caret") {
  const InputError error({"scenario.toml", 6, 14, "bucket_cap = \"25 MB\""},
                         "ddp.bucket_cap: unknown unit 'MB'");
  CHECK(std::string(error.what()) ==
        "scenario.toml:6:14: error: ddp.bucket_cap: unknown unit 'MB'\n"
        "bucket_cap = \"25 MB\"\n"
        "             ^");
}

TEST_CASE("an error without a line or column leaves them out") {
  CHECK(std::string(InputError(SourcePlace{"f"}, "bad").what()) == "f: error: bad");
  CHECK(std::string(InputError({"f", 7, 0, ""}, "bad").what()) == "f:7: error: bad");
}

TEST_CASE("of a long line the part around the caret is shown") {
  const std::string line = std::string(5000, 'a') + "X" + std::string(5000, 'b');
  const std::string text = InputError({"f", 1, 5001, line}, "bad").what();
  CHECK(text.size() < 400);
  const std::size_t last_line = text.rfind('\n');
  const std::size_t caret = text.size() - last_line - 2;
  // The cut is marked with one character of three bytes.
  const std::size_t quoted = text.find('\n') + 1;
  CHECK(text[quoted + 2 + caret] == 'X');
}

TEST_CASE("control characters of a file do not reach the terminal") {
  CHECK(printable("a\x1b[31mb\n\xff") == "a\\x1b[31mb\\x0a\\xff");
  CHECK(printable("\xc2\x9b") == "\\xc2\\x9b");
  CHECK(printable("grün") == "grün");
  CHECK(printable("abcdef", 3) == "abc…");
  CHECK(is_utf8("grün"));
  CHECK_FALSE(is_utf8("gr\xfcn"));
  CHECK_FALSE(is_utf8("gr\xc3"));
  const std::string text = InputError({"f\x1b", 1, 2, "a\x1b[2Jb"}, "bad").what();
  CHECK(text.find('\x1b') == std::string::npos);
}

TEST_CASE("a message keeps its lines and shows the control characters in it") {
  CHECK(without_controls("a\x1b[31mb\n\tc\r") == "a\\x1b[31mb\n\tc\\x0d");
  CHECK(without_controls("\xc2\x9b\xff grün") == "\\xc2\\x9b\\xff grün");
  CHECK(std::string(InputError("unknown policy '\x07'").what()) == "unknown policy '\\x07'");
  CHECK(std::string(InputError(SourcePlace{"f"}, "\x1b").what()) == "f: error: \\x1b");
}

TEST_CASE("an unknown name gets the nearest known one") {
  const std::vector<std::string> known = {"cluster", "model", "ddp"};
  CHECK(nearest_name("clusterr", known) == "cluster");
  CHECK(nearest_name("lcuster", known) == "cluster");
  CHECK(nearest_name("dpd", known) == "ddp");
  CHECK(nearest_name("optimizer", known).empty());
  CHECK(nearest_name("", known).empty());
  CHECK(unknown_name("table", "modle", known) ==
        "unknown table 'modle'; did you mean 'model'? known: cluster, model, ddp");
  CHECK(unknown_name("table", "x", known) == "unknown table 'x'; known: cluster, model, ddp");
  std::vector<std::string> many = {"scaling efficiency", "Efficiency"};
  for (int i = 0; i < 50; ++i) {
    many.push_back(std::to_string(1000 + i) + "-name");
  }
  CHECK(unknown_name("word", "efficienc", many) ==
        "unknown word 'efficienc'; did you mean 'Efficiency'?");
  CHECK(unknown_name("word", "SCALING", many) ==
        "unknown word 'SCALING'; like it: scaling efficiency");
  CHECK(unknown_name("word", "bus", many) == "unknown word 'bus'; none of the 52 known is like it");
}
