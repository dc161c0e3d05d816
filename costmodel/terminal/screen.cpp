#include "costmodel/terminal/screen.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include <sys/ioctl.h>
#include <unistd.h>

namespace stepsim {

namespace {

constexpr int kFewestColumns = 40;
constexpr int kMaxColumns = 1000;
constexpr int kUsualColumns = 80;

/// Returns the variable's value; empty when it is not set.
std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int columns_of(int descriptor) {
  int columns = std::atoi(variable("COLUMNS").c_str());
  winsize size{};
  if (columns <= 0 && ::ioctl(descriptor, TIOCGWINSZ, &size) == 0) {
    columns = size.ws_col;
  }
  return columns <= 0 ? kUsualColumns : std::clamp(columns, kFewestColumns, kMaxColumns);
}

/// Tells whether the locale is UTF-8. The first of three variables that is set decides (locale(7)).
bool has_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (const std::string value = variable(name); !value.empty()) {
      return value.find("UTF-8") != std::string::npos || value.find("utf8") != std::string::npos;
    }
  }
  return false;
}

bool wants_colour(bool understood) {
  const std::string force = variable("CLICOLOR_FORCE");
  return variable("NO_COLOR").empty() && (understood || (!force.empty() && force != "0"));
}

}  // namespace

Screen screen_of(int descriptor) {
  const bool terminal = ::isatty(descriptor) == 1;
  const std::string kind = variable("TERM");
  const bool escapes = terminal && !kind.empty() && kind != "dumb";
  return {terminal ? columns_of(descriptor) : 0, wants_colour(escapes), has_utf8(), escapes};
}

}  // namespace stepsim
