#include "tests/published/temporary_file.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "costmodel/base/input_error.h"

namespace stepsim::published {

TemporaryFile::TemporaryFile(const std::string& name)
    : folder_((std::filesystem::temp_directory_path() / "stepsim-published-XXXXXX").string()) {
  if (mkdtemp(folder_.data()) == nullptr) {
    throw EnvironmentFault("no temporary folder: " + std::generic_category().message(errno));
  }
  path_ = folder_ + "/" + name;
}

TemporaryFile::~TemporaryFile() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace stepsim::published
