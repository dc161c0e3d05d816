#include "sim/study/bucket_choice.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "costmodel/base/mapped.h"

namespace stepsim {

namespace {

/// Whether the newest DDP has been left its default, whose first bucket a stated cap would change.
bool has_default_first(const BucketChoice& choice) {
  return choice.ddp.torch == DdpRules::Newest &&
         choice.ddp.first_bucket_cap != choice.ddp.bucket_cap;
}

std::string joined(const BucketChoice& choice, const char* before, const char* behind) {
  return fmt::format(
      "[{}]",
      fmt::join(mapped(choice.mib, [&](const std::string& mib) { return before + mib + behind; }),
                ", "));
}

}  // namespace

std::string python_argument(const BucketChoice& choice) {
  if (!choice.ddp.bucket_caps.empty()) {
    return "bucket_cap_mb_list=" + joined(choice, "", "");
  }
  return "bucket_cap_mb=" + (has_default_first(choice) ? "None" : choice.mib.front());
}

std::string toml_lines(const BucketChoice& choice) {
  if (!choice.ddp.bucket_caps.empty()) {
    return "torch = \"newest\"\nbucket_caps = " + joined(choice, "\"", " MiB\"") + "\n";
  }
  return fmt::format("bucket_cap = \"{} MiB\"\n{}",
                     choice.mib.front(),
                     has_default_first(choice) ? "first_bucket_cap = \"1 MiB\"\n" : "");
}

std::vector<Setting> choice_settings(const BucketChoice& choice, const DdpOptions& of_scenario) {
  const Setting list("ddp.bucket_caps", joined(choice, "\"", " MiB\""));
  if (!choice.ddp.bucket_caps.empty()) {
    return {{"ddp.torch", "newest"}, list};
  }
  if (!of_scenario.bucket_caps.empty()) {
    return {list};  // A cap has no effect beside the scenario's list; a list of one is the same.
  }
  std::vector<Setting> settings = {{"ddp.bucket_cap", choice.mib.front() + " MiB"}};
  if (has_default_first(choice)) {
    settings.emplace_back("ddp.first_bucket_cap", "1 MiB");
  }
  return settings;
}

}  // namespace stepsim
