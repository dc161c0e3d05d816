#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>

#include "costmodel/base/progress_callback.h"
#include "costmodel/io/gzip_stream.h"

namespace stepsim {

/// The characters of a trace file, unpacked when it is gzip, one chunk in memory at a time.
///
/// Profilers write what JSON does not allow. Inside strings, bytes outside ASCII, lone halves of
/// surrogate pairs, control characters and unknown escapes are replaced; N/A, NaN and infinities
/// where a value belongs are read as "". One character stays one character, so that offsets are
/// those of the (unpacked) file.
class KinetoSource {
 public:
  /// "-" reads standard input. Raises InputError: missing or unreadable.
  explicit KinetoSource(const std::string& path, ProgressCallback on_progress = {});

  /// Returns false at the end of the file. Raises InputError for a damaged or cut gzip file, for a
  /// string of more than 16 MiB, and for a file that is known to be no trace (foreign_file()).
  [[nodiscard]] bool has_next() { return at_ < ready_ || fill(); }
  [[nodiscard]] const char& peek() { return chunk_[at_]; }  ///< After has_next().
  void advance() { ++at_; }

  /// What comes next of the file, repaired or not yet, with kJsonPadding bytes behind it that may
  /// be read. Raises InputError as has_next() does.
  [[nodiscard]] std::span<char> ahead();
  /// Leaves out characters of ahead(), which somebody has read there: whole values.
  void skip(std::size_t count);
  /// The bytes that were left out so far.
  [[nodiscard]] std::size_t skipped() const { return skipped_; }

  /// The bytes of the unpacked file that were read so far.
  [[nodiscard]] std::size_t offset() const { return before_ + at_; }
  /// The number of characters and values that JSON does not allow; valid UTF-8 does not count.
  [[nodiscard]] std::int64_t repaired() const { return repaired_; }
  [[nodiscard]] bool is_at_end() const { return ended_ && at_ >= chunk_.size(); }
  /// Raises InputError "PATH: error: byte N: MESSAGE".
  [[noreturn]] void fail(std::size_t offset, const std::string& message) const;

 private:
  bool fill();
  void refill();
  void read_more();
  void repair(std::size_t limit);
  /// Returns the place of the next character of a string that needs a look.
  std::size_t skip_plain(std::size_t i, std::size_t limit);
  std::size_t repair_in_string(std::size_t i);
  std::size_t repair_escape(std::size_t i);
  std::size_t repair_value(std::size_t i);
  void count_utf8(unsigned char byte);

  std::string path_;
  ProgressCallback on_progress_;
  GzipStream file_;
  std::string chunk_;       ///< Repaired up to `ready_`, and from there on as read.
  std::size_t at_ = 0;      ///< The next character.
  std::size_t ready_ = 0;   ///< Characters of the chunk that are repaired.
  std::size_t before_ = 0;  ///< The bytes before the chunk.
  std::size_t skipped_ = 0;
  bool ended_ = false;
  bool in_string_ = false;
  std::size_t string_size_ = 0;
  int continuation_ = 0;  ///< The bytes of a UTF-8 character that are still to come.
  std::int64_t repaired_ = 0;
};

/// Hands the characters of a source to the parser.
struct KinetoIterator {
  // NOLINTBEGIN(readability-identifier-naming): std::iterator_traits looks for these names.
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  // NOLINTEND(readability-identifier-naming)

  KinetoSource* source = nullptr;  ///< Null for the end.

  reference operator*() const { return source->peek(); }
  KinetoIterator& operator++() {
    source->advance();
    return *this;
  }
  KinetoIterator operator++(int) {
    KinetoIterator before = *this;
    ++*this;
    return before;
  }
  /// Only comparing with the end is meaningful.
  bool operator==(const KinetoIterator& other) const {
    return (source == nullptr || !source->has_next()) ==
           (other.source == nullptr || !other.source->has_next());
  }
  bool operator!=(const KinetoIterator& other) const { return !(*this == other); }
};

}  // namespace stepsim
