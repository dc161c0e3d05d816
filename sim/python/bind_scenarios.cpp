#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "sim/python/bindings.h"
#include "sim/python/scenario_values.h"
#include "sim/scenario/toml_text.h"
#include "sim/study/scenario_plans.h"

namespace py = pybind11;

namespace stepsim {
namespace {

using Kind = TomlValue::Kind;

std::string text_of_key(const py::handle& name) {
  if (!py::isinstance<py::str>(name)) {
    throw py::type_error(
        fmt::format("a key of a scenario is a text, not {}", py::repr(name).cast<std::string>()));
  }
  return name.cast<std::string>();
}

TomlValue value_of_python(const py::handle& value) {
  TomlValue result;
  if (py::hasattr(value, "tolist")) {  // NumPy scalars and arrays, tensors.
    return value_of_python(value.attr("tolist")());
  }
  if (py::isinstance<py::bool_>(value)) {
    result.kind = Kind::Boolean;
    result.boolean = value.cast<bool>();
  } else if (py::isinstance<py::int_>(value)) {
    result.kind = Kind::Integer;
    try {
      result.integer = value.cast<std::int64_t>();
    } catch (const py::cast_error&) {
      throw py::value_error(
          fmt::format("{} is beyond 64 bits", py::str(value).cast<std::string>()));
    }
  } else if (py::isinstance<py::float_>(value)) {
    result.kind = Kind::Real;
    result.real = value.cast<double>();
    if (!std::isfinite(result.real)) {
      throw py::value_error(fmt::format("a scenario takes finite numbers, not {}", result.real));
    }
  } else if (py::isinstance<py::str>(value) || py::hasattr(value, "__fspath__")) {
    result.kind = Kind::Text;
    result.text = py::module_::import("os").attr("fspath")(value).cast<std::string>();
  } else if (py::isinstance<py::dict>(value)) {
    for (const auto& [name, member] : value.cast<py::dict>()) {
      result.children.push_back(value_of_python(member));
      result.children.back().key = text_of_key(name);
    }
  } else if (py::isinstance<py::list>(value) || py::isinstance<py::tuple>(value)) {
    result.kind = Kind::List;
    for (const py::handle item : value) {
      result.children.push_back(value_of_python(item));
    }
  } else {
    throw py::type_error(fmt::format("a scenario takes texts, numbers, lists and dicts, not {}",
                                     py::repr(value).cast<std::string>()));
  }
  return result;
}

/// A scenario as the dict of its tables.
TomlDocument document_of(const std::string& file, const py::dict& tables) {
  TomlDocument document;
  document.file = file;
  document.root = value_of_python(tables);
  for (const TomlValue& table : document.root.children) {
    const bool holds =
        table.kind == Kind::Table ||
        (table.kind == Kind::List && std::ranges::all_of(table.children, [](const TomlValue& one) {
           return one.kind == Kind::Table;
         }));
    if (!holds) {
      throw py::type_error(
          fmt::format("'{}' of a scenario is a dict or a list of dicts", printable(table.key)));
    }
  }
  return document;
}

GivenScenario scenario_of_python(const std::string& file,
                                 const py::object& content,
                                 const PythonSettings& settings) {
  GivenScenario scenario{file};
  if (py::isinstance<py::dict>(content)) {
    scenario.content =
        std::make_shared<const TomlDocument>(document_of(file, content.cast<py::dict>()));
  } else if (!content.is_none()) {
    scenario.content = content.cast<std::string>();
  }
  scenario.set = settings_of(settings);
  return scenario;
}

/// The text as in a file; where it is in one, that is left to the caller.
std::string given_text(const GivenScenario& scenario) {
  const auto* document = std::get_if<std::shared_ptr<const TomlDocument>>(&scenario.content);
  const auto* text = std::get_if<std::string>(&scenario.content);
  return document != nullptr ? toml_text((*document)->root) : text != nullptr ? *text : "";
}

py::dict facts_of(const GivenScenario& given) {
  const Scenario scenario = given.read();
  py::dict result;
  result["name"] = scenario.name;
  result["ranks"] = scenario.ranks;
  result["policies"] = mapped(scenario.policies, &BatchingPolicy::name);
  return result;
}

/// The plan of one policy, and what to warn of.
std::pair<Plan, std::vector<std::string>> plan_of(const GivenScenario& given,
                                                  const std::string& policy) {
  ScenarioPlans planned = plan_one(given.read(), policy);
  return {std::move(planned.plans.front()), std::move(planned.warnings)};
}

}  // namespace

Setting setting_of(const std::string& key, const py::object& value) {
  if (py::isinstance<py::str>(value)) {
    return {key, value.cast<std::string>()};
  }
  if (key == "data.lengths" && py::isinstance<py::array_t<std::int64_t>>(value)) {
    const auto lengths = value.cast<py::array_t<std::int64_t, py::array::c_style>>();
    return {key,
            std::make_shared<const std::vector<std::int64_t>>(lengths.data(),
                                                              lengths.data() + lengths.size())};
  }
  if (value.is_none()) {
    throw py::type_error(key + ": None is no value; a key that is left out has its default");
  }
  return {key, value_of_python(value)};
}

std::vector<Setting> settings_of(const PythonSettings& settings) {
  return mapped(settings, [](const auto& one) { return setting_of(one.first, one.second); });
}

void bind_scenarios(py::module_& core) {
  py::class_<GivenScenario>(core, "Scenario", "A scenario as it is given, read by nobody yet.")
      .def(py::init(&scenario_of_python), py::arg("file"), py::arg("content"), py::arg("settings"))
      .def_property_readonly("text", given_text)
      .def_property_readonly(
          "settings", [](const GivenScenario& given) { return mapped(given.set, &Setting::text); })
      .def("facts", facts_of, "The name, ranks and policies of the scenario.")
      .def("plan", plan_of, py::arg("policy"), py::call_guard<py::gil_scoped_release>());
}

}  // namespace stepsim
