#include <string>

#include <pybind11/stl.h>

#include "costmodel/base/input_error.h"
#include "costmodel/records/shipped.h"
#include "costmodel/terminal/answer.h"
#include "costmodel/terminal/show.h"
#include "sim/python/bindings.h"

namespace py = pybind11;

namespace stepsim {
namespace {

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
  core.def("scenario_path", scenario_path, py::arg("named"), "The file of a scenario.");
  core.def("profile_path", profile_path, py::arg("named"), "The file of a profile.");
}

}  // namespace stepsim
