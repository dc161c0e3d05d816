#include "costmodel/terminal/paint.h"

#include <array>
#include <string_view>

#include "costmodel/base/input_error.h"

namespace stepsim {

namespace {

/// Parameters of "select graphic rendition" (ECMA-48, 8.3.117).
const char* parameters_of(Paint paint) {
  switch (paint) {
    case Paint::Plain:
      return "0";
    case Paint::Strong:
      return "1";
    case Paint::Quiet:
      return "2";
    case Paint::Good:
      return "32";
    case Paint::Warning:
      return "33";
    case Paint::Bad:
      return "31";
    case Paint::Command:
      return "36";
  }
  return "0";
}

/// What follows the first byte of a mark, and of the escape sequence that it becomes.
std::string mark_of(Paint paint) {
  return std::string("[") + parameters_of(paint) + "m";
}

/// Returns where the next mark of paint is, or the text's size.
std::size_t next_mark(const std::string& text, std::size_t at) {
  constexpr std::array kPaints = {Paint::Plain,
                                  Paint::Strong,
                                  Paint::Quiet,
                                  Paint::Good,
                                  Paint::Warning,
                                  Paint::Bad,
                                  Paint::Command};
  for (at = text.find(kPaintMark, at); at != std::string::npos;
       at = text.find(kPaintMark, at + 1)) {
    for (const Paint paint : kPaints) {
      if (text.compare(at + 1, mark_of(paint).size(), mark_of(paint)) == 0) {
        return at;
      }
    }
  }
  return text.size();
}

}  // namespace

std::string painted(const std::string& text, Paint paint, const Screen& screen) {
  if (!screen.colour || paint == Paint::Plain || text.empty()) {
    return text;
  }
  return kPaintMark + mark_of(paint) + text + kPaintMark + mark_of(Paint::Plain);
}

std::string printed(const std::string& text, const Screen& screen) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t mark = screen.colour ? next_mark(text, at) : text.size();
    result += without_controls(text.substr(at, mark - at));
    at = mark;
    if (mark < text.size()) {
      result += '\x1b';
      ++at;
    }
  }
  return result;
}

}  // namespace stepsim
