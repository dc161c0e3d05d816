// Scenarios written anew: every value survives, and files are found from anywhere.
#include "sim/scenario/toml_text.h"

#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "costmodel/io/json_file.h"
#include "sim/scenario/scenario.h"
#include "tests/source_root.h"

using namespace stepsim;

namespace {

/// Whether two trees hold the same values under the same keys, wherever these stand.
bool same_values(const TomlValue& a, const TomlValue& b) {
  if (a.kind != b.kind || a.key != b.key || a.boolean != b.boolean || a.integer != b.integer ||
      a.real != b.real || a.text != b.text || a.children.size() != b.children.size()) {
    return false;
  }
  for (std::size_t i = 0; i < a.children.size(); ++i) {
    const TomlValue* other =
        a.kind == TomlValue::Kind::Table ? b.find(a.children[i].key) : &b.children[i];
    if (other == nullptr || !same_values(a.children[i], *other)) {
      return false;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("toml: every shipped scenario keeps its values when it is written anew") {
  int scenarios = 0;
  for (const auto& file : std::filesystem::directory_iterator(test::source_root() + "/scenarios")) {
    if (file.path().extension() != ".toml") {
      continue;
    }
    CAPTURE(file.path().string());
    TomlDocument document = parse_toml(read_text(file.path().string()), file.path().string());
    CHECK(same_values(document.root, parse_toml(toml_text(document.root), "new.toml").root));
    make_paths_absolute(document);
    CHECK_NOTHROW((void)parse_scenario(toml_text(document.root), "/elsewhere/new.toml"));
    ++scenarios;
  }
  CHECK(scenarios > 10);
}

TEST_CASE("toml: a scenario with overrides inside is the one that they make of its file") {
  const std::string path = test::source_root() + "/scenarios/two_nodes.toml";
  const std::vector<std::string> set = {"cluster.placement=2+1",
                                        "ddp.torch=1.13",
                                        "scenario.name=2026-01-01",
                                        "policy.fixed.batch_size=3"};
  const Scenario set_beside = read_scenario(path, set);
  const Scenario inside = parse_scenario(
      scenario_text(set_beside, {{"ddp.accumulation_steps", "2"}}), "/else/new.toml");
  CHECK(inside.ranks == 3);
  CHECK(inside.placement == set_beside.placement);
  CHECK(inside.ranks_per_node == set_beside.ranks_per_node);
  CHECK(inside.ddp.torch == DdpRules::Torch113);
  CHECK(inside.name == "2026-01-01");
  CHECK(inside.ddp.accumulation_steps == 2);
  CHECK_THROWS_AS((void)scenario_text(set_beside, {{"ddp.x", "1"}}), InputError);
}

TEST_CASE("toml: texts, numbers and keys of every kind are written so that they are read again") {
  const std::string text =
      "top = \"of all\"\n"
      "[a]\n"
      "\"key with spaces\" = \"quote \\\" backslash \\\\ tab \\t line \\n \\u00e9\"\n"
      "whole = 3.0\nsmall = 1e-9\nlarge = 9223372036854775807\nyes = true\n"
      "lists = [[1, 2], [], [{ x = 1 }, { y = \"\" }]]\n"
      "[[b]]\nname = \"first\"\n[[b]]\nname = \"second\"\n";
  const TomlDocument document = parse_toml(text, "a.toml");
  CHECK(same_values(document.root, parse_toml(toml_text(document.root), "b.toml").root));
}
