#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

namespace stepsim {

/// Appends lines to a samples file. A line has reached the operating system when write() returns,
/// so that a run that is killed keeps it.
class SampleWriter {
 public:
  /// Opens the file for appending, after cutting it to `keep_bytes` (regular files only), so that
  /// nothing follows the last whole line. The file is locked while this lives. Raises
  /// EnvironmentFault, and InputError when another process writes the file or has done so since
  /// `keep_bytes` of it were read.
  SampleWriter(const std::string& path, std::uintmax_t keep_bytes);

  /// Raises EnvironmentFault, when the disk is full for instance.
  void write(const std::string& line);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace stepsim
