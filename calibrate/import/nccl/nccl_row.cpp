#include "calibrate/import/nccl/nccl_row.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "costmodel/base/parse_number.h"

namespace stepsim {
namespace {

/// The width from the end of the size to the end of the root: "  %12li  %8s  %6s  %6s".
constexpr std::size_t kSizeToRootEnd = 40;
/// An in-place row has 32 blanks in place of its first block.
constexpr std::size_t kBlankBlock = 30;
/// The words of a row with a root and two blocks.
constexpr std::size_t kMaxWords = 13;
constexpr std::size_t kBlockWords = 4;
/// Stands for a word that foreign output is glued to.
constexpr std::string_view kUnreadable = "?";

NcclColumn column_of(std::string_view word) {
  static constexpr std::pair<std::string_view, NcclColumn> kNames[] = {
      {"size", NcclColumn::Size},
      {"bytes", NcclColumn::Size},
      {"count", NcclColumn::Count},
      {"N", NcclColumn::Count},
      {"type", NcclColumn::Type},
      {"redop", NcclColumn::Redop},
      {"op", NcclColumn::Redop},
      {"root", NcclColumn::Root},
      {"time", NcclColumn::Time},
      {"cputime", NcclColumn::Time},
      {"algbw", NcclColumn::Algbw},
      {"busbw", NcclColumn::Busbw},
      {"#wrong", NcclColumn::Check},
      {"error", NcclColumn::Check},
      {"res", NcclColumn::Check},
      {"timestamp", NcclColumn::Stamp}};
  for (const auto& [name, column] : kNames) {
    if (name == word) {
      return column;
    }
  }
  return NcclColumn::Other;
}

std::size_t word_count(const NcclColumns& columns) {
  return columns.size() + static_cast<std::size_t>(std::ranges::count(columns, NcclColumn::Stamp));
}

/// Where blocks begin.
std::vector<std::size_t> block_starts(const NcclColumns& columns) {
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i] == NcclColumn::Time) {
      starts.push_back(i);
    }
  }
  return starts;
}

/// The columns of rows without a header, by their number of words.
NcclColumns guess_columns(std::size_t words, bool has_redop) {
  NcclColumns columns = {NcclColumn::Size, NcclColumn::Count, NcclColumn::Type};
  if (has_redop) {
    columns.push_back(NcclColumn::Redop);
  }
  const std::size_t rest = words - std::min(words, columns.size());
  const bool has_root = rest == kBlockWords + 1 || rest == 2 * kBlockWords + 1;
  if (!has_root && rest != kBlockWords && rest != 2 * kBlockWords) {
    return {};
  }
  if (has_root) {
    columns.push_back(NcclColumn::Root);
  }
  while (columns.size() < words) {
    for (const NcclColumn column :
         {NcclColumn::Time, NcclColumn::Algbw, NcclColumn::Busbw, NcclColumn::Check}) {
      columns.push_back(column);
    }
  }
  return columns;
}

/// Leaves out the first or second of two blocks.
NcclColumns with_one_block(NcclColumns columns, bool first_is_blank) {
  const std::vector<std::size_t> starts = block_starts(columns);
  const auto begin = columns.begin() + static_cast<std::ptrdiff_t>(starts[first_is_blank ? 0 : 1]);
  columns.erase(begin, begin + static_cast<std::ptrdiff_t>(starts[1] - starts[0]));
  return columns;
}

bool is_stamp(std::string_view word) {
  return !word.empty() && word.find_first_not_of("0123456789-:") == std::string_view::npos;
}

