#pragma once

#include <span>
#include <string>
#include <vector>

#include "costmodel/io/json_file.h"

namespace stepsim {

/// A word of the output and what it means.
struct Term {
  std::string name;               ///< As tables and sentences write it, without a unit.
  std::vector<std::string> also;  ///< Other headings and words for it.
  std::string meaning;            ///< Sentences; units where there are some.
};

/// All words, by name. `stepsim help WORD`, the page of the documentation and what stands under the
/// headings of a report page are made of them.
[[nodiscard]] std::span<const Term> glossary();

/// The term that a word or the heading of a table names, whatever its unit and its letters' case:
/// "exposed ms" is "exposed". Null where there is none.
[[nodiscard]] const Term* find_term(const std::string& word);

/// The terms that have a word in their name or in another word for it: "skew" is in "sample skew".
/// Where none has, those that have it in their meaning. Hyphens, underscores, the letters' case and
/// a plural's s make no difference.
[[nodiscard]] std::vector<Term> terms_with(const std::string& word);

/// {heading or word: meaning}, for pages.
[[nodiscard]] Json glossary_json();

/// The page of the documentation.
[[nodiscard]] std::string glossary_markdown();

}  // namespace stepsim
