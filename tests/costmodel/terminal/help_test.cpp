#include "costmodel/terminal/help.h"

#include <doctest/doctest.h>

using namespace stepsim;

TEST_CASE("a description begins with what its option's value is") {
  const OptionHelp file = option_help("json", "FILE or -: write the result as JSON");
  CHECK(file.value == "FILE");
  CHECK(file.or_dash);
  CHECK(file.description == "write the result as JSON");
  CHECK(option_help("set", "KEY=VALUE: any key").value == "KEY=VALUE");
  CHECK(option_help("sends", "blocking|buffered: who waits").value == "blocking|buffered");
  CHECK(option_help("live", "FILE…: run records").value == "FILE…");
  const OptionHelp none = option_help("quiet", "no text: only files");
  CHECK(none.value.empty());
  CHECK(none.description == "no text: only files");
}

TEST_CASE("paragraphs break anew, indented lines and usage stay") {
  const std::string usage =
      "usage: stepsim compare SCENARIO [options]\n\n"
      "Predicts every policy of the scenario\n"
      "and ranks them by useful tokens per second, which is what a training run is about.\n\n"
      "examples:\n"
      "  stepsim compare scenarios/token_skew.toml --profile my_box.json --json prediction.json "
      "--csv x\n";
  CHECK(paragraphs(usage, {}) ==
        "usage: stepsim compare SCENARIO [options]\n\n"
        "Predicts every policy of the scenario and ranks them by useful tokens per\n"
        "second, which is what a training run is about.\n\n"
        "examples:\n"
        "  stepsim compare scenarios/token_skew.toml --profile my_box.json --json prediction.json "
        "--csv x\n");
}

TEST_CASE("help lists arguments, options, and those of most commands") {
  OptionHelp scenario = option_help("scenario", "SCENARIO: scenario file");
  scenario.positional = true;
  OptionHelp bound = option_help("bound", "PERCENT: largest error");
  bound.takes_value = true;
  bound.default_value = "10";
  OptionHelp quiet = option_help("quiet", "no text");
  quiet.letter = "q";
  quiet.shared = true;
  CHECK(help_text({"stepsim x", "usage: stepsim x\n", {quiet, scenario, bound}}, {}) ==
        "usage: stepsim x\n"
        "\narguments:\n  SCENARIO                  scenario file\n"
        "\noptions:\n  --bound PERCENT           largest error (default: 10)\n"
        "\noptions of most commands:\n  -q, --quiet               no text\n");
}
