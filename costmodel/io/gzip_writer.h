#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "costmodel/io/atomic_file.h"

namespace stepsim {

/// A file written in pieces, as AtomicFile; packed with gzip when its name ends in ".gz". The same
/// text makes the same bytes.
class GzipWriter {
 public:
  /// Raises EnvironmentFault, as do write() and finish().
  explicit GzipWriter(const std::string& path);
  ~GzipWriter();
  GzipWriter(const GzipWriter&) = delete;
  GzipWriter& operator=(const GzipWriter&) = delete;

  void write(std::string_view text);
  /// Nothing may be written after it.
  void finish();
  [[nodiscard]] std::int64_t text_bytes() const { return text_bytes_; }  ///< So far, unpacked.
  [[nodiscard]] std::int64_t file_bytes() const { return file_bytes_; }  ///< So far, packed.

 private:
  struct Packer;  ///< zlib's stream.
  void pack(std::string_view text, bool last);

  AtomicFile file_;
  std::unique_ptr<Packer> packer_;  ///< Null without gzip.
  std::int64_t text_bytes_ = 0;
  std::int64_t file_bytes_ = 0;
};

}  // namespace stepsim
