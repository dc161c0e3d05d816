#pragma once

#include <span>
#include <string>
#include <vector>

#include "calibrate/import/nccl/nccl_tests.h"
#include "calibrate/samples/samples.h"

namespace stepsim {

/// How an import came about, which the header of a samples file says.
struct ImportOrigin {
  std::string device;  ///< The user's name for it; empty = the name in the logs.
  std::string command;
  std::string date;  ///< ISO 8601, UTC.
};

/// Writes the first line of a samples file that holds imports only. `devices` is the device when
/// the user named none.
[[nodiscard]] std::string import_header(const std::string& devices, const ImportOrigin& origin);

/// Reads lines that import_lines() made as samples. Raises InputError when two imports are of one
/// collective, ranks and nodes.
[[nodiscard]] SampleSet samples_of_lines(const std::string& header,
                                         std::span<const std::string> lines);

/// Writes a new samples file with this header, or appends to one that exists. Raises InputError
/// when the file holds one of these collectives already, and EnvironmentFault.
void write_import_lines(const std::string& path,
                        const std::string& header,
                        std::span<const std::string> lines);

/// Writes the first line for logs of nccl-tests.
[[nodiscard]] std::string import_header(std::span<const NcclImport> imports,
                                        const ImportOrigin& origin);

/// Writes the lines of every collective that a profile can hold: one with what is known about its
/// log, then one for each row. `passed_over` gets a message for each of the other collectives.
[[nodiscard]] std::vector<std::string> import_lines(std::span<const NcclImport> imports,
                                                    std::vector<std::string>* passed_over);

/// Makes samples of logs without writing a file.
[[nodiscard]] SampleSet import_samples(std::span<const NcclImport> imports,
                                       const ImportOrigin& origin);

/// Writes logs with write_import_lines().
void write_import(const std::string& path,
                  std::span<const NcclImport> imports,
                  const ImportOrigin& origin);

}  // namespace stepsim
