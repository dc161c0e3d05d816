#pragma once

#include <string>
#include <vector>

#include "sim/cli/options.h"
#include "sim/report/html/page_data.h"

namespace stepsim {

/// "stepsim COMMAND ARGUMENTS", as a shell would take it.
[[nodiscard]] std::string command_line(const std::string& command,
                                       const std::vector<std::string>& arguments);

/// What the page of any command states. Made now, or at $SOURCE_DATE_EPOCH.
[[nodiscard]] PageContent page_content(const std::string& command,
                                       const std::vector<std::string>& arguments,
                                       const OptionParser& parser,
                                       const Scenario& scenario);

/// Bucket caps of one policy: timelines of the step that is the median of `prediction`.
void add_valley(const CommonOptions& options,
                const Scenario& scenario,
                const Profile& profile,
                const Prediction& prediction,
                PageContent& content);

/// The scenario as it stands: one timeline, of the step that is the median of `prediction`.
void add_timeline(const CommonOptions& options,
                  const Scenario& scenario,
                  const Prediction& prediction,
                  PageContent& content);

}  // namespace stepsim
