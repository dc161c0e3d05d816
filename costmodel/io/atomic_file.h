#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace stepsim {

/// Takes a text piece by piece.
using TextSink = std::function<void(std::string_view text)>;

/// An output file that takes its name at the end, so that a full disk leaves the old file intact.
/// Until then it has no name, and a killed program leaves nothing behind; where the file system
/// knows no such files it has a name of its own in the same folder. Of two writers of one path the
/// last to finish wins. A file that is replaced hands on its mode, and its owner and group where
/// that is allowed; a read-only one is refused. "-" is standard output; a device or pipe is written
/// in place.
class AtomicFile {
 public:
  /// The constructor, write() and finish() raise EnvironmentFault.
  explicit AtomicFile(std::string path);
  /// Removes the temporary file unless finish() has renamed it.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view text);
  /// Flushes, closes and renames the file. Nothing may be written after this call.
  void finish();

 private:
  void open_temporary();
  /// Gives a file without a name its temporary one.
  void link_temporary();
  void close();

  std::string path_;
  std::string target_;     ///< The file that is replaced; `path` with symbolic links resolved.
  std::string temporary_;  ///< The name before renaming; empty when the file has none.
  bool in_place_ = false;  ///< A device or pipe.
  int file_ = -1;          ///< The descriptor; -1 for standard output and when closed.
};

}  // namespace stepsim
