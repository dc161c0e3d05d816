#include "sim/cli/page.h"

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "costmodel/shell_word.h"
#include "sim/bucket_valley.h"
#include "sim/report/html/timeline_data.h"
#include "sim/step_picture.h"
#include "sim/utc_time.h"

namespace stepsim {

namespace {

std::string made_at() {
  // https://reproducible-builds.org/specs/source-date-epoch/
  const char* epoch = std::getenv("SOURCE_DATE_EPOCH");
  const std::int64_t now =
      std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  return utc_text(epoch != nullptr ? std::strtoll(epoch, nullptr, 10) : now);
}

SweepOptions picture_options(const CommonOptions& options,
                             const Scenario& scenario,
                             const Prediction& prediction) {
  SweepOptions sweep_options;
  sweep_options.policy = prediction.policy;
  sweep_options.overrides = options.set;
  sweep_options.picture_of_step = median_step(prediction, scenario.warmup_steps);
  return sweep_options;
}

void add(const std::vector<CapPoint>& caps, PageContent& content) {
  for (Json& timeline : valley_json(caps, content.warnings)) {
    content.timelines.push_back(std::move(timeline));
  }
}

}  // namespace

std::string command_line(const std::string& command, const std::vector<std::string>& arguments) {
  std::string line = "stepsim " + command;
  for (const std::string& argument : arguments) {
    line += " " + shell_word(argument);
  }
  return line;
}

PageContent page_content(const std::string& command,
                         const std::vector<std::string>& arguments,
                         const OptionParser& parser,
                         const Scenario& scenario) {
  PageContent content;
  content.kind = command;
  content.version = STEPSIM_VERSION;
  content.made = made_at();
  content.command = command_line(command, arguments);
  content.profile_path =
      parser.has("profile") ? parser.get<std::string>("profile") : scenario.profile;
  for (const PolicySpec& policy : scenario.policies) {
    if (policy.lengths) {
      content.references.push_back(policy.name);
    }
  }
  return content;
}

void add_valley(const CommonOptions& options,
                const Scenario& scenario,
                const Profile& profile,
                const Prediction& prediction,
                PageContent& content) {
  add(bucket_valley(scenario, profile, picture_options(options, scenario, prediction)), content);
}

void add_timeline(const CommonOptions& options,
                  const Scenario& scenario,
                  const Prediction& prediction,
                  PageContent& content) {
  const SweepOptions of_one = picture_options(options, scenario, prediction);
  add({{scenario.ddp.bucket_cap, true, sweep(scenario, {}, of_one).front()}}, content);
}

}  // namespace stepsim
