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

/// The words of a row, in order; empty without a header. A time stamp is two words.
using NcclColumns = std::vector<NcclColumn>;

/// Reads a header line: the columns, and what they say of the table. False when it is none.
[[nodiscard]] bool read_header(std::string_view line, NcclTable* table, NcclColumns* columns);

/// A row whose words are still coming in: NCCL's own lines can stand between its parts.
class OpenRow {
 public:
  /// `line`: of the file; `cut`: where foreign output begins in `text`, or its end.
  OpenRow(
      int line, std::string_view text, const RowHead& head, std::size_t cut, NcclColumns columns);

  /// True when nothing can follow any more.
  [[nodiscard]] bool is_full() const;
  /// Takes in further words; `cut_off` when foreign output is glued to the end of `text`.
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

/// True when all words are numbers or N/A, and there is one.
[[nodiscard]] bool is_numeric(std::string_view text);

}  // namespace stepsim
