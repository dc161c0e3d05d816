#pragma once

#include <fstream>
#include <string>

#include "tests/test_data.h"

namespace stepsim::test {

/// A launch program in a folder of its own: rows, ranks (all start at 0) and collectives.
struct LaunchFiles {
  std::string header =
      "rank,gap_us,cpu_dur_us,type,stream,gpu_dur_us,waits_collective,collective\n";
  std::string rows;
  std::string ranks = "rank,step_start_us\n0,0\n1,0\n";
  std::string collectives = "collective,producer_stream,fitted_D_us\n0,7,50\n1,,5\n";

  /// Path of the program.
  [[nodiscard]] std::string written() const {
    const std::string folder = fresh_folder();
    std::ofstream(folder + "/program.csv") << header << rows;
    std::ofstream(folder + "/ranks.csv") << ranks;
    std::ofstream(folder + "/collective_defs.csv") << collectives;
    return folder + "/program.csv";
  }
};

}  // namespace stepsim::test
