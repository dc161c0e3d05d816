#pragma once

#include <string>
#include <vector>

namespace stepsim::test {

/// Recorded steps of PyTorch's fully_shard, held against ours.
struct CaseComparison {
  int cases = 0;
  std::vector<std::string> differences;  ///< The first one of each case that has any.
};

/// Plays every CASE.json.gz of a folder. Its units and the calls of its forwards are taken from it;
/// what else its program does stands in a file of programs, as FSDP2_CASES.md says. Raises
/// InputError: the folder or the file cannot be read.
[[nodiscard]] CaseComparison compare_fsdp2_cases(const std::string& folder,
                                                 const std::string& programs_file);

}  // namespace stepsim::test
