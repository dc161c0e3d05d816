#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/compute/op_cost.h"
#include "costmodel/io/json_file.h"
#include "costmodel/io/json_numbers.h"
#include "costmodel/records/profile.h"
#include "costmodel/records/profile_format.h"

namespace stepsim {
namespace {

/// Whether any fit of a recorded model says that compute grows with the ranks of a node.
bool grows_with_nodes(const RecordedModel& recorded) {
  const auto grows = [](const SeveralRanks& several) { return several.per_doubling_of_node != 0; };
  return (recorded.several_ranks && grows(*recorded.several_ranks)) ||
         std::ranges::any_of(recorded.several_ranks_draws, grows);
}

std::string format_of(const Profile& profile) {
  const bool recorded =
      profile.recorded || profile.cores > 0 || !profile.noise.step_quantiles.empty();
  int version = recorded ? kRecordedVersion : 1;
  for (const OpCost& cost : profile.ops) {
    version = std::max(version, since_version(cost));
  }
  if (!profile.new_shapes.empty()) {
    version = std::max(version, kShapesVersion);
  }
  if (profile.links || (profile.recorded && profile.recorded->several_ranks)) {
    version = std::max(version, kLinksVersion);
  }
  if (!profile.rank_factors.empty()) {
    version = kUnequalRanksVersion;
  }
  if (profile.noise.stalls.per_step > 0) {
    version = kStallsVersion;
  }
  if (profile.recorded && profile.recorded->launch_seconds > 0) {
    version = kRecordedHostVersion;
  }
  if (profile.noise.stalls.step_seconds > 0) {
    version = kStallsByClockVersion;
  }
  if (profile.noise.crowded.is_crowded()) {
    version = kCrowdedVersion;
  }
  if (profile.recorded && grows_with_nodes(*profile.recorded)) {
    version = kNodeRanksVersion;
  }
  if (profile.unit_host) {
    version = kUnitHostVersion;
  }
  if (profile.launched_copies > 0 || (profile.recorded && profile.recorded->launched_copies > 0)) {
    version = kLaunchedCopiesVersion;
  }
  if (std::ranges::any_of(profile.new_shapes, [](const ShapeCost& cost) {
        return cost.compile != CompileMode::None;
      })) {
    version = kCompilersVersion;
  }
  return fmt::format("{}{}", kProfileFormat, version);
}

Json op_json(const OpCost& cost) {
  Json json;
  json["op"] = name_of(cost.op_class);
  json["pass"] = name_of(cost.pass);
  json["dtype"] = name_of(cost.dtype);
  json["n"] = cost.n;
  json["k"] = cost.k;
  json["heads"] = cost.heads;
  json["head_dim"] = cost.head_dim;
  json["form"] = form_row(cost.form).name;
  form_row(cost.form).write(cost, json);
  json["range"] = range_json({cost.range_lo, cost.range_hi});
  json["samples"] = cost.samples;
  json["errors"] = errors_json(cost.errors);
  return json;
}

Json collective_json(const CollectiveCost& cost) {
  Json json;
  json["kind"] = cost.kind;
  json["ranks"] = cost.ranks;
  json["nodes"] = cost.nodes;
  json["dtype"] = name_of(cost.dtype);
  json["variable"] = "bytes";
  json["knots_s"] = knots_json(cost.knots);
  if (cost.tail_seconds_per_byte) {
    json["tail_s_per_byte"] = finite(*cost.tail_seconds_per_byte);
  }
  if (!cost.spread.empty()) {
    json["spread"] = numbers_json(cost.spread);
  }
  json["errors"] = errors_json(cost.errors);
  return json;
}

Json interference_json(const InterferenceProfile& interference) {
  const Interference& value = interference.value;
  Json json;
  const auto put = [&json](const std::string& key,
                           double number,
                           const std::optional<InterferenceProfile::Interval>& interval) {
    json[key] = finite(number);
    if (interval) {
      json[key + "_interval90"] = range_json(*interval);
    }
  };
  put("compute", value.compute, interference.compute);
  put("transfer", value.transfer, interference.transfer);
  put("memory_share", value.memory_share, interference.memory_share);
  json["multiprocessors"] = value.multiprocessors;
  json["max_channels"] = value.max_channels;
  json["limit"] = finite(value.limit);
  if (!interference.compute_draws.empty()) {
    json["compute_draws"] = interference.compute_draws;
  }
  json["samples"] = interference.samples;
  json["errors"] = errors_json(interference.errors);
  return json;
}

std::string line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// One member a line.
std::string recorded_text(const RecordedModel& recorded) {
  const Json json = recorded_json(recorded);
  std::string text = "{";
  for (auto member = json.begin(); member != json.end(); ++member) {
    text += fmt::format(
        "{}\n    \"{}\": {}", text.size() > 1 ? "," : "", member.key(), line(member.value()));
  }
  return text + "\n  }";
}

/// One entry a line: short enough to read, and a changed entry is a one-line difference.
template <typename Costs, typename ToJson>
std::string list_text(const Costs& costs, ToJson to_text) {
  std::string text = "[";
  for (const auto& cost : costs) {
    text += fmt::format("{}\n    {}", text.size() > 1 ? "," : "", line(to_text(cost)));
  }
  return text + (costs.empty() ? "]" : "\n  ]");
}

}  // namespace

Json errors_json(const FitErrors& errors) {
  Json json = Json::object();
  const auto put = [&json](const char* key, const std::optional<double>& value) {
    if (value) {
      json[key] = finite(*value);
    }
  };
  put("random", errors.random);
  put("block", errors.block);
  put("beyond", errors.beyond);
  put("bias", errors.bias);
  return json;
}

void write_profile(const std::string& path, const Profile& profile) {
  Json host = {{"launch_s", finite(profile.launch_seconds)},
               {"host_is_device", profile.host_is_device}};
  if (profile.launch_error > 0) {
    host["launch_error"] = finite(profile.launch_error);
  }
  if (profile.launched_copies > 0) {
    host["launched_copies"] = finite(profile.launched_copies);
  }
  if (profile.unit_host) {
    host["units"] = unit_host_json(*profile.unit_host);
  }
  if (profile.cores > 0) {
    // Whole numbers stay without a decimal point, as earlier versions read them.
    const auto whole = static_cast<std::int64_t>(profile.cores);
    host["cores"] =
        static_cast<double>(whole) == profile.cores ? Json(whole) : Json(finite(profile.cores));
  }
  if (!profile.rank_factors.empty()) {
    host["rank_factors"] = numbers_json(profile.rank_factors);
  }
  Json noise = {{"step_jitter", finite(profile.noise.step_jitter)},
                {"drift", finite(profile.noise.drift)},
                {"sentinel_s", finite(profile.noise.sentinel_seconds)}};
  if (!profile.noise.step_quantiles.empty()) {
    noise["step_quantiles"] = numbers_json(profile.noise.step_quantiles);
    noise["rank_correlation"] = finite(profile.noise.rank_correlation);
  }
  if (profile.noise.other_models > 0) {
    noise["other_models"] = finite(profile.noise.other_models);
  }
  if (profile.noise.stalls.per_step > 0) {
    noise["stalls"] = {{"per_step", finite(profile.noise.stalls.per_step)},
                       {"seconds", numbers_json(profile.noise.stalls.seconds)}};
    if (profile.noise.stalls.step_seconds > 0) {
      noise["stalls"]["step_s"] = finite(profile.noise.stalls.step_seconds);
      noise["stalls"]["steps"] = profile.noise.stalls.steps;
    }
  }
  if (profile.noise.crowded.is_crowded()) {
    noise["crowded"] = {{"slowed", finite(profile.noise.crowded.slowed)},
                        {"run_spread", finite(profile.noise.crowded.run_spread)}};
  }
  std::string text = "{\n";
  const auto member = [&text](std::string_view key, const std::string& value, bool last = false) {
    text += fmt::format("  \"{}\": {}{}\n", key, value, last ? "" : ",");
  };
  member("format", line(format_of(profile)));
  member("name", line(profile.name));
  member("device", line(profile.device));
  member("backend", line(profile.backend));
  member("provenance", line(*profile.provenance));
  member("memory_capacity_bytes", fmt::format("{}", profile.memory_capacity.value()));
  member("host", line(host));
  member("noise", line(noise));
  if (profile.interference) {
    member("interference", line(interference_json(*profile.interference)));
  }
  if (!profile.new_shapes.empty()) {
    member("new_shapes", list_text(profile.new_shapes, shape_cost_json));
  }
  if (profile.recorded) {
    member("recorded", recorded_text(*profile.recorded));
  }
  if (profile.links) {
    member("links", line(links_json(*profile.links)));
  }
  member("ops", list_text(profile.ops, op_json));
  member("collectives", list_text(profile.collectives, collective_json), true);
  write_text_atomically(path, text + "}\n");
}

}  // namespace stepsim
