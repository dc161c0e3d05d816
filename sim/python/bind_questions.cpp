#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/terminal/help.h"
#include "costmodel/terminal/progress.h"
#include "sim/cli/questions.h"
#include "sim/fit_records.h"
#include "sim/python/bindings.h"
#include "sim/python/scenario_values.h"

namespace py = pybind11;

namespace stepsim {
namespace {

/// Reports to `progress` where there is one, and lets Ctrl-C end the job.
ProgressListener listener_of(py::object progress) {
  return [progress = std::move(progress)](const std::string& what, double share) {
    const py::gil_scoped_acquire held;
    if (PyErr_CheckSignals() != 0) {
      throw py::error_already_set();
    }
    if (!progress.is_none()) {
      progress(what, share);
    }
  };
}

/// Keys with lists of values, or with the text behind "KEY=" of --over.
std::vector<SweepAxis> axes_of(const PythonSettings& axes) {
  return mapped(axes, [](const auto& given) {
    const auto& [key, values] = given;
    if (py::isinstance<py::str>(values)) {
      return parse_sweep_axis(key + "=" + values.template cast<std::string>());
    }
    SweepAxis axis{key, {}};
    for (const py::handle value : values) {
      axis.values.push_back(setting_of(key, py::reinterpret_borrow<py::object>(value)));
    }
    if (axis.values.empty()) {
      throw InputError(SourcePlace{"--over " + printable(key)}, "there are no values");
    }
    return axis;
  });
}

/// `progress`: called as progress(what, share) with the share of the work that is done, or None.
/// `elsewhere`: called with points, which serve_points() of other processes is to compute, and
/// returns their results; or None.
Answer ask_question(const std::string& name,
                    const OptionValues& values,
                    std::optional<GivenScenario> scenario,
                    const PythonSettings& axes,
                    const py::object& progress,
                    const py::object& elsewhere) {
  const ProgressScope scope(listener_of(progress));  // It keeps an object of Python's.
  Request request;
  request.given_scenario = std::move(scenario);
  request.axes = axes_of(axes);
  request.wants_all_forms = true;
  request.fit_records = fit_records;
  if (!elsewhere.is_none()) {
    request.elsewhere = [&](const std::vector<std::string>& points) {
      const py::gil_scoped_acquire held;
      return elsewhere(points).cast<std::vector<std::string>>();
    };
  }
  const py::gil_scoped_release released;
  return ask(question_named(name), values, std::move(request));
}

/// Computes points of a question that another process asks.
std::vector<std::string> serve_points(const std::string& name,
                                      const OptionValues& values,
                                      std::optional<GivenScenario> scenario,
                                      const PythonSettings& axes,
                                      const std::vector<std::string>& points) {
  Request request;
  request.given_scenario = std::move(scenario);
  request.axes = axes_of(axes);
  request.serve = points;
  request.wants_all_forms = true;  // As whoever asks for them does.
  const py::gil_scoped_release released;
  try {
    (void)ask(question_named(name), values, std::move(request));
  } catch (PointsServed& served) {
    return std::move(served.results);
  }
  throw InputError("'{}' has no points that another process could compute", name);
}

py::dict row_dict(const OptionRow& row, OptionStructs& defaults) {
  const OptionVariable variable = row.variable(&defaults);
  const OptionHelp help = option_help(row.long_name(), row.words);
  py::dict result;
  result["name"] = help.name;
  result["type"] = type_name(variable);
  result["default"] = value_of(variable);
  result["value"] = help.value;
  result["words"] = help.description;
  result["shared"] = row.shared;
  result["writes"] = row.writes;
  result["positional"] = row.arguments != 0;
  return result;
}

py::list question_dicts() {
  py::list result;
  for (const Question& question : questions()) {
    Request request;
    OptionStructs defaults = option_structs(question, request);
    py::list options;
    for (const OptionRow& row : question.options) {
      options.append(row_dict(row, defaults));
    }
    py::dict one;
    one["name"] = question.name;
    one["summary"] = question.summary;
    one["usage"] = question.usage;
    one["points"] = question.points != SharedPoints::None;
    one["options"] = std::move(options);
    result.append(std::move(one));
  }
  return result;
}

}  // namespace

void bind_questions(py::module_& core) {
  core.def("ask",
           ask_question,
           py::arg("question"),
           py::arg("options"),
           py::arg("scenario") = py::none(),
           py::arg("axes") = py::list(),
           py::arg("progress") = py::none(),
           py::arg("elsewhere") = py::none(),
           "Asks a question with values of its options and returns the answer, of which nothing is "
           "written.");
  core.def("serve_points",
           serve_points,
           py::arg("question"),
           py::arg("options"),
           py::arg("scenario"),
           py::arg("axes"),
           py::arg("points"),
           "Computes points of a question that another process asks; returns their results.");
  core.def("questions",
           question_dicts,
           "All questions with the rows of their options: names, types, defaults and words.");
}

}  // namespace stepsim
