#include "costmodel/terminal/help.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"
#include "costmodel/terminal/paint.h"
#include "costmodel/terminal/show.h"
#include "costmodel/terminal/wrap.h"

namespace stepsim {

namespace {

constexpr std::string_view kOrDash = " or -";

std::size_t help_width(const Screen& screen) {
  constexpr int kPlain = 80;
  constexpr int kWidest = 100;  // Longer lines are hard to read.
  return static_cast<std::size_t>(screen.is_terminal() ? std::min(screen.columns, kWidest)
                                                       : kPlain);
}

/// Tells whether a text names a value or lists the values: "FILE", "KEY=VALUE", "FILE…",
/// "cpu|cuda".
bool is_value_name(std::string_view text) {
  if (text.empty() || text.find(' ') != std::string_view::npos) {
    return false;
  }
  const auto is_lower = [](char c) { return std::islower(static_cast<unsigned char>(c)) != 0; };
  return text.find('|') != std::string_view::npos ||
         (std::isupper(static_cast<unsigned char>(text.front())) != 0 &&
          std::ranges::none_of(text, is_lower));
}

/// Returns the left column of an option: "--json FILE|-", "-q, --quiet", "SCENARIO".
std::string shown_name(const OptionHelp& option) {
  const std::string value =
      (option.value.empty() ? "VALUE" : option.value) + (option.or_dash ? "|-" : "");
  if (option.positional) {
    return option.value.empty() ? "ARGUMENT" : value;
  }
  const std::string letter = option.letter.empty() ? "" : "-" + option.letter + ", ";
  return letter + "--" + option.name + (option.takes_value ? " " + value : "");
}

std::string options_text(const std::vector<OptionHelp>& options, const Screen& screen) {
  constexpr std::size_t kMaxName = 24;
  std::string text;
  for (const OptionHelp& option : options) {
    const std::string name = shown_name(option);
    const std::string preset =
        option.default_value.empty() ? "" : " (default: " + option.default_value + ")";
    const auto lines = wrapped(option.description + preset, help_width(screen) - kMaxName - 4);
    const bool beside = display_width(name) <= kMaxName;
    text += "  " + name;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const std::size_t used = i == 0 && beside ? display_width(name) : 0;
      text += (i == 0 && beside ? "" : "\n  ") + std::string(kMaxName + 2 - used, ' ') + lines[i];
    }
    text += "\n";
  }
  return text;
}

std::vector<OptionHelp> chosen(const CommandHelp& help, bool positional, bool shared) {
  std::vector<OptionHelp> options;
  for (const OptionHelp& option : help.options) {
    if (option.positional == positional && (positional || option.shared == shared)) {
      options.push_back(option);
    }
  }
  return options;
}

}  // namespace

OptionHelp option_help(const std::string& name, const std::string& text) {
  OptionHelp option;
  option.name = name;
  option.description = text;
  const std::size_t colon = text.find(": ");
  if (colon == std::string::npos) {
    return option;
  }
  std::string_view value = std::string_view{text}.substr(0, colon);
  const bool or_dash = value.ends_with(kOrDash);
  value.remove_suffix(or_dash ? kOrDash.size() : 0);
  if (is_value_name(value)) {
    option.value = value;
    option.or_dash = or_dash;
    option.description = text.substr(colon + 2);
  }
  return option;
}

std::string paragraphs(const std::string& text, const Screen& screen) {
  std::string result;
  std::string words;
  const auto flush = [&] {
    for (const std::string& line : wrapped(words, help_width(screen))) {
      const bool title = line == words && line.ends_with(':');
      result +=
          words.empty() ? "" : painted(line, title ? Paint::Strong : Paint::Plain, screen) + "\n";
    }
    words.clear();
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    if (!line.empty() && line.front() != ' ' && !line.starts_with("usage: ")) {
      words += (words.empty() ? "" : " ") + line;
      if (line.back() == ':') {
        flush();
      }
    } else {
      flush();
      result += labelled(line, screen) + "\n";
    }
    at = end + 1;
  }
  flush();
  return result;
}

std::string help_text(const CommandHelp& help, const Screen& screen) {
  std::string text = paragraphs(help.usage, screen);
  const auto section = [&](const char* title, const std::vector<OptionHelp>& options) {
    if (!options.empty()) {
      text += "\n" + painted(title, Paint::Strong, screen) + "\n" + options_text(options, screen);
    }
  };
  section("arguments:", chosen(help, true, false));
  section("options:", chosen(help, false, false));
  section("options of most commands:", chosen(help, false, true));
  return text;
}

Json help_json(const CommandHelp& help) {
  Json options = mapped(help.options, [](const OptionHelp& option) -> Json {
    return {{"name", option.name},
            {"letter", option.letter},
            {"takes_value", option.takes_value},
            {"value", option.value},
            {"or_dash", option.or_dash},
            {"description", option.description},
            {"default", option.default_value},
            {"positional", option.positional},
            {"shared", option.shared}};
  });
  return {{"command", help.name}, {"usage", help.usage}, {"options", std::move(options)}};
}

}  // namespace stepsim
