#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stepsim {

/// Splits a text at blanks.
[[nodiscard]] std::vector<std::string_view> words_of(std::string_view text);

/// Finds where another process's "host:pid:tid [n] NCCL INFO …" begins inside a line. The word may
/// be glued to a number of the table.
[[nodiscard]] std::optional<std::size_t> nccl_output_at(std::string_view line);

/// Removes labels that launchers put in front: "[1,0]<stdout>:", "0: ", "[0]", repeatedly.
[[nodiscard]] std::string_view without_labels(std::string_view line);

/// Blanks out such labels inside a row, so that its numbers keep their columns.
[[nodiscard]] std::string blank_labels(std::string_view line);

/// Where a row of a table begins in a line: "<size> <count> <type> <redop>". Before 2022
/// all-gather, all-to-all and broadcast printed no redop. Size and count may be rounded:
/// "2.68e+08".
struct RowHead {
  std::size_t at = 0;        ///< The first digit of the size.
  std::size_t size_end = 0;  ///< One past the size.
  std::size_t end = 0;       ///< One past the redop, or the type where there is no redop.
};
[[nodiscard]] std::optional<RowHead> find_row_head(std::string_view line);

/// Whether a line that was not read looks like a row: it begins with a number, and at least five
/// numbers are in it, one of them with a decimal point.
[[nodiscard]] bool looks_like_row(std::string_view line);

}  // namespace stepsim
