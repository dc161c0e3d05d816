#pragma once

#include <string>

#include "costmodel/terminal/command_parser.h"

namespace stepsim {

/// The options of a command of stepcal.
class OptionParser : public CommandParser {
 public:
  OptionParser(const std::string& command, std::string usage);

  /// The option's value. Raises InputError when it is missing; `what` says what it is: "a samples
  /// file".
  [[nodiscard]] std::string required(const std::string& name, const std::string& what) const;
};

}  // namespace stepsim
