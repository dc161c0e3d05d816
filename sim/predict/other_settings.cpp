#include "sim/predict/other_settings.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/io/json_file.h"
#include "sim/predict/step_cost.h"

namespace stepsim {
namespace {

/// A member of an object that is a text; else empty.
std::string text_in(const Json& json, const char* key) {
  return json.is_object() && json.contains(key) && json.at(key).is_string()
             ? json.at(key).get<std::string>()
             : "";
}

const Json& member(const Json& json, const char* key) {
  static const Json kNone;
  return json.is_object() && json.contains(key) ? json.at(key) : kNone;
}

/// The kernels that ops were measured with, of the profile or of the one that it was made on.
/// Empty: unknown, or a build of the CPU kernels, which have no choice.
std::string measured_kernels(const Json& provenance) {
  std::string kernels = text_in(member(provenance, "versions"), "kernels");
  if (kernels == name_of(KernelChoice::TorchEager) || kernels == name_of(KernelChoice::Fused)) {
    return kernels;
  }
  const Json& base = member(member(provenance, "base"), "provenance");
  return base.is_object() ? measured_kernels(base) : "";
}

/// "1.13" as 113, "2.4.1+cu121" as 204; 0: not a version.
int version_number(const std::string& text) {
  char* rest = nullptr;
  const long major = std::strtol(text.c_str(), &rest, 10);
  return rest == text.c_str() || *rest != '.' || major < 0 || major > 99
             ? 0
             : static_cast<int>(major * 100 + std::strtol(rest + 1, nullptr, 10));
}

/// Whether this torch has the rules that the scenario states. 2.4 and 1.13 differ in nothing that a
/// recorded pass depends on; the release that brought the newest rules is not known.
bool has_rules(int torch, DdpRules stated) {
  constexpr int kUnlimitedFirst = 113;
  constexpr int kLastOld = 204;
  return stated == DdpRules::Torch18  ? torch < kUnlimitedFirst
         : stated == DdpRules::Newest ? torch > kLastOld
                                      : torch >= kUnlimitedFirst;
}

void add_recorded(const Scenario& scenario,
                  const Profile& profile,
                  std::vector<std::string>& differences) {
  const Json& records = member(member(*profile.provenance, "recorded"), "records");
  if (!records.is_array()) {
    return;
  }
  const auto add = [&](std::string text) {
    if (std::ranges::find(differences, text) == differences.end()) {
      differences.push_back(std::move(text));
    }
  };
  for (const Json& record : records) {
    const Json& ranks = member(record, "ranks");
    if (ranks.is_number_integer() && !profile.recorded->several_ranks &&
        ranks.get<std::int64_t>() != scenario.ranks) {
      add(fmt::format(
          "steps of {} ranks, and the scenario has {}", ranks.get<std::int64_t>(), scenario.ranks));
    }
    const std::string torch = text_in(member(record, "versions"), "torch");
    const int version = version_number(torch);
    if (version > 0 && !has_rules(version, scenario.ddp.torch)) {
      add(fmt::format("steps of torch {}, and the scenario has ddp.torch = \"{}\"",
                      printable(torch),
                      name_of(scenario.ddp.torch)));
    }
  }
}

}  // namespace

std::vector<std::string> other_settings(const Scenario& scenario, const Profile& profile) {
  std::vector<std::string> differences;
  if (scenario.times) {
    return differences;
  }
  if (prices_recorded_model(scenario, profile)) {
    add_recorded(scenario, profile, differences);
    return differences;
  }
  if (profile.recorded) {
    differences.push_back(
        fmt::format("steps of the model {}, which is not the scenario's, so that the profile's "
                    "prices of single ops are taken",
                    printable(profile.recorded->model.name)));
  }
  const std::string kernels = measured_kernels(*profile.provenance);
  if (const std::string_view own = name_of(scenario.model.kernels);
      !kernels.empty() && kernels != own) {
    differences.push_back(fmt::format("kernels {}, and the scenario has {}", kernels, own));
  }
  return differences;
}

}  // namespace stepsim
