#pragma once

#include <string>
#include <vector>

#include "costmodel/terminal/command_parser.h"

namespace stepsim {

/// The options of a command of stepcal.
class OptionParser : public CommandParser {
 public:
  OptionParser(std::string command, std::string usage);

  /// Raises InputError when the option is missing, saying what it is: "a samples file".
  [[nodiscard]] std::string required(const std::string& name, const std::string& what) const;
  /// Empty when the option is missing.
  [[nodiscard]] std::vector<std::string> list(const std::string& name) const;
};

/// Now, ISO 8601 in UTC.
[[nodiscard]] std::string date_now();

}  // namespace stepsim
