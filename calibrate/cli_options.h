#pragma once

#include <string>
#include <vector>

#include <boost/program_options.hpp>

namespace stepsim {

/// A command's options with its usage and examples: `usage` is printed by --help as it is.
class OptionParser {
 public:
  OptionParser(std::string command, std::string usage);

  boost::program_options::options_description_easy_init add() { return options_.add_options(); }
  /// Name of the arguments without a dash; `count` -1 for any number.
  void positional(const std::string& name, int count);

  /// False when --help was asked for (and printed). Raises InputError for a wrong option.
  [[nodiscard]] bool parse(const std::vector<std::string>& arguments);

  [[nodiscard]] bool has(const std::string& name) const { return values_.count(name) > 0; }
  template <typename T>
  [[nodiscard]] T get(const std::string& name) const {
    return values_[name].as<T>();
  }
  /// Raises InputError when the option is missing, saying what it is: "a samples file".
  [[nodiscard]] std::string required(const std::string& name, const std::string& what) const;
  /// Empty when the option is missing.
  [[nodiscard]] std::vector<std::string> list(const std::string& name) const;
  /// Raises InputError: "stepcal COMMAND: error: MESSAGE".
  [[noreturn]] void fail(const std::string& message) const;
  /// "stepcal COMMAND ARGUMENTS", quoted where a shell would need it.
  [[nodiscard]] const std::string& command_line() const { return command_line_; }

 private:
  std::string command_;
  std::string usage_;
  std::string command_line_;
  boost::program_options::options_description options_;
  boost::program_options::positional_options_description positional_;
  boost::program_options::variables_map values_;
};

/// Now, ISO 8601 in UTC.
[[nodiscard]] std::string date_now();

}  // namespace stepsim
