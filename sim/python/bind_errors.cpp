#include <exception>

#include "costmodel/base/input_error.h"
#include "sim/python/bindings.h"

namespace py = pybind11;

namespace stepsim {
namespace {

void raise(const char* name, const py::tuple& arguments) {
  const py::object type = py::module_::import("stepsim.errors").attr(name);
  PyErr_SetObject(type.ptr(), type(*arguments).ptr());
}

py::object number_or_none(int number) {
  return number > 0 ? py::object(py::int_(number)) : py::none();
}

}  // namespace

void bind_errors(py::module_& core) {
  (void)core;
  // NOLINTNEXTLINE(performance-unnecessary-value-param): the type is pybind11's.
  py::register_exception_translator([](std::exception_ptr raised) {
    try {
      if (raised) {
        std::rethrow_exception(raised);
      }
    } catch (const InputError& error) {
      const SourcePlace& place = error.place();
      raise("InputError",
            py::make_tuple(error.what(),
                           place.file.empty() ? py::object(py::none()) : py::str(place.file),
                           number_or_none(place.line),
                           number_or_none(place.column)));
    } catch (const EnvironmentFault& error) {
      raise("MachineError", py::make_tuple(error.what()));
    }
  });
}

}  // namespace stepsim
