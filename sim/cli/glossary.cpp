#include "sim/report/glossary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/terminal/paint.h"
#include "costmodel/terminal/wrap.h"
#include "sim/ask/question.h"

namespace stepsim {

namespace {

struct GlossaryOptions {
  std::vector<std::string> words;
};

constexpr const char* kGlossaryUsage =
    "usage: stepsim glossary [WORD…] [--json FILE]\n\n"
    "What the words of the output mean: headings of tables and words of sentences, with their\n"
    "units. All of them, or those that are named. `stepsim help WORD` is the same.\n\n"
    "examples:\n"
    "  stepsim glossary\n"
    "  stepsim help exposed\n"
    "  stepsim help rank token spread\n";

std::string term_text(const Term& term, const Screen& screen) {
  constexpr int kPlain = 80;
  constexpr std::size_t kIndent = 2;
  const auto width = static_cast<std::size_t>(screen.is_terminal() ? screen.columns : kPlain);
  std::string text = painted(term.name, Paint::Strong, screen);
  if (!term.also.empty()) {
    text += fmt::format(" (also: {})", fmt::join(term.also, "; "));
  }
  std::string lines = fmt::format("{}\n", fmt::join(wrapped(text, width), "\n  "));
  for (const std::string& line : wrapped(term.meaning, width - kIndent)) {
    lines += "  " + line + "\n";
  }
  return lines;
}

/// The terms that these words name: each its own, or all together one of several words.
std::vector<Term> named_terms(const std::vector<std::string>& words) {
  if (const Term* whole = find_term(fmt::format("{}", fmt::join(words, " ")))) {
    return {*whole};
  }
  std::vector<Term> terms;
  for (const std::string& word : words) {
    const Term* const term = find_term(word);
    if (term == nullptr) {
      std::vector<std::string> known;
      for (const Term& one : glossary()) {
        known.push_back(one.name);
        known.insert(known.end(), one.also.begin(), one.also.end());
      }
      throw InputError("{}; all words: stepsim glossary; commands: stepsim --help",
                       unknown_name("word", word, known));
    }
    terms.push_back(*term);
  }
  return terms;
}

Answer ask_glossary(const Request&, const GlossaryOptions& options) {
  const std::vector<Term> terms = options.words.empty()
                                      ? std::vector<Term>(glossary().begin(), glossary().end())
                                      : named_terms(options.words);
  Answer answer;
  answer.text = [=](const Screen& screen) {
    std::string text;
    for (const Term& term : terms) {
      text += (text.empty() ? "" : "\n") + term_text(term, screen);
    }
    return text;
  };
  answer.json = [=] {
    return mapped(terms, [](const Term& term) -> Json {
      return {{"word", term.name}, {"also", term.also}, {"meaning", term.meaning}};
    });
  };
  answer.markdown = [] { return glossary_markdown(); };
  return answer;
}

}  // namespace

Question glossary_question() {
  using Q = GlossaryOptions;
  return question(
      "glossary",
      "what the words of the output mean",
      kGlossaryUsage,
      std::vector<OptionRow>{
          option("words", &Q::words, "WORD…: of the output").positional(-1),
          option("json", &Outputs::json, "FILE or -: write the words as JSON").written(),
          option("markdown", &Outputs::markdown, "FILE or -: write all words as a page").written()},
      ask_glossary);
}

}  // namespace stepsim
