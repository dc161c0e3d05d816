#pragma once

#include <string>
#include <vector>

#include <boost/program_options.hpp>

#include "costmodel/terminal/help.h"

namespace stepsim {

/// A command's options with its usage and examples.
///
/// An option's description may begin with what its value is: "FILE: …", "FILE or -: …",
/// "blocking|buffered: …"; help, completion and man pages show that.
class CommandParser {
 public:
  /// `program`: "stepsim"; `command`: "compare"; `usage`: see CommandHelp.
  CommandParser(std::string program, std::string command, std::string usage);

  boost::program_options::options_description_easy_init add() { return options_.add_options(); }
  /// Options of every command, which the help lists last.
  boost::program_options::options_description_easy_init add_shared() {
    return shared_.add_options();
  }
  /// Name of arguments without a dash, in order; the last one may repeat, -1 for any number.
  void positional(const std::string& name, int count);

  /// False when --help was asked for (and printed). Raises InputError for a wrong option.
  [[nodiscard]] bool parse(const std::vector<std::string>& arguments);

  [[nodiscard]] bool has(const std::string& name) const { return values_.count(name) > 0; }
  template <typename T>
  [[nodiscard]] T get(const std::string& name) const {
    return values_[name].as<T>();
  }
  /// Raises InputError: "PROGRAM COMMAND: error: MESSAGE; see: PROGRAM COMMAND --help".
  [[noreturn]] void fail(const std::string& message) const;
  /// "PROGRAM COMMAND ARGUMENTS", quoted where a shell would need it.
  [[nodiscard]] const std::string& command_line() const { return command_line_; }
  /// "PROGRAM COMMAND --help"
  [[nodiscard]] std::string help_command() const { return name_ + " --help"; }

 private:
  [[nodiscard]] CommandHelp help() const;

  std::string name_;  ///< "stepsim compare"
  std::string usage_;
  std::string command_line_;
  boost::program_options::options_description options_;
  boost::program_options::options_description shared_;
  boost::program_options::positional_options_description positional_;
  std::vector<std::string> positional_names_;
  boost::program_options::variables_map values_;
};

}  // namespace stepsim
