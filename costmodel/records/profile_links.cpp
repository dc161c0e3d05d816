#include <algorithm>
#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"
#include "costmodel/io/json_numbers.h"
#include "costmodel/records/profile_format.h"

namespace stepsim {
namespace {

/// A member of LinkSpeeds and its name in the file.
struct SpeedMember {
  const char* name;
  double LinkSpeeds::*member;
  bool positive;
};

constexpr SpeedMember kSpeedMembers[] = {
    {"intra_bytes_per_s", &LinkSpeeds::intra_bytes_per_s, true},
    {"intra_half_bytes", &LinkSpeeds::intra_half_bytes, false},
    {"inter_bytes_per_s", &LinkSpeeds::inter_bytes_per_s, true},
    {"inter_half_bytes", &LinkSpeeds::inter_half_bytes, false},
    {"two_nodes", &LinkSpeeds::two_nodes, true},
    {"per_doubling_of_nodes", &LinkSpeeds::per_doubling_of_nodes, false},
    {"per_doubling_of_ranks", &LinkSpeeds::per_doubling_of_ranks, false}};

Json speeds_json(const LinkSpeeds& speeds) {
  Json json;
  for (const SpeedMember& one : kSpeedMembers) {
    json[one.name] = finite(speeds.*one.member);
  }
  return json;
}

LinkSpeeds read_speeds(JsonReader reader) {
  LinkSpeeds speeds;
  for (const SpeedMember& one : kSpeedMembers) {
    const double value = reader.number(one.name);
    if (!std::isfinite(value) || (one.positive && value <= 0)) {
      reader.fail(one.name, "expected more than 0");
    }
    speeds.*one.member = value;
  }
  for (const char* half : {"intra_half_bytes", "inter_half_bytes"}) {
    (void)reader.not_negative(half);
  }
  return speeds;
}

}  // namespace

Json links_json(const FittedLinks& links) {
  Json json;
  json["fitted"] = speeds_json(links.fitted);
  json["run_error"] = finite(links.run_error);
  json["ranks"] = links.ranks;
  json["nodes"] = links.nodes;
  json["draws"] = mapped(links.draws, speeds_json);
  return json;
}

FittedLinks read_links(JsonReader reader) {
  FittedLinks links;
  links.fitted = read_speeds(reader.object("fitted"));
  links.run_error = reader.not_negative("run_error");
  links.ranks = reader.integer_in("ranks", 1, std::numeric_limits<int>::max());
  links.nodes = reader.integer_in("nodes", 1, std::numeric_limits<int>::max());
  for (JsonReader& draw : reader.objects("draws")) {
    links.draws.push_back(read_speeds(std::move(draw)));
  }
  return links;
}

}  // namespace stepsim
