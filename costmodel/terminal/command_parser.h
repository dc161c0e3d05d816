#pragma once

#include <memory>
#include <string>
#include <vector>

#include "costmodel/terminal/given_option.h"
#include "costmodel/terminal/help.h"

namespace stepsim {

/// What a command line has behind an option's name.
enum class OptionKind {
  Flag,         ///< Nothing.
  Text,         ///< One text.
  Texts,        ///< One text; the option may be given more than once.
  TextsToNext,  ///< All texts up to the next option.
};

/// One option of a command.
struct Option {
  std::string name;  ///< "quiet", or "quiet,q" with a letter.
  OptionKind kind = OptionKind::Text;
  std::string fallback;  ///< Of a text: its value when it is not given, which the help shows.
  /// The help text. It may begin with what the value is, which help, completion and man pages show:
  /// "FILE: …", "FILE or -: …", "blocking|buffered: …".
  std::string description;
  /// The value is a file that the command makes or replaces: it may be none of the other files.
  bool writes = false;
  bool shared = false;  ///< Most commands have it; the help lists these last.
  int arguments = 0;    ///< So many arguments without a dash are its value; -1: all that remain.
};

/// Adds an option whose value is a file, by its description; else nothing.
void add_file_option(const std::string& name,
                     const std::string& description,
                     bool writes,
                     FileOptions& files);

/// Parses a command's arguments, and knows its usage and examples.
class CommandParser {
 public:
  /// `name` is "stepsim compare", `usage` is CommandHelp::usage.
  CommandParser(std::string name, std::string usage);
  ~CommandParser();

  void add(const Option& option);

  /// Parses the arguments; returns false when --help was given, after printing the help. Raises
  /// InputError for a wrong option, and for a file to write that is also another option's file.
  [[nodiscard]] bool parse(const std::vector<std::string>& arguments);

  /// Tells whether the option was given or has a fallback.
  [[nodiscard]] bool has(const std::string& name) const;
  /// Returns the text of an option; empty where it was not given.
  [[nodiscard]] std::string text(const std::string& name) const;
  /// Returns the texts of an option; empty where it was not given.
  [[nodiscard]] std::vector<std::string> list(const std::string& name) const;
  /// Raises InputError: "PROGRAM COMMAND: error: MESSAGE; see: PROGRAM COMMAND --help".
  [[noreturn]] void fail(const std::string& message) const;
  /// Returns the options in the order in which they were given.
  [[nodiscard]] const std::vector<GivenOption>& given() const { return given_; }

 private:
  struct Boost;  ///< The library's objects, whose headers only the source file reads.

  [[nodiscard]] CommandHelp help() const;

  std::string name_;  ///< "stepsim compare"
  std::string usage_;
  std::vector<GivenOption> given_;
  FileOptions files_;
  std::unique_ptr<Boost> boost_;
};

}  // namespace stepsim
