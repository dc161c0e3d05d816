#include <nlohmann/json.hpp>

#include "costmodel/base/row_named.h"
#include "costmodel/compute/shape_cost.h"
#include "costmodel/io/json_numbers.h"
#include "costmodel/records/profile_format.h"

namespace stepsim {

Json shape_cost_json(const ShapeCost& cost) {
  Json json = {{"mechanism", cost.mechanism},
               {"key", shape_key_names()[static_cast<std::size_t>(cost.key)]},
               {"shared", cost.shared}};
  if (cost.mask_in_key) {
    json["mask_in_key"] = true;
  }
  if (cost.round_to > 1) {
    json["round_to"] = cost.round_to;
  }
  if (cost.to_power_of_two) {
    json["to_power_of_two"] = true;
  }
  if (cost.entries > 0) {
    json["entries"] = cost.entries;
    json["eviction"] = eviction_names()[static_cast<std::size_t>(cost.eviction)];
  }
  if (cost.compile != CompileMode::None) {
    json["mode"] = compile_mode_names()[static_cast<std::size_t>(cost.compile)];
    json["recompile_limit"] = cost.recompile_limit;
    json["uncompiled_factor"] = finite(cost.uncompiled_factor);
  }
  json["forward_s"] = finite(cost.forward_seconds);
  json["backward_s"] = finite(cost.backward_seconds);
  if (cost.forward_device_seconds > 0 || cost.backward_device_seconds > 0) {
    json["forward_device_s"] = finite(cost.forward_device_seconds);
    json["backward_device_s"] = finite(cost.backward_device_seconds);
  }
  json["relative_error"] = finite(cost.relative_error);
  return json;
}

ShapeCost read_shape_cost(JsonReader reader) {
  ShapeCost cost;
  cost.mechanism = reader.text("mechanism");
  cost.key = reader.parsed("key", [](std::string_view name) {
    return enum_named<ShapeKey>(shape_key_names(), "key of a shape", name);
  });
  cost.shared = reader.boolean_or("shared", false);
  cost.mask_in_key = reader.boolean_or("mask_in_key", false);
  cost.round_to = reader.has("round_to") ? reader.integer_in("round_to", 1, 1 << 30) : 1;
  cost.to_power_of_two = reader.boolean_or("to_power_of_two", false);
  if (reader.has("entries")) {
    cost.entries = reader.integer_in("entries", 1, kMaxInt);
    cost.eviction = reader.parsed("eviction", [](std::string_view name) {
      return enum_named<Eviction>(eviction_names(), "eviction", name);
    });
  }
  if (reader.has("mode")) {
    cost.compile = reader.parsed("mode", [](std::string_view name) {
      return enum_named<CompileMode>(compile_mode_names(), "mode of a compiler", name);
    });
    cost.recompile_limit = reader.integer_in("recompile_limit", 1, kMaxInt);
    cost.uncompiled_factor = reader.not_negative("uncompiled_factor");
  }
  cost.forward_seconds = reader.not_negative("forward_s");
  cost.backward_seconds = reader.not_negative("backward_s");
  cost.forward_device_seconds = reader.not_negative_or("forward_device_s", 0);
  cost.backward_device_seconds = reader.not_negative_or("backward_device_s", 0);
  cost.relative_error = reader.not_negative_or("relative_error", 0);
  return cost;
}

}  // namespace stepsim
