#include <string>
#include <utility>
#include <vector>

#include <pybind11/stl.h>

#include "calibrate/import/nccl/nccl_report.h"
#include "calibrate/import/nccl_profile.h"
#include "calibrate/import/recorded/recorded_import.h"
#include "calibrate/import/step_times/step_time_import.h"
#include "costmodel/base/mapped.h"
#include "sim/python/bindings.h"

namespace py = pybind11;

namespace stepsim {
namespace {

using Texts = std::vector<std::string>;

/// The report of an import, and its warnings.
using Told = std::pair<std::string, Texts>;

/// Writes the profile, and tells what `stepcal import` prints.
Told written(const ImportedProfile& imported, const std::string& out) {
  write_profile(out, imported.profile);
  return {import_text(imported, out, {}), imported.warnings};
}

Told import_run_record(Texts records, Texts plans, std::string base, const std::string& out) {
  RunRecordImport import;
  import.records = std::move(records);
  import.plans = std::move(plans);
  import.profile.base = std::move(base);
  import.profile.out = out;
  return written(import_run_records(import), out);
}

Told import_table(const std::string& table,
                  const std::string& preset,
                  const std::string& tensors,
                  const std::string& record,
                  const std::string& gradient_bytes,
                  const std::string& out) {
  StepTimeImport import;
  import.table = table;
  import.model = {preset, tensors, record, gradient_bytes};
  import.profile.out = out;
  return written(import_step_times(import).profile, out);
}

Told import_logs(const Texts& logs, const std::string& base, const std::string& out) {
  const std::vector<NcclImport> imports =
      mapped(logs, [](const std::string& log) { return import_nccl_tests(log, {}, {}); });
  auto [text, warnings] = written(nccl_profile(imports, "", {out, base, ""}), out);
  return {nccl_report(imports) + text, std::move(warnings)};
}

}  // namespace

void bind_imports(py::module_& core) {
  const py::call_guard<py::gil_scoped_release> released;
  core.def("import_run_record",
           import_run_record,
           py::arg("records"),
           py::arg("plans"),
           py::arg("base"),
           py::arg("out"),
           released,
           "Writes a profile of run records; base: a profile or \"\".");
  core.def("import_step_times",
           import_table,
           py::arg("table"),
           py::arg("preset"),
           py::arg("tensors"),
           py::arg("record"),
           py::arg("gradient_bytes"),
           py::arg("out"),
           released,
           "Writes a profile of a table of step times; all but one text of the model are \"\".");
  core.def("import_nccl_tests",
           import_logs,
           py::arg("logs"),
           py::arg("base"),
           py::arg("out"),
           released,
           "Writes a profile of logs of nccl-tests; base: a profile or \"\".");
}

}  // namespace stepsim
