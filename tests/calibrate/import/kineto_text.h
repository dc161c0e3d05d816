#pragma once

#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/test_data.h"

/// Text of profiler traces, row by row.
namespace stepsim::test {

/// Writes a file into a folder of this program and gives its path.
inline std::string write_file(const std::string& name, const std::string& text) {
  static const std::string folder = test::fresh_folder();
  std::string path = folder + "/" + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

/// A row with its times in microseconds, as written.
inline std::string row(const std::string& category,
                       const std::string& name,
                       const std::string& start,
                       const std::string& duration,
                       const std::string& args = "",
                       int thread = 1) {
  return fmt::format(
      R"({{"ph":"X","cat":"{}","name":"{}","pid":7,"tid":{},"ts":{},"dur":{},"args":{{{}}}}})",
      category,
      name,
      thread,
      start,
      duration,
      args);
}

inline std::string launch(int correlation, const std::string& start, int thread = 1) {
  return row("cuda_runtime",
             "cudaLaunchKernel",
             start,
             "5",
             fmt::format(R"("correlation":{})", correlation),
             thread);
}

inline std::string kernel(const std::string& name,
                          int correlation,
                          const std::string& start,
                          const std::string& duration,
                          const std::string& more = "",
                          int stream = 7) {
  return row("kernel",
             name,
             start,
             duration,
             fmt::format(R"("stream":{},"correlation":{}{})", stream, correlation, more));
}

inline std::string trace_text(const std::vector<std::string>& rows,
                              const std::string& header = "") {
  return "{" + header + R"("traceEvents":[)" + fmt::format("{}", fmt::join(rows, ",\n")) + "]}";
}

}  // namespace stepsim::test
