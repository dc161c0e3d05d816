#include "calibrate/cli/options.h"

#include <utility>

namespace stepsim {

OptionParser::OptionParser(const std::string& command, std::string usage)
    : CommandParser("stepcal " + command, std::move(usage)) {}

std::string OptionParser::required(const std::string& name, const std::string& what) const {
  if (text(name).empty()) {
    fail("no " + what + " given");
  }
  return text(name);
}

}  // namespace stepsim
