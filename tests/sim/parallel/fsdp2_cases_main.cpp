// Real FSDP2 event lists, held against ours (FSDP2_CASES.md):
//
//     fsdp2_cases FOLDER PROGRAMS.json
//
// Prints the first difference of each case and, last, "N of M equal"; ends with 1 where not all
// are.
#include <cstdio>
#include <exception>

#include <fmt/core.h>

#include "tests/sim/parallel/fsdp2_cases.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: fsdp2_cases FOLDER PROGRAMS.json\n", stderr);
    return 2;
  }
  try {
    const auto result = stepsim::test::compare_fsdp2_cases(argv[1], argv[2]);
    for (const auto& difference : result.differences) {
      fmt::print("{}\n", difference);
    }
    const int equal = result.cases - static_cast<int>(result.differences.size());
    fmt::print("{} of {} equal\n", equal, result.cases);
    return equal == result.cases && equal > 0 ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
