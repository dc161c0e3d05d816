#include "costmodel/terminal/wrap.h"

#include <algorithm>

#include "costmodel/terminal/paint.h"

namespace stepsim {

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == kPaintMark && i + 1 < text.size() && text[i + 1] == '[') {
      i = std::min(text.find('m', i), text.size() - 1);
    } else if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) {
      ++width;  // UTF-8 continuation bytes take no column.
    }
  }
  return width;
}

std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
  std::vector<std::string> lines(1);
  for (std::size_t at = text.find_first_not_of(' '); at != std::string_view::npos;) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word(text.substr(at, end - at));
    std::string& line = lines.back();
    if (line.empty()) {
      line = word;
    } else if (display_width(line) + 1 + display_width(word) <= width) {
      line += " " + word;
    } else {
      lines.push_back(word);
    }
    at = text.find_first_not_of(' ', end);
  }
  return lines;
}

std::vector<std::string> wrapped_list(const std::vector<std::string>& items, std::size_t width) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string item = items[i] + (i + 1 < items.size() ? "," : "");
    if (lines.empty() || display_width(lines.back()) + 1 + display_width(item) > width) {
      lines.push_back(item);
    } else {
      lines.back() += " " + item;
    }
  }
  return lines;
}

}  // namespace stepsim
