#include "calibrate/import/recorded/recorded_units.h"

#include <cstddef>
#include <optional>
#include <string_view>

#include <nlohmann/json.hpp>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/model/transformer.h"

namespace stepsim {
namespace {

/// Modules of each unit, the model's own name being empty.
using UnitModules = std::vector<std::vector<std::string>>;

UnitModules unit_modules(const Json& sharding, const SourcePlace& place) {
  const Json modules = sharding.value("unit_modules", Json());
  try {
    return modules.get<UnitModules>();
  } catch (const Json::exception&) {
    throw InputError(place,
                     "parallel.unit_modules: expected the names of each unit's modules, as "
                     "stepsim_recorder.py writes them");
  }
}

/// The innermost unit around a parameter; nothing where there is none.
std::optional<std::size_t> unit_of(const UnitModules& units, std::string_view parameter) {
  std::optional<std::size_t> found;
  std::size_t longest = 0;
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    for (const std::string& module : units[unit]) {
      const bool inside =
          module.empty() || (parameter.starts_with(module) && parameter.size() > module.size() &&
                             parameter[module.size()] == '.');
      if (inside && (!found || module.size() >= longest)) {
        found = unit;
        longest = module.size();
      }
    }
  }
  return found;
}

/// The type that parameters are gathered or reduced in: a stated one, or their own.
Dtype stated_type(JsonReader& sharding, const char* key, Dtype own) {
  const std::string name = sharding.text_or(key, "own");
  return name == "own" ? own : parse_dtype(name);
}

/// Whether a unit is freed after its forward: all but the root, unless the record says otherwise.
bool is_freed(const Json& sharding, std::size_t unit, const std::vector<std::string>& modules) {
  const Json by_unit = sharding.value("reshard_by_unit", Json());
  const bool is_root = modules == std::vector<std::string>{""};
  const bool is_told = by_unit.is_array() && unit < by_unit.size() && !by_unit[unit].is_null();
  return is_told ? by_unit[unit] != false : !is_root;
}

}  // namespace

double RecordedUnits::forward_seconds(const UnitHostTimes& host) const {
  double seconds = 0;
  for (const RecordedUnit& unit : units) {
    const auto whole = static_cast<double>(unit.gathered);
    seconds += unit.tensors == 0 ? 0
                                 : host.forward + host.forward_tensor * unit.tensors +
                                       host.byte * (2 * whole / shards + 2 * whole);
  }
  return seconds;
}

double RecordedUnits::backward_seconds(const UnitHostTimes& host) const {
  double seconds = 0;
  for (const RecordedUnit& unit : units) {
    const double whole = unit.freed ? static_cast<double>(unit.gathered) : 0;
    const auto copied = static_cast<double>(unit.gradients + unit.reduced);
    seconds += unit.tensors == 0 ? 0
                                 : host.backward + host.backward_tensor * unit.tensors +
                                       host.byte * (2 * whole / shards + 2 * whole + copied);
  }
  return seconds;
}

RecordedUnits recorded_units(const RunRecord& record, const std::string& file) {
  const SourcePlace place{file};
  if (!record.training->contains("model")) {
    throw InputError(place,
                     "does not describe its model; record with Recorder(…, model=model), the one "
                     "that fully_shard was applied to");
  }
  const Json& described = (*record.training)["parallel"];
  JsonReader sharding(described, file, 1, "parallel");
  const UnitModules modules = unit_modules(described, place);
  RecordedUnits result;
  result.shards =
      sharding.has("shards") ? sharding.integer_in("shards", 1, kMaxInt) : record.world_size;
  result.replicas = sharding.has("replicas") ? sharding.integer_in("replicas", 1, kMaxInt) : 1;
  if (std::int64_t{result.shards} * result.replicas != record.world_size) {
    sharding.fail("shards",
                  std::to_string(result.shards) + " shards x " + std::to_string(result.replicas) +
                      " replicas are not the " + std::to_string(record.world_size) +
                      " ranks of the record");
  }
  if (sharding.has("notes")) {
    result.notes = sharding.texts("notes");
  }
  result.units.resize(modules.size());
  for (std::size_t unit = 0; unit < modules.size(); ++unit) {
    result.units[unit].freed = is_freed(described, unit, modules[unit]);
  }
  JsonReader model((*record.training)["model"], file, 1, "model");
  for (JsonReader& parameter : model.objects("parameters")) {
    const auto found = unit_of(modules, parameter.text("name"));
    if (!found) {
      continue;  // A note of the recorder says so.
    }
    RecordedUnit& unit = result.units[*found];
    const std::vector<std::int64_t> shape = parameter.integers("shape");
    const std::int64_t rows = shape.empty() ? 1 : shape.front();
    const std::int64_t padded = (rows + result.shards - 1) / result.shards * result.shards;
    const std::int64_t elements = rows > 0 ? elements_of(shape) / rows * padded : std::int64_t{0};
    const Dtype own = parse_dtype(parameter.text("dtype"));
    const Dtype gathered = stated_type(sharding, "param_dtype", own);
    unit.tensors += 1;
    unit.gathered += elements * element_size(gathered);
    if (!parameter.boolean_or("frozen", false)) {
      unit.gradients += elements * element_size(gathered);
      unit.reduced += elements * element_size(stated_type(sharding, "reduce_dtype", own));
      result.tensors += 1;
    }
  }
  return result;
}

}  // namespace stepsim
