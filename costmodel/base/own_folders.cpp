#include "costmodel/base/own_folders.h"

#include <system_error>

#include <dlfcn.h>

namespace stepsim {

std::vector<std::filesystem::path> own_folders() {
  std::error_code error;
  std::filesystem::path file = std::filesystem::read_symlink("/proc/self/exe", error);
  Dl_info library{};
  if (::dladdr(reinterpret_cast<const void*>(&own_folders), &library) != 0) {
    const std::filesystem::path holder = library.dli_fname;
    if (holder.extension() == ".so") {
      file = std::filesystem::absolute(holder, error);
    }
  }
  std::vector<std::filesystem::path> folders;
  while (file.has_relative_path()) {
    file = file.parent_path();
    folders.push_back(file);
  }
  return folders;
}

}  // namespace stepsim
