#pragma once

#include <cstddef>
#include <string>

namespace stepsim {

/// A file read in pieces, unpacked when it is gzip (known by its first bytes, not by its name).
class GzipStream {
 public:
  /// "-" reads standard input. Raises InputError: missing or unreadable.
  explicit GzipStream(const std::string& path);
  ~GzipStream();
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  /// Appends up to `most` unpacked bytes to `text`; false at the end of the file. Raises
  /// InputError with the offset in the unpacked text: damaged or cut gzip; unreadable.
  bool append(std::size_t most, std::string* text);
  /// Of the file, packed, that is read; 0 where its size is not known.
  [[nodiscard]] double share() const;

 private:
  std::string path_;
  double size_ = 0;       ///< Bytes of the file, packed; 0: not known.
  void* file_ = nullptr;  ///< zlib's gzFile.
  std::size_t read_ = 0;  ///< Unpacked bytes so far.
};

}  // namespace stepsim
