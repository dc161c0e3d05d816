#pragma once

#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace stepsim::test {

/// The fields of a line of comma-separated values; quotes around fields are removed.
inline std::vector<std::string> csv_fields(const std::string& line) {
  std::vector<std::string> found(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      found.emplace_back();
    } else {
      found.back() += c;
    }
  }
  return found;
}

/// [log]: bytes and microseconds, the faster of out-of-place and in-place, ascending.
using Sweeps = std::map<std::string, std::vector<std::pair<double, double>>>;

inline Sweeps read_sweeps(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  Sweeps sweeps;
  while (std::getline(file, line)) {
    const auto row = csv_fields(line);
    double least = 0;
    for (const std::size_t column : {7U, 8U}) {
      const double us = row.at(column).empty() ? 0 : std::stod(row[column]);
      least = least == 0 || (us > 0 && us < least) ? us : least;
    }
    if (std::stod(row[6]) > 0 && least > 0) {
      sweeps[row[0]].emplace_back(std::stod(row[6]), least);
    }
  }
  return sweeps;
}

}  // namespace stepsim::test
