#include "costmodel/records/shipped.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "costmodel/base/own_folders.h"

namespace stepsim {
namespace {

bool is_there(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

std::vector<std::string> names_in(const std::string& folder, const char* extension) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(shipped_path(folder), error)) {
    if (entry.path().extension() == extension) {
      names.push_back(entry.path().stem().string());
    }
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace

std::vector<std::string> shipped_places(const std::string& name) {
  std::vector<std::string> places = {name};
  const std::vector<std::filesystem::path> folders = own_folders();
  // The nearest is the programs' folder, or the package, which stand beside "share".
  for (std::size_t i = 1; i < folders.size(); ++i) {
    places.push_back((folders[i] / "share" / "stepsim" / name).string());
  }
  for (const std::filesystem::path& folder : folders) {
    // The checkout, and not any folder of that name.
    if (is_there(folder / "scenarios" / "profiles") && is_there(folder / "meson.build")) {
      places.push_back((folder / name).string());
    }
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

bool is_name_alone(const std::string& named) {
  return !named.empty() && named != "-" && named.find_first_of("/.") == std::string::npos;
}

std::string scenario_path(const std::string& named) {
  if (is_there(named) || !is_name_alone(named)) {
    return shipped_path(named);
  }
  const std::string shipped = shipped_path("scenarios/" + named + ".toml");
  return is_there(shipped) ? shipped : named;
}

std::string profile_path(const std::string& named) {
  if (is_there(named)) {
    return named;
  }
  if (!is_name_alone(named)) {
    return shipped_path(named);
  }
  const std::string shipped = shipped_path("scenarios/profiles/" + named + ".json");
  return is_there(shipped) ? shipped : named;
}

std::vector<std::string> shipped_profiles() {
  return names_in("scenarios/profiles", ".json");
}

std::string no_shipped_profiles() {
  const std::string folder = "scenarios/profiles";
  return fmt::format(
      "no shipped profiles found: there is no folder {} here, nor above the program, as {}. "
      "Install "
      "stepsim (meson install -C build)",
      folder,
      shipped_places(folder).at(1));
}

std::vector<std::string> shipped_scenarios() {
  return names_in("scenarios", ".toml");
}

}  // namespace stepsim
