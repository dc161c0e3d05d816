#include "calibrate/import/nccl/nccl_line.h"

#include <algorithm>
#include <array>

#include "calibrate/import/nccl/printed_number.h"

namespace stepsim {
namespace {

constexpr std::string_view kBlanks = " \t\r\v\f";

constexpr std::array<std::string_view, 16> kTypes = {"bfloat16",
                                                     "double",
                                                     "float",
                                                     "half",
                                                     "fp8_e4m3",
                                                     "fp8_e5m2",
                                                     "f8e4m3",
                                                     "f8e5m2",
                                                     "uint8",
                                                     "uint32",
                                                     "uint64",
                                                     "int8",
                                                     "int32",
                                                     "int64",
                                                     "char",
                                                     "int"};
constexpr std::array<std::string_view, 8> kRedops = {
    "sum", "prod", "max", "min", "avg", "mulsum", "premulsum", "none"};

bool is_blank(char c) {
  return kBlanks.find(c) != std::string_view::npos;
}

std::size_t skip_digits(std::string_view text, std::size_t at) {
  while (at < text.size() && is_digit(text[at])) {
    ++at;
  }
  return at;
}

/// Behind "268435456" or "2.68e+08" at `at`.
std::size_t skip_whole_number(std::string_view text, std::size_t at) {
  const std::size_t whole = skip_digits(text, at);
  const std::size_t mantissa =
      whole < text.size() && text[whole] == '.' ? skip_digits(text, whole + 1) : whole;
  if (whole == at || text.substr(mantissa, 2) != "e+") {
    return whole;
  }
  const std::size_t end = skip_digits(text, mantissa + 2);
  return end > mantissa + 2 ? end : whole;
}

std::size_t skip_blanks(std::string_view text, std::size_t at) {
  while (at < text.size() && is_blank(text[at])) {
    ++at;
  }
  return at;
}

/// Length of "[12]" or "[1,0]<stdout>:" at the start of `text`; 0 when there is none.
std::size_t bracket_label(std::string_view text) {
  if (text.empty() || text[0] != '[') {
    return 0;
  }
  std::size_t at = skip_digits(text, 1);
  if (at == 1 || at >= text.size()) {
    return 0;
  }
  if (text[at] == ']') {
    return at + 1;
  }
  if (text[at] != ',') {
    return 0;
  }
  const std::size_t second = at + 1;
  at = skip_digits(text, second);
  if (at == second || text.substr(at, 5) != "]<std") {
    return 0;
  }
  at = text.find('>', at);
  if (at == std::string_view::npos) {
    return 0;
  }
  return at + 1 + (at + 1 < text.size() && text[at + 1] == ':' ? 1 : 0);
}

/// Length of "12: " at the start of `text`.
std::size_t number_label(std::string_view text) {
  const std::size_t at = skip_digits(text, 0);
  const bool is_label = at > 0 && at < text.size() && text[at] == ':' &&
                        (at + 1 == text.size() || is_blank(text[at + 1]));
  return is_label ? at + 1 : 0;
}

/// True for "host:123:456".
bool is_process_word(std::string_view word) {
  const std::size_t last = word.rfind(':');
  if (last == std::string_view::npos || last == 0) {
    return false;
  }
  const std::size_t first = word.rfind(':', last - 1);
  return first != std::string_view::npos && first > 0 && last > first + 1 &&
         skip_digits(word, first + 1) == last && last + 1 < word.size() &&
         skip_digits(word, last + 1) == word.size();
}

/// Behind one of `names` at `at`, the longest that fits; absent when none does.
template <std::size_t kCount>
std::optional<std::size_t> skip_name(std::string_view text,
                                     std::size_t at,
                                     const std::array<std::string_view, kCount>& names) {
  std::size_t longest = 0;
  for (const std::string_view name : names) {
    if (text.substr(at, name.size()) == name) {
      longest = std::max(longest, name.size());
    }
  }
  return longest > 0 ? std::optional(at + longest) : std::nullopt;
}

/// The head of a row whose size starts at `at`.
std::optional<RowHead> row_head_at(std::string_view line, std::size_t at) {
  RowHead head{at, skip_whole_number(line, at), 0};
  const std::size_t count = skip_blanks(line, head.size_end);
  const std::size_t count_end = skip_whole_number(line, count);
  const std::size_t type = skip_blanks(line, count_end);
  if (count == head.size_end || count_end == count || type == count_end) {
    return std::nullopt;
  }
  const auto type_end = skip_name(line, type, kTypes);
  if (!type_end || *type_end >= line.size() || !is_blank(line[*type_end])) {
    return std::nullopt;
  }
  const std::size_t next = skip_blanks(line, *type_end);
  const bool is_number =
      next < line.size() && (is_digit(line[next]) || line.substr(next, 2) == "-1");
  const auto redop_end = skip_name(line, next, kRedops);
  if (!redop_end && !is_number) {
    return std::nullopt;
  }
  head.end = redop_end.value_or(*type_end);
  return head;
}

}  // namespace

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t at = skip_blanks(text, 0); at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && !is_blank(text[end])) {
      ++end;
    }
    words.push_back(text.substr(at, end - at));
    at = skip_blanks(text, end);
  }
  return words;
}

std::optional<std::size_t> nccl_output_at(std::string_view line) {
  std::size_t mark = std::string_view::npos;
  for (const std::string_view kind : {" NCCL INFO", " NCCL WARN", " NCCL TRACE"}) {
    mark = std::min(mark, line.find(kind));
  }
  if (mark == std::string_view::npos) {
    return std::nullopt;
  }
  // Before the mark: "host:pid:tid [n]", with the source file of a warning behind it.
  const std::vector<std::string_view> words = words_of(line.substr(0, mark));
  for (auto word = words.rbegin(); word != words.rend(); ++word) {
    if (is_process_word(*word)) {
      return static_cast<std::size_t>(word->data() - line.data());
    }
  }
  return std::nullopt;
}

std::string_view without_labels(std::string_view line) {
  while (true) {
    const std::string_view rest = line.substr(skip_blanks(line, 0));
    const std::size_t label = std::max(bracket_label(rest), number_label(rest));
    if (label == 0) {
      return rest;
    }
    line = rest.substr(label);
  }
}

std::string blank_labels(std::string_view line) {
  std::string text(line);
  for (std::size_t at = text.find('['); at != std::string::npos; at = text.find('[', at + 1)) {
    const std::size_t length = bracket_label(std::string_view{text}.substr(at));
    std::fill_n(text.begin() + static_cast<std::ptrdiff_t>(at), length, ' ');
  }
  return text;
}

std::optional<RowHead> find_row_head(std::string_view line) {
  for (std::size_t at = 0; at < line.size();) {
    if (!is_digit(line[at])) {
      ++at;
      continue;
    }
    if (const auto head = row_head_at(line, at)) {
      return head;
    }
    at = skip_digits(line, at);
  }
  return std::nullopt;
}

bool looks_like_row(std::string_view line) {
  constexpr std::ptrdiff_t kFewest = 5;
  const std::size_t start = line.find_first_not_of(" \t#>|");
  const std::vector<std::string_view> words = words_of(line.substr(std::min(start, line.size())));
  const auto is_number = [](std::string_view word) { return parse_printed(word).has_value(); };
  return !words.empty() && is_number(words.front()) &&
         std::ranges::count_if(words, is_number) >= kFewest &&
         std::ranges::any_of(words, [&](std::string_view word) {
           return is_number(word) && word.find('.') != std::string_view::npos;
         });
}

}  // namespace stepsim
