#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

namespace stepsim {

/// Appends lines to a samples file; each is with the operating system when write() returns, so that
/// a killed run keeps it.
class SampleWriter {
 public:
  /// Opens for appending. `keep_bytes`: what follows the last whole line is cut off first (regular
  /// files only). Raises EnvironmentFault.
  SampleWriter(const std::string& path, std::uintmax_t keep_bytes);

  /// Raises EnvironmentFault: the disk is full, …
  void write(const std::string& line);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace stepsim
