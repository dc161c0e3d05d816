#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/import/nccl/nccl_line.h"
#include "calibrate/import/nccl/nccl_log.h"

namespace stepsim {

/// What a word of a row means.
enum class NcclColumn { Size, Count, Type, Redop, Root, Time, Algbw, Busbw, Check, Stamp, Other };

/// What the words of a row mean, in order; empty without a header. A time stamp is two words.
using NcclColumns = std::vector<NcclColumn>;

/// Reads the columns of a header line, and what they say about the table. Returns false when the
/// line is no header.
[[nodiscard]] bool read_header(std::string_view line, NcclTable* table, NcclColumns* columns);

/// A row whose words are still coming in, since NCCL's own lines can stand between its parts.
class OpenRow {
 public:
  /// `line` is the line number in the file. `cut` is where foreign output begins in `text`, or its
  /// end.
  OpenRow(
      int line, std::string_view text, const RowHead& head, std::size_t cut, NcclColumns columns);

  /// Whether the row is complete, so that nothing can follow.
  [[nodiscard]] bool is_full() const;
  /// Adds further words. `cut_off` says that foreign output is glued to the end of `text`.
  void add(std::string_view text, bool cut_off);
  /// The row; absent when words are missing or are no numbers.
  [[nodiscard]] std::optional<NcclRow> finish(const NcclTable& table) const;

 private:
  [[nodiscard]] NcclColumns columns_of_words() const;
  void add_words(std::string_view text);
  void add_unreadable();

  int line_;
  NcclColumns columns_;
  std::vector<std::string> words_;
  bool wide_gap_ = false;  ///< The first block is blank.
};

/// Whether size and time give the printed algbw (GB/s), to the printed places.
[[nodiscard]] bool agrees(const NcclRow& row, const NcclBlock& block);

/// How often a sweep of ascending sizes is there from beginning to end, as -N prints it; the last
/// may be cut off. Absent when the sizes come in another order.
[[nodiscard]] std::optional<std::size_t> cycles_of(const std::vector<NcclRow>& rows);

/// Whether all words are numbers or N/A, and there is at least one.
[[nodiscard]] bool is_numeric(std::string_view text);

/// The time of a row in seconds: that of the faster block, since a single slow block is noise.
[[nodiscard]] double row_seconds(const NcclRow& row);

}  // namespace stepsim
