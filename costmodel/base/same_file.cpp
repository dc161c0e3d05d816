#include "costmodel/base/same_file.h"

#include <filesystem>

namespace stepsim {

bool is_same_file(const std::string& a, const std::string& b) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::exists(a, ignored)) {
    return fs::is_regular_file(a, ignored) && fs::equivalent(a, b, ignored);
  }
  return fs::absolute(a, ignored).lexically_normal() == fs::absolute(b, ignored).lexically_normal();
}

}  // namespace stepsim
