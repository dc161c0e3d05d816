#include "sim/study/diff/changed_settings.h"

#include <set>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace stepsim {
namespace {

constexpr std::size_t kLongest = 60;  // Letters of a value: lines of an answer have 80.

std::string cut(const std::string& text) {
  return text.size() <= kLongest ? text : text.substr(0, kLongest - 1) + "…";
}

std::string shown(const Json& value) {
  if (value.is_null()) {
    return "none";
  }
  if (value.is_array()) {
    return cut(fmt::format("{} values", value.size()));
  }
  return cut(value.is_string() ? value.get<std::string>()
                               : value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

/// Adds what differs in members of objects, however deep they are.
void add(const std::string& name,
         const Json& before,
         const Json& after,
         std::vector<std::string>& changed) {
  if (before == after) {
    return;
  }
  const bool nested =
      (before.is_object() || before.is_null()) && (after.is_object() || after.is_null());
  if (!nested) {
    changed.push_back(fmt::format("{} {} -> {}", name, shown(before), shown(after)));
    return;
  }
  std::set<std::string> members;
  const auto member_of = [](const Json& side, const std::string& member) {
    return side.is_object() ? side.value(member, Json()) : Json();
  };
  for (const Json* side : {&before, &after}) {
    for (const auto& [member, value] : side->items()) {
      members.insert(member);
    }
  }
  for (const std::string& member : members) {
    add(name.empty() ? member : fmt::format("{}.{}", name, member),
        member_of(before, member),
        member_of(after, member),
        changed);
  }
}

bool is_parallel(const RunRecord& record) {
  return record.training->contains("parallel");
}

/// "DDP", "fully_shard (4 units, 2 shards)".
std::string sharding_of(const RunRecord& record) {
  if (!is_parallel(record)) {
    return record.world_size > 1 ? "DDP" : "one rank";
  }
  const Json& parallel = (*record.training)["parallel"];
  const Json units = parallel.value("unit_modules", Json::array());
  return fmt::format("fully_shard ({} units, {} shards)",
                     units.size(),
                     shown(parallel.value("shards", Json(record.world_size))));
}

/// `alike`: the settings of the parallelism mean the same on both sides.
Json settings_of(const RunRecord& record, bool alike) {
  Json settings = {{"policy", record.policy},
                   {"device", record.device},
                   {"backend", record.backend},
                   {"host", record.host},
                   {"cores", record.cores},
                   {"versions", *record.versions}};
  for (const char* const member : {"autocast", "optimizer", "loader"}) {
    if (record.training->contains(member)) {
      settings[member] = (*record.training)[member];
    }
  }
  for (const char* const member : {"ddp", "parallel"}) {
    if (alike && record.training->contains(member)) {
      settings[member] = (*record.training)[member];
    }
  }
  return settings;
}

}  // namespace

std::vector<std::string> changed_settings(const RunRecord& before, const RunRecord& after) {
  std::vector<std::string> changed;
  const bool alike = is_parallel(before) == is_parallel(after);
  if (!alike) {
    changed.push_back(fmt::format("{} -> {}", sharding_of(before), sharding_of(after)));
  }
  add("", settings_of(before, alike), settings_of(after, alike), changed);
  return changed;
}

}  // namespace stepsim
