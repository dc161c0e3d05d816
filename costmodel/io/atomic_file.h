#pragma once

#include <string>
#include <string_view>

namespace stepsim {

/// A file written in pieces under `path + ".tmp"` and renamed at the end, so that a full disk
/// leaves the old file intact. "-" writes to standard output; a device or pipe is written in place.
class AtomicFile {
 public:
  /// Raises EnvironmentFault, as do write() and finish().
  explicit AtomicFile(std::string path);
  /// Removes what was not finished.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view text);
  /// Flushes, closes and renames; nothing may be written after it.
  void finish();

 private:
  void close();

  std::string path_;
  std::string target_;     ///< What is replaced: behind a symbolic link the file it points to.
  std::string temporary_;  ///< Empty where nothing is renamed.
  int file_ = -1;          ///< -1: standard output, or closed.
};

}  // namespace stepsim
