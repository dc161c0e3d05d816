#pragma once

#include <string>
#include <vector>

#include "costmodel/io/json_file.h"
#include "costmodel/terminal/screen.h"

namespace stepsim {

/// The argument that prints a command's help as JSON, from which completion and man pages are made.
inline constexpr const char* kHelpJson = "--help-json";

/// One option, as the help shows it.
struct OptionHelp {
  std::string name;    ///< The long name without dashes.
  std::string letter;  ///< "q" for -q; empty when there is no short form.
  bool takes_value = false;
  std::string value;     ///< "FILE", "KEY=VALUE", "blocking|buffered"; empty when not stated.
  bool or_dash = false;  ///< True: the value may be "-" for standard input or output.
  std::string description;
  std::string default_value;
  bool positional = false;  ///< True: it is usually given as an argument without a dash.
  bool shared = false;      ///< True: most commands have this option.
};

/// A command, as the help shows it.
struct CommandHelp {
  std::string name;  ///< "stepsim compare"
  /// Lines "usage: …", a blank line, paragraphs, and last "examples:" with indented commands.
  /// Paragraphs are wrapped to the screen; indented lines stay as they are.
  std::string usage;
  std::vector<OptionHelp> options;
};

/// Parses an option's description, such as "FILE or -: write the result as JSON".
[[nodiscard]] OptionHelp option_help(const std::string& name, const std::string& text);

/// Formats the help for a screen. It is as wide as the terminal, up to 100 columns, and 80 columns
/// wide in a file.
[[nodiscard]] std::string help_text(const CommandHelp& help, const Screen& screen);

/// Formats the help as {"command", "usage", "options": [{"name", …}]}.
[[nodiscard]] Json help_json(const CommandHelp& help);

/// Wraps paragraphs, as in CommandHelp::usage, to the screen; titles ("examples:") stand out.
[[nodiscard]] std::string paragraphs(const std::string& text, const Screen& screen);

}  // namespace stepsim
