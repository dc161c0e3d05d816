#include "sim/fit_records.h"

#include <utility>

#include "calibrate/import/recorded/recorded_import.h"

namespace stepsim {

FittedRecords fit_records(const RecordsToFit& records) {
  RunRecordImport import;
  import.records = records.records;
  import.plans = records.plans;
  import.profile.base = records.base;
  import.profile.out = records.out;
  ImportedProfile imported = import_run_records(import);
  std::string report = import_text(imported, records.out, {});
  return {std::move(imported.profile), std::move(report)};
}

}  // namespace stepsim
