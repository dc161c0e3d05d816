#include <cstdint>
#include <vector>

#include <pybind11/pybind11.h>

#include "sim/python/arrays.h"
#include "sim/python/bindings.h"

namespace py = pybind11;

namespace stepsim {
namespace {

using Numbers = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>;

/// Copies the numbers into an array of our own, so that a check sees both ways that arrays take.
py::array_t<std::int64_t> copied(const Numbers& numbers) {
  return to_array(std::vector<std::int64_t>(numbers.data(), numbers.data() + numbers.size()));
}

}  // namespace
}  // namespace stepsim

PYBIND11_MODULE(_core, core) {
  core.doc() = "What stepsim's Python package calls: the commands, the planner and the files.";
  core.attr("__version__") = STEPSIM_VERSION;
  core.attr("pybind11_version") =
      PYBIND11_TOSTRING(PYBIND11_VERSION_MAJOR) "." PYBIND11_TOSTRING(PYBIND11_VERSION_MINOR);
  core.def("copied", stepsim::copied, py::arg("numbers"), "An array's numbers in a new array.");
  stepsim::bind_errors(core);
  stepsim::bind_answers(core);
  stepsim::bind_imports(core);
  stepsim::bind_records(core);
  stepsim::bind_scenarios(core);
  stepsim::bind_epochs(core);
  stepsim::bind_jobs(core);
  stepsim::bind_questions(core);
}
