#include "sim/cli/shipped.h"

#include <filesystem>

namespace stepsim {

std::string shipped_path(const std::string& path) {
  const std::filesystem::path name(path);
  std::error_code error;
  if (name.empty() || *name.begin() != "scenarios" || std::filesystem::exists(name, error)) {
    return path;
  }
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    return path;
  }
  const auto shipped = program.parent_path().parent_path() / "share" / "stepsim" / name;
  return std::filesystem::exists(shipped, error) ? shipped.string() : path;
}

}  // namespace stepsim
