#pragma once

#include <string>
#include <vector>

namespace stepsim {

/// Where a shipped file with a name like "scenarios/token_skew.toml" may be, in the order of the
/// search: here; installed (share/stepsim beside a folder that the program or the Python extension
/// is in); in the checkout whose build folder it is in.
[[nodiscard]] std::vector<std::string> shipped_places(const std::string& name);

/// `path` where it is there; else, of a name below "scenarios", the first of shipped_places() that
/// is, so that the names of the documentation work in any folder. A name that is neither stays as
/// it is.
[[nodiscard]] std::string shipped_path(const std::string& path);

/// The file of a scenario. A name alone ("token_skew") is that of a shipped one unless a file is
/// called so; else as shipped_path().
[[nodiscard]] std::string scenario_path(const std::string& named);

/// Whether a profile or scenario is named as "h100_8x_published", without a folder and an
/// extension.
[[nodiscard]] bool is_name_alone(const std::string& named);

/// The file of a profile. A name alone is that of a shipped one unless a file is called so. What is
/// not found stays as it is.
[[nodiscard]] std::string profile_path(const std::string& named);

/// The names of all shipped profiles or scenarios that can be found, in alphabetical order.
[[nodiscard]] std::vector<std::string> shipped_profiles();
[[nodiscard]] std::vector<std::string> shipped_scenarios();

/// "no shipped profiles found: there is no folder …": why a name alone finds nothing, where neither
/// a checkout nor an installation is around the program.
[[nodiscard]] std::string no_shipped_profiles();

}  // namespace stepsim
