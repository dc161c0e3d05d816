#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/terminal/given_option.h"
#include "costmodel/terminal/help.h"

namespace boost::program_options {
class value_semantic;
}

namespace stepsim {

/// One option of a command.
struct Option {
  const char* name;  ///< "quiet", or "quiet,q" with a letter.
  /// The kind of value, made by one of the functions below. CommandParser::add() takes ownership.
  const boost::program_options::value_semantic* value;
  /// The help text. It may begin with what the value is, which help, completion and man pages show:
  /// "FILE: …", "FILE or -: …", "blocking|buffered: …".
  const char* description;
  /// The value is a file that the command makes or replaces: it may be none of the other files.
  bool writes = false;
};

/// Makes an option without a value; CommandParser::has() tells whether it was given.
[[nodiscard]] const boost::program_options::value_semantic* option_flag();
/// Makes an option whose value is one text.
[[nodiscard]] const boost::program_options::value_semantic* option_text();
/// Makes an option with a value of type T: a list of texts (the option may be given more than once)
/// or a number.
template <typename T>
[[nodiscard]] const boost::program_options::value_semantic* option_value();
/// Makes an option that has a value even when it is not given; the help shows `fallback`.
template <typename T>
[[nodiscard]] const boost::program_options::value_semantic* option_value(T fallback);
/// Makes an option that takes all texts up to the next option.
[[nodiscard]] const boost::program_options::value_semantic* option_texts();

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

  void add(std::initializer_list<Option> options);
  /// Adds options that most commands have; the help lists them last.
  void add_shared(std::initializer_list<Option> options);
  /// Names the next `count` arguments without a dash; -1 stands for all that remain.
  void positional(const std::string& name, int count);

  /// Parses the arguments; returns false when --help was given, after printing the help. Raises
  /// InputError for a wrong option, and for a file to write that is also another option's file.
  [[nodiscard]] bool parse(const std::vector<std::string>& arguments);

  /// Tells whether the option was given or has a fallback.
  [[nodiscard]] bool has(const std::string& name) const;
  /// Returns the value of an option that was added with the same T.
  template <typename T>
  [[nodiscard]] T get(const std::string& name) const;
  /// Returns the value of an option, or nothing where it was not given.
  template <typename T>
  [[nodiscard]] std::optional<T> maybe(const std::string& name) const {
    return has(name) ? std::optional(get<T>(name)) : std::nullopt;
  }
  /// Returns the text of an option; empty where it was not given.
  [[nodiscard]] std::string text(const std::string& name) const;
  /// Returns the texts of an option; empty where it was not given.
  [[nodiscard]] std::vector<std::string> list(const std::string& name) const;
  /// Raises InputError: "PROGRAM COMMAND: error: MESSAGE; see: PROGRAM COMMAND --help".
  [[noreturn]] void fail(const std::string& message) const;
  /// Returns "PROGRAM COMMAND ARGUMENTS", quoted for a shell.
  [[nodiscard]] const std::string& command_line() const { return command_line_; }
  /// Returns the options in the order in which they were given.
  [[nodiscard]] const std::vector<GivenOption>& given() const { return given_; }

 private:
  struct Boost;  ///< The library's objects, whose headers only the source file reads.

  [[nodiscard]] CommandHelp help() const;
  void add_to(bool shared, std::initializer_list<Option> options);

  std::string name_;  ///< "stepsim compare"
  std::string usage_;
  std::string command_line_;
  std::vector<GivenOption> given_;
  FileOptions files_;
  std::unique_ptr<Boost> boost_;
};

}  // namespace stepsim
