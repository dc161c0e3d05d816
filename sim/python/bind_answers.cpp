#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include "costmodel/base/input_error.h"
#include "costmodel/records/shipped.h"
#include "costmodel/terminal/progress.h"
#include "costmodel/terminal/show.h"
#include "sim/cli/cli.h"
#include "sim/fit_records.h"
#include "sim/python/bindings.h"

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

/// `progress`: called as progress(what, share) with the share of the work that is done, or None.
Answer ask(const std::string& command,
           std::vector<std::string> arguments,
           std::optional<std::string> scenario_text,
           const py::object& progress) {
  const ProgressListener listener = listener_of(progress);
  Request request{std::move(arguments), std::move(scenario_text), true};
  request.fit_records = fit_records;
  const py::gil_scoped_release released;
  const ProgressScope scope(listener);
  return ask_stepsim(command, request);
}

/// Calls one of the answer's functions without holding the interpreter.
template <typename Function, typename... Arguments>
std::string text_of(const char* form, const Function& function, const Arguments&... arguments) {
  if (!function) {
    throw InputError("this result has no {}", form);
  }
  const py::gil_scoped_release released;
  return function(arguments...);
}

}  // namespace

void bind_answers(py::module_& core) {
  py::class_<Answer>(core, "Answer", "What a command found, in all forms that it has.")
      .def_readonly("status", &Answer::status)
      .def_readonly("warnings", &Answer::warnings)
      .def("has",
           [](const Answer& answer, const std::string& form) {
             return form == "text"       ? static_cast<bool>(answer.text)
                    : form == "json"     ? static_cast<bool>(answer.json)
                    : form == "csv"      ? static_cast<bool>(answer.csv)
                    : form == "markdown" ? static_cast<bool>(answer.markdown)
                                         : form == "html" && answer.html;
           })
      .def(
          "text",
          [](const Answer& answer, int columns) {
            if (!answer.text) {
              return std::string();
            }
            Screen screen;
            screen.columns = columns;
            screen.utf8 = true;
            const py::gil_scoped_release released;
            return shown(answer.text(screen), screen);
          },
          py::arg("columns") = 0)
      .def("json",
           [](const Answer& answer) {
             if (!answer.json) {
               throw InputError("this result has no JSON");
             }
             const py::gil_scoped_release released;
             return answer.json_text();
           })
      .def("csv", [](const Answer& answer) { return text_of("CSV", answer.csv); })
      .def("html", [](const Answer& answer) { return text_of("page", answer.html); })
      .def("markdown", [](const Answer& answer) { return text_of("Markdown", answer.markdown); });
  core.def("ask",
           ask,
           py::arg("command"),
           py::arg("arguments"),
           py::arg("scenario_text") = py::none(),
           py::arg("progress") = py::none(),
           "Runs a command of stepsim and returns its answer, of which nothing is written.");
  core.def("commands", command_names, "The names of the commands.");
  core.def("scenario_path", scenario_path, py::arg("named"), "The file of a scenario.");
  core.def("profile_path", profile_path, py::arg("named"), "The file of a profile.");
}

}  // namespace stepsim
