#pragma once

#include <span>
#include <string>
#include <vector>

#include "calibrate/import/nccl/nccl_tests.h"
#include "calibrate/samples/sample_log.h"

namespace stepsim {

/// How an import came about, which the header of a samples file says.
struct ImportOrigin {
  std::string device;  ///< The user's name for it; empty = the name in the logs.
  std::string command;
  std::string date;  ///< ISO 8601, UTC.
};

/// The header of a samples file that holds imports only. `devices` is the device when the user
/// named none.
[[nodiscard]] Json import_header(const std::string& devices, const ImportOrigin& origin);

/// Makes samples of imports. Raises InputError when two of them are of one collective, ranks and
/// nodes.
[[nodiscard]] SampleSet samples_of_imports(const Json& header,
                                           std::span<const ImportedCollective> imports);

/// Writes a new samples file with this header, or appends to one that exists. Raises InputError
/// when the file holds one of these collectives already, and EnvironmentFault.
void write_imports(const std::string& path,
                   const Json& header,
                   std::span<const ImportedCollective> imports);

/// The header for logs of nccl-tests.
[[nodiscard]] Json import_header(std::span<const NcclImport> imports, const ImportOrigin& origin);

/// Takes every collective of the logs that a profile can hold. Raises InputError when two are of
/// one collective, ranks and nodes.
[[nodiscard]] std::vector<ImportedCollective> collectives_of(std::span<const NcclImport> imports);

}  // namespace stepsim
