#pragma once

#include <span>
#include <string>
#include <vector>

#include "calibrate/import/nccl/nccl_tests.h"
#include "calibrate/samples/samples.h"

namespace stepsim {

/// How an import came about, for the header of a samples file.
struct ImportOrigin {
  std::string device;  ///< As the user names it; empty: as the logs do.
  std::string command;
  std::string date;  ///< ISO 8601, UTC.
};

/// The first line of a samples file that holds imports only; `devices` counts where the user named
/// none.
[[nodiscard]] std::string import_header(const std::string& devices, const ImportOrigin& origin);

/// Samples of lines as import_lines() makes them. Raises InputError: two imports of one collective,
/// ranks and nodes.
[[nodiscard]] SampleSet samples_of_lines(const std::string& header,
                                         std::span<const std::string> lines);

/// Writes a new samples file with this header, or appends to one that exists. Raises InputError: it
/// holds one of these collectives already; EnvironmentFault.
void write_import_lines(const std::string& path,
                        const std::string& header,
                        std::span<const std::string> lines);

/// The same for logs of nccl-tests.
[[nodiscard]] std::string import_header(std::span<const NcclImport> imports,
                                        const ImportOrigin& origin);

/// For every collective that a profile can hold: one line of what is known of its log, then one
/// line a row. `passed_over`: a message for each of the others.
[[nodiscard]] std::vector<std::string> import_lines(std::span<const NcclImport> imports,
                                                    std::vector<std::string>* passed_over);

/// The same as samples, without a file between: samples_of_lines().
[[nodiscard]] SampleSet import_samples(std::span<const NcclImport> imports,
                                       const ImportOrigin& origin);

/// write_import_lines() of logs.
void write_import(const std::string& path,
                  std::span<const NcclImport> imports,
                  const ImportOrigin& origin);

}  // namespace stepsim
