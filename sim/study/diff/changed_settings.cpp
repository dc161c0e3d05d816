#include "sim/study/diff/changed_settings.h"

#include <set>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace stepsim {
namespace {

std::string shown(const Json& value) {
  if (value.is_null()) {
    return "none";
  }
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Adds what differs in members of objects, however deep they are.
void add(const std::string& name,
         const Json& before,
         const Json& after,
         std::vector<std::string>& changed) {
  if (before == after) {
    return;
  }
  const bool both = before.is_object() && after.is_object();
  if (!both) {
    changed.push_back(fmt::format("{} {} -> {}", name, shown(before), shown(after)));
    return;
  }
  std::set<std::string> members;
  for (const Json* side : {&before, &after}) {
    for (const auto& [member, value] : side->items()) {
      members.insert(member);
    }
  }
  for (const std::string& member : members) {
    add(name.empty() ? member : name + "." + member,
        before.value(member, Json()),
        after.value(member, Json()),
        changed);
  }
}

Json settings_of(const RunRecord& record) {
  Json settings = {{"policy", record.policy},
                   {"device", record.device},
                   {"backend", record.backend},
                   {"host", record.host},
                   {"cores", record.cores},
                   {"versions", *record.versions}};
  for (const char* const member : {"ddp", "autocast", "optimizer", "loader"}) {
    if (record.training->contains(member)) {
      settings[member] = (*record.training)[member];
    }
  }
  return settings;
}

}  // namespace

std::vector<std::string> changed_settings(const RunRecord& before, const RunRecord& after) {
  std::vector<std::string> changed;
  add("", settings_of(before), settings_of(after), changed);
  return changed;
}

}  // namespace stepsim
