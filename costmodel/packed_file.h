#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "costmodel/new_file.h"

namespace stepsim {

/// A file written in pieces, as NewFile; packed with gzip when its name ends in ".gz". The same
/// text makes the same bytes.
class PackedFile {
 public:
  /// Raises EnvironmentFault, as do write() and finish().
  explicit PackedFile(const std::string& path);
  ~PackedFile();
  PackedFile(const PackedFile&) = delete;
  PackedFile& operator=(const PackedFile&) = delete;

  void write(std::string_view text);
  /// Nothing may be written after it.
  void finish();
  [[nodiscard]] std::int64_t text_bytes() const { return text_bytes_; }  ///< So far, unpacked.
  [[nodiscard]] std::int64_t file_bytes() const { return file_bytes_; }  ///< So far, packed.

 private:
  struct Packer;  ///< zlib's stream.
  void pack(std::string_view text, bool last);

  NewFile file_;
  std::unique_ptr<Packer> packer_;  ///< Null without gzip.
  std::int64_t text_bytes_ = 0;
  std::int64_t file_bytes_ = 0;
};

}  // namespace stepsim
