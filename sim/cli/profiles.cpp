#include <algorithm>
#include <filesystem>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/records/profile.h"
#include "costmodel/records/shipped.h"
#include "costmodel/terminal/table.h"
#include "sim/ask/question.h"

namespace stepsim {

namespace {

constexpr const char* kShippedProfiles = "scenarios/profiles";

struct ProfilesOptions {
  std::string dir = kShippedProfiles;
};

constexpr const char* kProfilesUsage =
    "usage: stepsim profiles [--dir FOLDER] [--json FILE]\n\n"
    "The calibrated machines in a folder: without --dir the shipped ones, which\n"
    "--profile and [cluster] profile also take by name.\n\n"
    "examples:\n"
    "  stepsim profiles\n"
    "  stepsim profiles --dir my_machines --json -\n";

std::vector<std::string> profile_files(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".json") {
      files.push_back(entry.path().string());
    }
  }
  if (error) {
    const bool is_shipped = folder == kShippedProfiles;
    throw InputError(SourcePlace{"stepsim profiles"},
                     is_shipped ? no_shipped_profiles() + ", or name a folder with --dir"
                                : "cannot read folder " + printable(folder) + ": " +
                                      error.message() + "; name another with --dir");
  }
  std::ranges::sort(files);
  return files;
}

Answer ask_profiles(const Request&, const ProfilesOptions& options) {
  Table table({"profile", "device", "backend", "costs", "all-reduce ranks", "file"});
  Json list = Json::array();
  std::string origins;
  for (const std::string& file : profile_files(shipped_path(options.dir))) {
    const Profile profile = read_profile(file);
    std::vector<int> ranks = mapped(profile.collectives, &CollectiveCost::ranks);
    table.add({profile.name,
               profile.device,
               profile.backend,
               std::to_string(profile.ops.size()),
               fmt::format("{}", fmt::join(ranks, ",")),
               file});
    if (const std::string origin = compute_prices_origin(profile); !origin.empty()) {
      origins += fmt::format(
          "{}: prices of compute: {}\n", profile.name, printable(origin, std::string::npos));
    }
    list.push_back({{"name", profile.name},
                    {"device", profile.device},
                    {"backend", profile.backend},
                    {"file", file},
                    {"all_reduce_ranks", ranks},
                    {"provenance", *profile.provenance}});
  }
  Answer answer;
  answer.text = [=](const Screen& screen) { return table.text(screen) + origins; };
  answer.json = [=] { return list; };
  return answer;
}

}  // namespace

Question profiles_question() {
  return question("profiles",
                  "the calibrated machines there are",
                  kProfilesUsage,
                  std::vector<OptionRow>{
                      option("json", &Outputs::json, "FILE or -: write the list as JSON").written(),
                      option("dir", &ProfilesOptions::dir, "FOLDER: where the profiles are")},
                  ask_profiles);
}

}  // namespace stepsim