/// Puts one word where its column says. False when it is not what belongs there.
bool put(NcclColumn column,
         const std::string& word,
         const NcclTable& table,
         NcclRow* row,
         NcclBlock* block) {
  const auto number = parse_printed(word, 0);
  switch (column) {
    case NcclColumn::Size:
    case NcclColumn::Count: {
      constexpr double kMost = 9e18;
      if (!number || number->value < 0 || number->value > kMost) {
        return false;
      }
      const auto exact = parse_number<std::int64_t>(word);
      (column == NcclColumn::Size ? row->bytes : row->count) =
          exact.value_or(std::llround(number->value));
      if (column == NcclColumn::Size && !exact) {
        row->bytes_half_unit = number->half_unit;
      }
      return true;
    }
    case NcclColumn::Root:
      row->root = parse_number<std::int64_t>(word);
      return row->root.has_value();
    case NcclColumn::Time: {
      constexpr int kMilliToMicro = 3;
      const auto time = parse_printed(word, table.milliseconds ? kMilliToMicro : 0);
      block->time_us = time.value_or(PrintedNumber{});
      return time.has_value() && time->value >= 0;
    }
    case NcclColumn::Algbw:
    case NcclColumn::Busbw:
      (column == NcclColumn::Algbw ? block->algbw : block->busbw) =
          number.value_or(PrintedNumber{});
      return number.has_value();
    case NcclColumn::Check:
      block->check_unreadable = word == kUnreadable;
      if (number) {
        block->check = number->value;
      }
      return number.has_value() || block->check_unreadable || word == "N/A";
    case NcclColumn::Type:
      row->type = word;
      return true;
    case NcclColumn::Redop:
      row->redop = word;
      return true;
    case NcclColumn::Stamp:
    case NcclColumn::Other:
      break;
  }
  return true;
}

}  // namespace

bool is_numeric(std::string_view text) {
  const std::vector<std::string_view> words = words_of(text);
  return !words.empty() && std::ranges::all_of(words, [](std::string_view word) {
    return word == "N/A" || is_stamp(word) || parse_printed(word).has_value();
  });
}

bool read_header(std::string_view line, NcclTable* table, NcclColumns* columns) {
  std::vector<std::string_view> words = words_of(line);
  const auto first =
      std::ranges::find_if(words, [](auto word) { return word == "size" || word == "bytes"; });
  words.erase(words.begin(), first);
  columns->clear();
  int blocks = 0;
  bool has_algbw = false;
  for (const std::string_view word : words) {
    const NcclColumn column = column_of(word);
    // A second root column is an option's value, not the root of the row.
    const bool again =
        column == NcclColumn::Root && std::ranges::find(*columns, column) != columns->end();
    const bool behind = column == NcclColumn::Redop && blocks > 0;
    columns->push_back(again || behind ? NcclColumn::Other : column);
    blocks += column == NcclColumn::Busbw ? 1 : 0;
    has_algbw = has_algbw || column == NcclColumn::Algbw;
    table->has_root = table->has_root || column == NcclColumn::Root;
    table->cpu_time = table->cpu_time || word == "cputime";
    if (column == NcclColumn::Check) {
      table->check_column = word;
    }
  }
  const bool has_type = std::ranges::find(*columns, NcclColumn::Type) != columns->end();
  if (blocks == 0 || blocks > 2 || !has_algbw || !has_type ||
      block_starts(*columns).size() != static_cast<std::size_t>(blocks)) {
    return false;
  }
  table->has_header = true;
  table->blocks = blocks;
  table->milliseconds = words.front() == "bytes" && table->check_column == "res";
  return true;
}

OpenRow::OpenRow(
    int line, std::string_view text, const RowHead& head, std::size_t cut, NcclColumns columns)
    : line_(line), columns_(std::move(columns)) {
  for (const std::string_view word : words_of(text.substr(head.at, head.end - head.at))) {
    words_.emplace_back(word);
  }
  if (cut <= head.end) {
    return;  // Glued to the redop.
  }
  const bool has_root =
      columns_.empty() || std::ranges::find(columns_, NcclColumn::Root) != columns_.end();
  const std::size_t root_end = head.size_end + kSizeToRootEnd;
  const bool cut_off = cut < text.size();
  if (cut_off && has_root && cut < root_end) {
    add_words(text.substr(cut, root_end - cut));
    return;
  }
  add(text.substr(head.end, cut - head.end), cut_off);
}

void OpenRow::add(std::string_view text, bool cut_off) {
  add_words(text);
  if (cut_off) {
    add_unreadable();
  }
}

void OpenRow::add_words(std::string_view text) {
  const std::string blanked = blank_labels(text);
  std::size_t end = 0;
  for (const std::string_view word : words_of(blanked)) {
    const auto at = static_cast<std::size_t>(word.data() - blanked.data());
    wide_gap_ = wide_gap_ || at - end >= kBlankBlock;
    end = at + word.size();
    words_.emplace_back(word);
  }
}

