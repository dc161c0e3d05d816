#include <pybind11/pybind11.h>

#include "sim/python/bindings.h"

PYBIND11_MODULE(_core, core) {
  core.doc() = "What stepsim's Python package calls: the commands, the planner and the files.";
  core.attr("__version__") = STEPSIM_VERSION;
  stepsim::bind_errors(core);
  stepsim::bind_answers(core);
  stepsim::bind_epochs(core);
  stepsim::bind_records(core);
}
