#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"
#include "costmodel/terminal/paint.h"
#include "costmodel/terminal/wrap.h"
#include "sim/ask/question.h"
#include "sim/report/key_reference.h"

namespace stepsim {

namespace {

struct KeysOptions {
  std::vector<std::string> words;
  bool schema = false;
};

constexpr const char* kKeysUsage =
    "usage: stepsim keys [WORD…] [--json FILE]\n"
    "       stepsim keys --schema\n\n"
    "The keys of scenario files, with what they mean and their defaults: all of them, or a key, a\n"
    "table, or what a WORD occurs in. --set and --over take them by these names; those of a\n"
    "policy stand behind its name: policy.bucketing.batch_size.\n\n"
    "--schema prints a JSON schema, by which editors complete and check scenario files (with\n"
    "taplo: a first line #:schema scenario.schema.json).\n\n"
    "examples:\n"
    "  stepsim keys bucket_cap\n"
    "  stepsim keys host\n"
    "  stepsim keys --schema > scenario.schema.json\n";

std::string row_text(const KeyRow& row, const Screen& screen) {
  constexpr int kPlain = 80;
  constexpr std::size_t kIndent = 4;
  const auto width = static_cast<std::size_t>(screen.is_terminal() ? screen.columns : kPlain);
  std::string text = painted(row.key, Paint::Strong, screen);
  text += row.fallback.empty() ? "\n" : fmt::format("   (default: {})\n", row.fallback);
  for (const std::string& line : wrapped(row.meaning, width - kIndent)) {
    text += line.empty() ? "" : std::string(kIndent, ' ') + line + "\n";
  }
  if (!row.choices.empty()) {
    const std::string choices = fmt::format("one of: {}", fmt::join(row.choices, ", "));
    for (const std::string& line : wrapped(choices, width - kIndent)) {
      text += std::string(kIndent, ' ') + line + "\n";
    }
  }
  return text;
}

Answer ask_keys(const Request&, const KeysOptions& options) {
  Answer answer;
  if (options.schema) {
    answer.text = [](const Screen&) { return scenario_schema().dump(1) + "\n"; };
    answer.json = [] { return scenario_schema(); };
    return answer;
  }
  const std::vector<KeyRow> rows = key_rows(options.words);
  answer.text = [=](const Screen& screen) {
    return fmt::format(
        "{}",
        fmt::join(mapped(rows, [&](const KeyRow& row) { return row_text(row, screen); }), ""));
  };
  answer.json = [=] {
    return mapped(rows, [](const KeyRow& row) -> Json {
      return {{"key", row.key},
              {"meaning", row.meaning},
              {"default", row.fallback},
              {"choices", row.choices}};
    });
  };
  return answer;
}

}  // namespace

Question keys_question() {
  using Q = KeysOptions;
  return question(
      "keys",
      "the keys of scenario files, and their JSON schema",
      kKeysUsage,
      std::vector<OptionRow>{
          option("words", &Q::words, "WORD…: a key, a table, or a word").positional(-1),
          option("schema", &Q::schema, "the JSON schema of scenario files"),
          option("json", &Outputs::json, "FILE or -: write the keys as JSON").written()},
      ask_keys);
}

}  // namespace stepsim
