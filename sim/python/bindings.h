#pragma once

#include <pybind11/pybind11.h>

namespace stepsim {

// The parts of the module, one file each.
void bind_errors(pybind11::module_& core);
void bind_answers(pybind11::module_& core);
void bind_epochs(pybind11::module_& core);
void bind_imports(pybind11::module_& core);
void bind_jobs(pybind11::module_& core);
void bind_questions(pybind11::module_& core);
void bind_records(pybind11::module_& core);
void bind_scenarios(pybind11::module_& core);

}  // namespace stepsim
