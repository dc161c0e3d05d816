#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <pybind11/stl.h>

#include "sim/predict/predict.h"
#include "sim/predict/run/jobs.h"
#include "sim/python/bindings.h"
#include "sim/python/scenario_values.h"
#include "sim/report/json.h"

namespace py = pybind11;

namespace stepsim {
namespace {

/// Makes the value that Python's json.loads() would make of it.
py::object to_python(const Json& json) {
  switch (json.type()) {
    case Json::value_t::object: {
      py::dict members;
      for (const auto& [name, value] : json.items()) {
        members[py::str(name)] = to_python(value);
      }
      return members;
    }
    case Json::value_t::array: {
      py::list elements;
      for (const Json& element : json) {
        elements.append(to_python(element));
      }
      return elements;
    }
    case Json::value_t::string:
      return py::str(json.get_ref<const std::string&>());
    case Json::value_t::boolean:
      return py::bool_(json.get<bool>());
    case Json::value_t::number_integer:
      return py::int_(json.get<std::int64_t>());
    case Json::value_t::number_unsigned:
      return py::int_(json.get<std::uint64_t>());
    case Json::value_t::number_float:
      return py::float_(json.get<double>());
    default:
      return py::none();
  }
}

std::unique_ptr<Jobs> jobs_of(const GivenScenario& scenario) {
  const py::gil_scoped_release released;
  auto jobs = std::make_unique<Jobs>(scenario.read());
  (void)jobs->profile(jobs->base());
  return jobs;
}

/// One element of `predictions` of a prediction file, with the rows of single steps where they are
/// asked for.
py::object predicted(
    Jobs& jobs, const PythonSettings& given, const std::string& policy, bool noise, bool steps) {
  const std::vector<Setting> settings = settings_of(given);
  Json json;
  {
    const py::gil_scoped_release released;
    PredictOptions options;
    options.threads = 1;
    options.noise_runs = noise ? options.noise_runs : 0;
    options.rows = steps ? KeptRows::Rows : KeptRows::None;
    json = prediction_json({predict(jobs.job(policy, settings), options)},
                           steps ? StepRows::All : StepRows::None);
  }
  return to_python(json["predictions"][0]);
}

}  // namespace

void bind_jobs(py::module_& core) {
  py::class_<Jobs>(core, "Jobs", "A scenario that is read once, for predictions under settings.")
      .def(py::init(&jobs_of), py::arg("scenario"))
      .def("predict",
           predicted,
           py::arg("settings"),
           py::arg("policy"),
           py::arg("noise"),
           py::arg("steps"));
}

}  // namespace stepsim
