#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "costmodel/io/atomic_file.h"

namespace stepsim {

/// An AtomicFile that is packed with gzip when its name ends in ".gz". The gzip header holds no
/// name and no time, so that equal text gives equal bytes.
class GzipWriter {
 public:
  /// The constructor, write() and finish() raise EnvironmentFault.
  explicit GzipWriter(const std::string& path);
  ~GzipWriter();
  GzipWriter(const GzipWriter&) = delete;
  GzipWriter& operator=(const GzipWriter&) = delete;

  void write(std::string_view text);
  /// Completes the file as AtomicFile::finish() does.
  void finish();
  [[nodiscard]] std::int64_t text_bytes() const { return text_bytes_; }  ///< Unpacked, so far.
  [[nodiscard]] std::int64_t file_bytes() const { return file_bytes_; }  ///< Packed, so far.

 private:
  struct Packer;  ///< Holds zlib's stream.
  void pack(std::string_view text, bool last);

  AtomicFile file_;
  std::unique_ptr<Packer> packer_;  ///< Null when the file is plain text.
  std::int64_t text_bytes_ = 0;
  std::int64_t file_bytes_ = 0;
};

}  // namespace stepsim
