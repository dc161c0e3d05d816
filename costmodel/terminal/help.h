#pragma once

#include <string>
#include <vector>

#include "costmodel/io/json_file.h"
#include "costmodel/terminal/screen.h"

namespace stepsim {

/// The argument that prints a command's help as JSON; completion and man pages are made of it.
inline constexpr const char* kHelpJson = "--help-json";

/// One option as help shows it.
struct OptionHelp {
  std::string name;    ///< Without dashes.
  std::string letter;  ///< "q" of -q, or empty.
  bool takes_value = false;
  std::string value;     ///< "FILE", "KEY=VALUE", "blocking|buffered"; empty when not stated.
  bool or_dash = false;  ///< "-" stands for standard input or output.
  std::string description;
  std::string default_value;
  bool positional = false;  ///< Also, and first of all, an argument without a dash.
  bool shared = false;      ///< One that most commands have.
};

/// A command as help shows it.
struct CommandHelp {
  std::string name;  ///< "stepsim compare"
  /// "usage: …" lines, a blank line, paragraphs, and at last "examples:" with indented commands.
  /// Lines of a paragraph are broken anew; indented lines stay as they are.
  std::string usage;
  std::vector<OptionHelp> options;
};

/// "FILE or -: write the result as JSON" taken apart.
[[nodiscard]] OptionHelp option_help(const std::string& name, const std::string& text);

/// The help as text: no wider than 80 columns, or than a terminal of up to 100.
[[nodiscard]] std::string help_text(const CommandHelp& help, const Screen& screen);

/// {"command", "usage", "options": [{"name", …}]}
[[nodiscard]] Json help_json(const CommandHelp& help);

/// Paragraphs broken anew for the screen, as in CommandHelp::usage; titles ("examples:") stand out.
[[nodiscard]] std::string paragraphs(const std::string& text, const Screen& screen);

}  // namespace stepsim
