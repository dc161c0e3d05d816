#include "costmodel/terminal/show.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "costmodel/terminal/paint.h"
#include "costmodel/terminal/wrap.h"

namespace stepsim {

namespace {

struct Label {
  std::string_view words;
  Paint paint;
};

constexpr std::array kLabels = {Label{"warning:", Paint::Warning},
                                Label{"warn:", Paint::Warning},
                                Label{"refuse:", Paint::Bad},
                                Label{"error:", Paint::Bad},
                                Label{"note:", Paint::Quiet},
                                Label{"best:", Paint::Good},
                                Label{"gap:", Paint::Strong},
                                Label{"verdict:", Paint::Strong},
                                Label{"usage:", Paint::Strong}};

bool is_command(std::string_view line) {
  return line.starts_with("next: ") || line.starts_with("Next: ") || line.starts_with("run them: ");
}

/// Whether it is to be copied below a line that says so: a command, or code, which is indented by
/// four blanks.
bool is_copied(std::string_view line) {
  constexpr std::size_t kCode = 4;
  const std::size_t first = line.find_first_not_of(' ');
  if (first == 0 || first == std::string_view::npos) {
    return false;
  }
  const std::string_view words = line.substr(first);
  return first == kCode || words.starts_with("stepsim ") || words.starts_with("stepcal ");
}

/// Returns where the sentence of a line begins: after the last pair of blanks.
std::size_t start_of_sentence(const std::string& line) {
  const std::size_t blanks = line.rfind("  ");
  return blanks == std::string::npos ? 0 : blanks + 2;
}

std::string broken(const std::string& line, std::size_t columns) {
  constexpr std::size_t kHang = 2;
  constexpr std::size_t kLeast = 24;
  const std::size_t start = start_of_sentence(line);
  const std::size_t indent = display_width(line.substr(0, start));
  if (indent + kLeast > columns) {
    return line;
  }
  const std::size_t hang = line.find_first_not_of(' ') < start ? indent : indent + kHang;
  std::string text = line.substr(0, start);
  const auto parts = wrapped(line.substr(start), columns - hang);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    text += (i == 0 ? "" : "\n" + std::string(hang, ' ')) + parts[i];
  }
  return text;
}

}  // namespace

std::string labelled(const std::string& line, const Screen& screen) {
  const std::size_t first = line.find_first_not_of(' ');
  if (!screen.colour || first == std::string::npos) {
    return line;
  }
  if (is_command(line)) {
    const std::size_t command = line.find(": ") + 2;
    return line.substr(0, command) + painted(line.substr(command), Paint::Command, screen);
  }
  for (const Label& label : kLabels) {
    if (std::string_view{line}.substr(first).starts_with(label.words)) {
      return line.substr(0, first) +
             painted(line.substr(first, label.words.size()), label.paint, screen) +
             line.substr(first + label.words.size());
    }
  }
  return line;
}

std::string shown(const std::string& text, const Screen& screen) {
  if (!screen.is_terminal() && !screen.colour) {
    return printed(text, screen);
  }
  const auto columns = static_cast<std::size_t>(screen.columns);
  std::string result;
  bool copied = false;  // So are the lines that a command goes on in.
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    copied = is_command(line) || is_copied(line) || (copied && line.starts_with(' '));
    const bool whole = !screen.is_terminal() || display_width(line) <= columns || copied;
    result += labelled(whole ? line : broken(line, columns), screen);
    result += end < text.size() ? "\n" : "";
    at = end + 1;
  }
  return printed(result, screen);
}

}  // namespace stepsim
