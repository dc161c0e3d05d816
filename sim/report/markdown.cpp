#include "sim/report/markdown.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "costmodel/input_error.h"

namespace stepsim {

namespace {

/// A letter or digit; bytes beyond ASCII belong to one.
bool in_word(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || std::isalnum(byte) != 0;
}

}  // namespace

std::string markdown_text(const std::string& text) {
  constexpr std::string_view kMarkup = "\\`*[]|~$";
  const std::string plain = printable(text, std::string::npos);
  std::string result;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const char c = plain[i];
    const bool inner =
        i > 0 && i + 1 < plain.size() && in_word(plain[i - 1]) && in_word(plain[i + 1]);
    if (c == '<' || c == '>' || c == '&') {
      result += c == '<' ? "&lt;" : (c == '>' ? "&gt;" : "&amp;");
      continue;
    }
    if (kMarkup.find(c) != std::string_view::npos || (c == '_' && !inner)) {
      result += '\\';
    }
    result += c;
  }
  return result;
}

std::string markdown_code(const std::string& lines) {
  std::size_t longest = 2;
  std::size_t run = 0;
  for (const char c : lines) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(longest + 1, '`');
  return fence + "\n" + lines + "\n" + fence + "\n";
}

}  // namespace stepsim
