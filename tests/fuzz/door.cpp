#include "tests/fuzz/door.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>

#include <unistd.h>

namespace stepsim::fuzz {

namespace {

/// A folder that is removed when the process ends in order.
class DoorFolder {
 public:
  DoorFolder() {
    const std::filesystem::path memory = "/dev/shm";
    const bool has_memory = ::access(memory.c_str(), W_OK) == 0;
    std::string name =
        ((has_memory ? memory : std::filesystem::temp_directory_path()) / "stepsim-fuzz-XXXXXX");
    if (::mkdtemp(name.data()) == nullptr) {
      std::abort();
    }
    path_ = name;
  }
  ~DoorFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  DoorFolder(const DoorFolder&) = delete;
  DoorFolder& operator=(const DoorFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace

Door door_of(std::string_view name) {
  static const std::map<std::string_view, Door> kDoors = {
      {"kineto", enter_kineto},
      {"lengths", enter_lengths},
      {"nccl_log", enter_nccl_log},
      {"plan", enter_plan},
      {"points", enter_points},
      {"profile", enter_profile},
      {"replay", enter_replay},
      {"run_record", enter_run_record},
      {"samples", enter_samples},
      {"scenario", enter_scenario},
      {"simulation", enter_simulation},
      {"tables", enter_tables},
      {"torch_records", enter_torch_records},
      {"validate", enter_validate},
  };
  const auto found = kDoors.find(name);
  return found != kDoors.end() ? found->second : nullptr;
}

void enter(Door door, std::string_view input) {
  (void)accepts([&] { door(input); });
}

void require(bool holds, const std::string& what) {
  if (!holds) {
    throw std::logic_error(what);
  }
}

std::string path_of(const std::string& name) {
  static const DoorFolder folder;
  return (folder.path() / name).string();
}

std::string file_with(const std::string& name, std::string_view text) {
  std::string path = path_of(name);
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

std::string source_path(const std::string& name) {
  return (std::filesystem::path(STEPSIM_SOURCE_ROOT) / name).string();
}

std::vector<InputPart> parts_of(std::string_view input) {
  constexpr std::string_view kMark = "=== ";
  std::vector<InputPart> parts = {{"", input.substr(0, 0)}};
  std::size_t start = 0;
  for (std::size_t at = 0; at < input.size();) {
    const std::size_t end = std::min(input.find('\n', at), input.size());
    const std::string_view line = input.substr(at, end - at);
    if (line.starts_with(kMark)) {
      parts.back().text = input.substr(start, at - start);
      start = std::min(end + 1, input.size());
      parts.push_back({std::string(line.substr(kMark.size())), {}});
    }
    at = end + 1;
  }
  parts.back().text = input.substr(start);
  return parts;
}

}  // namespace stepsim::fuzz
