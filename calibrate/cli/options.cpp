#include "calibrate/cli/options.h"

#include <utility>

namespace stepsim {

OptionParser::OptionParser(std::string command, std::string usage)
    : CommandParser("stepcal", std::move(command), std::move(usage)) {}

std::string OptionParser::required(const std::string& name, const std::string& what) const {
  if (!has(name) || get<std::string>(name).empty()) {
    fail("no " + what + " given");
  }
  return get<std::string>(name);
}

std::vector<std::string> OptionParser::list(const std::string& name) const {
  return has(name) ? get<std::vector<std::string>>(name) : std::vector<std::string>();
}

}  // namespace stepsim