/// The check at the end of a block, with foreign output glued to it.
void OpenRow::add_unreadable() {
  const NcclColumns columns =
      columns_.empty() ? guess_columns(kMaxWords, /*has_redop=*/true) : columns_;
  const std::vector<std::size_t> starts = block_starts(columns);
  const std::size_t length = starts.size() == 2 ? starts[1] - starts[0] : kBlockWords;
  for (const std::size_t start : starts) {
    if (words_.size() + 1 == start + length) {
      words_.emplace_back(kUnreadable);
      return;
    }
  }
}

bool OpenRow::is_full() const {
  return words_.size() >= (columns_.empty() ? kMaxWords - 1 : word_count(columns_));
}

NcclColumns OpenRow::columns_of_words() const {
  const std::vector<std::size_t> starts = block_starts(columns_);
  if (columns_.empty()) {
    constexpr std::size_t kRedopAt = 3;
    const bool has_redop = words_.size() > kRedopAt && !parse_printed(words_[kRedopAt]);
    return guess_columns(words_.size(), has_redop);
  }
  if (starts.size() == 2) {
    const std::size_t length = starts[1] - starts[0];
    const bool is_whole = columns_.size() - starts[1] >= length;  // A header may be cut short.
    if (is_whole && words_.size() + length == word_count(columns_)) {
      return with_one_block(columns_, wide_gap_);
    }
  }
  return columns_;
}

std::optional<NcclRow> OpenRow::finish(const NcclTable& table) const {
  const NcclColumns columns = columns_of_words();
  if (columns.empty() || words_.size() != word_count(columns)) {
    return std::nullopt;
  }
  NcclRow row;
  row.line = line_;
  std::vector<NcclBlock> blocks;
  NcclBlock before;  // Never written: every column of a block follows its time.
  std::size_t word = 0;
  for (const NcclColumn column : columns) {
    if (column == NcclColumn::Time) {
      blocks.emplace_back();
    }
    if (!put(column, words_[word], table, &row, blocks.empty() ? &before : &blocks.back())) {
      return std::nullopt;
    }
    if (column == NcclColumn::Stamp) {
      row.stamp = words_[word] + " " + words_[word + 1];
    }
    word += column == NcclColumn::Stamp ? 2 : 1;
  }
  if (blocks.size() == 2) {
    row.out_of_place = blocks[0];
    row.in_place = blocks[1];
  } else {
    (wide_gap_ ? row.in_place : row.out_of_place) = blocks.at(0);
  }
  return row;
}

bool agrees(const NcclRow& row, const NcclBlock& block) {
  constexpr double kBytesPerUsOfGb = 1000;
  const double fastest = block.time_us.value - block.time_us.half_unit;
  const double slowest = block.time_us.value + block.time_us.half_unit;
  const auto bytes = static_cast<double>(row.bytes);
  const double least = (bytes - row.bytes_half_unit) / kBytesPerUsOfGb;
  const double most = (bytes + row.bytes_half_unit) / kBytesPerUsOfGb;
  const double room = block.algbw.half_unit * (1 + 1e-9);
  return block.algbw.value >= least / slowest - room &&
         (fastest <= 0 || block.algbw.value <= most / fastest + room);
}

std::optional<std::size_t> cycles_of(const std::vector<NcclRow>& rows) {
  std::size_t period = 1;
  while (period < rows.size() && rows[period].bytes > rows[period - 1].bytes) {
    ++period;
  }
  for (std::size_t i = period; i < rows.size(); ++i) {
    if (rows[i].bytes != rows[i - period].bytes) {
      return std::nullopt;
    }
  }
  return rows.empty() ? 0 : (rows.size() - 1) / period + 1;
}

double row_seconds(const NcclRow& row) {
  constexpr double kMicro = 1e-6;
  const double none = HUGE_VAL;
  const double out = row.out_of_place ? row.out_of_place->time_us.value : none;
  const double in = row.in_place ? row.in_place->time_us.value : none;
  return std::min(out, in) * kMicro;
}

}  // namespace stepsim
