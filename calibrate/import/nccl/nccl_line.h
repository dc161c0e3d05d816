#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stepsim {

/// Words between blanks.
[[nodiscard]] std::vector<std::string_view> words_of(std::string_view text);

/// Where another process's "host:pid:tid [n] NCCL INFO …" begins inside a line; the word may be
/// glued to a number of the table.
[[nodiscard]] std::optional<std::size_t> nccl_output_at(std::string_view line);

/// Removes labels that launchers put in front: "[1,0]<stdout>:", "0: ", "[0]", repeatedly.
[[nodiscard]] std::string_view without_labels(std::string_view line);

/// The same labels inside a row, made blank; its numbers keep their columns.
[[nodiscard]] std::string blank_labels(std::string_view line);

/// Where a row of a table begins in a line: "<size> <count> <type> <redop>".
struct RowHead {
  std::size_t at = 0;        ///< First digit of the size.
  std::size_t size_end = 0;  ///< Behind the size.
  std::size_t end = 0;       ///< Behind the redop.
};
[[nodiscard]] std::optional<RowHead> find_row_head(std::string_view line);

}  // namespace stepsim
