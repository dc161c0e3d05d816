#include "costmodel/records/shipped.h"

#include <algorithm>
#include <filesystem>

namespace stepsim {
namespace {

bool is_there(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

}  // namespace

std::vector<std::string> shipped_places(const std::string& name) {
  std::vector<std::string> places = {name};
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    const auto prefix = program.parent_path().parent_path();
    places.push_back((prefix / "share" / "stepsim" / name).string());
    places.push_back((prefix.parent_path() / name).string());
  }
  return places;
}

std::string shipped_path(const std::string& path) {
  const std::filesystem::path name(path);
  if (name.empty() || *name.begin() != "scenarios") {
    return path;
  }
  const std::vector<std::string> places = shipped_places(path);
  const auto found = std::ranges::find_if(places, is_there);
  return found == places.end() ? path : *found;
}

bool is_profile_name(const std::string& named) {
  return !named.empty() && named != "-" && named.find_first_of("/.") == std::string::npos;
}

std::string profile_path(const std::string& named) {
  if (is_there(named)) {
    return named;
  }
  if (!is_profile_name(named)) {
    return shipped_path(named);
  }
  const std::string shipped = shipped_path("scenarios/profiles/" + named + ".json");
  return is_there(shipped) ? shipped : named;
}

std::vector<std::string> shipped_profiles() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(shipped_path("scenarios/profiles"), error)) {
    if (entry.path().extension() == ".json") {
      names.push_back(entry.path().stem().string());
    }
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace stepsim
