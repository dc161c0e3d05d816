#include "costmodel/terminal/paint.h"

namespace stepsim {

namespace {

/// Parameters of "select graphic rendition" (ECMA-48, 8.3.117).
const char* parameters_of(Paint paint) {
  switch (paint) {
    case Paint::Plain:
      break;
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
  return "";
}

}  // namespace

std::string painted(const std::string& text, Paint paint, const Screen& screen) {
  if (!screen.colour || paint == Paint::Plain || text.empty()) {
    return text;
  }
  return std::string("\x1b[") + parameters_of(paint) + "m" + text + "\x1b[0m";
}

}  // namespace stepsim
