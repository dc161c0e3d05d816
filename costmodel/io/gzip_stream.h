#pragma once

#include <cstddef>
#include <string>

namespace stepsim {

/// Reads a file in chunks and unpacks gzip, which it recognises by the first bytes, not by the
/// name.
class GzipStream {
 public:
  /// "-" reads standard input. Raises InputError: the file is missing or unreadable.
  explicit GzipStream(const std::string& path);
  ~GzipStream();
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  /// Appends up to `max_bytes` unpacked bytes to `text`; returns false at the end of the file.
  /// Raises InputError with the offset in the unpacked text: the gzip data is damaged or cut short,
  /// the file cannot be read, or it unpacks to so much more than its size that it is no text.
  bool append(std::size_t max_bytes, std::string* text);
  /// Returns the share of the packed file that has been read; 0 when its size is unknown.
  [[nodiscard]] double share() const;

 private:
  std::string path_;
  double size_ = 0;       ///< Size of the packed file in bytes; 0: unknown.
  void* file_ = nullptr;  ///< zlib's gzFile, which is a pointer type.
  std::size_t read_ = 0;  ///< Unpacked bytes delivered so far.
};

}  // namespace stepsim
