#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace stepsim {

/// A text that is read piece by piece; "-" is standard input.
class TextFile {
 public:
  static constexpr std::size_t kChunk = std::size_t{1} << 16;  ///< Bytes of a piece.

  /// Raises InputError: the file is missing.
  explicit TextFile(std::string path, std::size_t max_bytes = SIZE_MAX);
  ~TextFile();
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;

  /// Appends the next piece; returns false at the end. Raises InputError as read_text() does.
  bool append(std::string& text);
  /// The size of a regular file in bytes; 0 of any other.
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  std::string path_;
  std::size_t max_bytes_;
  int descriptor_;
  std::size_t size_ = 0;
  std::size_t read_ = 0;
  std::size_t checked_ = 0;  ///< So many bytes are known to be none too many.
};

/// Raises InputError: the path is a pipe or a terminal, which can be read only once, where a
/// command reads it again or writes its name down.
void require_kept_file(const std::string& path);

}  // namespace stepsim
