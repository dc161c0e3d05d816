#pragma once

#include <optional>
#include <string>
#include <vector>

#include "calibrate/import/nccl/nccl_check.h"
#include "calibrate/import/nccl/nccl_log.h"

namespace stepsim {

/// One file, read and judged.
struct NcclImport {
  NcclLog log;  ///< Its tables are moved into the sweeps.
  std::vector<NcclSweep> sweeps;
  std::vector<NcclReason> reasons;  ///< What is wrong with the file as a whole.

  [[nodiscard]] NcclVerdict verdict() const;
  /// The table to show first: the all-reduce, else the first; null without tables.
  [[nodiscard]] const NcclSweep* main_sweep() const;
  /// True when several runs of one collective are there: they are never merged.
  [[nodiscard]] bool has_several_runs() const;
};

/// Reads a log or JSON file of nccl-tests; "-" is standard input. `run`: only this table, counted
/// from 1.
/// Raises InputError: unreadable, larger than 256 MiB, damaged JSON, no such run.
[[nodiscard]] NcclImport import_nccl_tests(const std::string& path,
                                           const NcclStatements& statements,
                                           std::optional<int> run);

/// Imports a text that was read already.
[[nodiscard]] NcclImport import_nccl_text(const std::string& text,
                                          const std::string& file,
                                          const NcclStatements& statements,
                                          std::optional<int> run);

}  // namespace stepsim
