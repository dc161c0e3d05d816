#include "sim/report/glossary.h"

#include <algorithm>
#include <string>
#include <vector>

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
    "units. All of them, or those that are named; a word that stands in the names of one or two "
    "is\n"
    "answered with these. `stepsim help WORD` is the same.\n\n"
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

/// The terms that a word names, or the one or two that have it in their names; none where there are
/// none or more.
std::vector<Term> few_terms(const std::string& word) {
  if (const Term* const term = find_term(word)) {
    return {*term};
  }
  constexpr std::size_t kFew = 2;
  std::vector<Term> terms = terms_with(word);
  return terms.size() <= kFew ? terms : std::vector<Term>();
}

[[noreturn]] void fail_at_word(const std::string& word) {
  constexpr const char* kWays = "all words: stepsim glossary; commands: stepsim --help";
  constexpr std::size_t kMost = 8;
  std::vector<std::string> names = mapped(terms_with(word), &Term::name);
  if (!names.empty()) {
    const bool more = names.size() > kMost;
    names.resize(std::min(names.size(), kMost));
    throw InputError("'{}' is in several entries: {}{}; stepsim help ENTRY shows one; {}",
                     printable(word),
                     fmt::join(names, ", "),
                     more ? ", …" : "",
                     kWays);
  }
  std::vector<std::string> known;
  for (const Term& one : glossary()) {
    known.push_back(one.name);
    known.insert(known.end(), one.also.begin(), one.also.end());
  }
  throw InputError("{}; {}", unknown_name("word", word, known), kWays);
}

/// The terms that these words name: all together one of several words, or each its own.
std::vector<Term> named_terms(const std::vector<std::string>& words) {
  std::vector<Term> terms = few_terms(fmt::format("{}", fmt::join(words, " ")));
  if (!terms.empty()) {
    return terms;
  }
  for (const std::string& word : words) {
    const std::vector<Term> own = few_terms(word);
    if (own.empty()) {
      fail_at_word(word);
    }
    terms.insert(terms.end(), own.begin(), own.end());
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
