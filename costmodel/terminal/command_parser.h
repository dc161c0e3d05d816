#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "costmodel/terminal/help.h"

namespace boost::program_options {
class value_semantic;
}

namespace stepsim {

/// One option of a command.
struct Option {
  const char* name;  ///< "quiet", or "quiet,q" with a letter.
  /// Made by option_flag() and its neighbours; CommandParser::add() takes it over.
  const boost::program_options::value_semantic* value;
  /// May begin with what the value is: "FILE: …", "FILE or -: …", "blocking|buffered: …"; help,
  /// completion and man pages show that.
  const char* description;
};

/// An option without a value, which has() tells.
[[nodiscard]] const boost::program_options::value_semantic* option_flag();
/// An option with a value of type T: text, a list of texts (the option may repeat), a number.
template <typename T>
[[nodiscard]] const boost::program_options::value_semantic* option_value();
/// An option that always has a value; the help shows `fallback`.
template <typename T>
[[nodiscard]] const boost::program_options::value_semantic* option_value(T fallback);
/// An option that takes all texts up to the next option.
[[nodiscard]] const boost::program_options::value_semantic* option_texts();

/// A command's options with its usage and examples.
class CommandParser {
 public:
  /// `program`: "stepsim"; `command`: "compare"; `usage`: see CommandHelp.
  CommandParser(std::string program, std::string command, std::string usage);
  ~CommandParser();

  void add(std::initializer_list<Option> options);
  /// Adds options that most commands have: the help lists them last.
  void add_shared(std::initializer_list<Option> options);
  /// Names arguments without a dash, in order; the last one may repeat, -1 for any number.
  void positional(const std::string& name, int count);

  /// False when --help was asked for (and printed). Raises InputError for a wrong option.
  [[nodiscard]] bool parse(const std::vector<std::string>& arguments);

  /// Whether the option was given or has a fallback.
  [[nodiscard]] bool has(const std::string& name) const;
  /// Value of an option that was added with the same T.
  template <typename T>
  [[nodiscard]] T get(const std::string& name) const;
  /// Raises InputError: "PROGRAM COMMAND: error: MESSAGE; see: PROGRAM COMMAND --help".
  [[noreturn]] void fail(const std::string& message) const;
  /// "PROGRAM COMMAND ARGUMENTS", quoted where a shell would need it.
  [[nodiscard]] const std::string& command_line() const { return command_line_; }
  /// "PROGRAM COMMAND --help"
  [[nodiscard]] std::string help_command() const { return name_ + " --help"; }

 private:
  struct Boost;  ///< The library's objects, whose headers only the source file reads.

  [[nodiscard]] CommandHelp help() const;

  std::string name_;  ///< "stepsim compare"
  std::string usage_;
  std::string command_line_;
  std::vector<std::string> positional_names_;
  std::unique_ptr<Boost> boost_;
};

}  // namespace stepsim
