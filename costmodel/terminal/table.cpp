#include "costmodel/terminal/table.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <utility>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/terminal/wrap.h"

namespace stepsim {

namespace {

constexpr std::size_t kGap = 2;
constexpr std::size_t kLeastPicture = 16;
constexpr std::size_t kMaxPicture = 80;
constexpr std::size_t kLeastWords = 24;

std::size_t longest(const std::vector<std::string>& texts) {
  std::size_t width = max_of(texts, display_width, std::size_t{0});
  return width;
}

/// Tells whether a cell begins like a number: "12.3", "+1.2 %", "0 (0.0 %)"; not "8 GPUs, fp16".
bool is_number(const std::string& cell) {
  return !cell.empty() && cell.find(", ") == std::string::npos &&
         (std::isdigit(static_cast<unsigned char>(cell.front())) != 0 || cell.front() == '+' ||
          cell.front() == '-');
}

/// A cell whose name comes from a file: one without control characters, line ends among them.
std::string one_line(const std::string& cell) {
  return printable(cell, std::string::npos);
}

std::string aligned(const std::string& cell, std::size_t width, bool left) {
  const std::string blanks(width - std::min(width, display_width(cell)), ' ');
  return left ? cell + blanks : blanks + cell;
}

}  // namespace

bool is_word_column(const std::vector<std::string>& cells) {
  return std::ranges::none_of(cells, is_number);
}

/// Chooses the columns of a table and renders them for one width.
class TableLayout {
 public:
  TableLayout(const Table& table, const Screen& screen)
      : table_(table),
        screen_(screen),
        limit_(screen.is_terminal() ? static_cast<std::size_t>(screen.columns)
                                    : std::numeric_limits<std::size_t>::max()) {
    for (std::size_t i = 0; i < table.header_.size(); ++i) {
      std::vector<std::string> cells =
          mapped(table.rows_, [&](const auto& row) { return one_line(row[i]); });
      const bool left = i == 0 || is_word_column(cells);
      columns_.push_back({one_line(table.header_[i]), std::move(cells), left, nullptr, 0});
    }
    for (const Table::Picture& picture : table.pictures_) {
      if (screen.is_terminal()) {
        columns_.push_back({picture.title, {}, true, &picture, 0});
      } else if (!picture.plain.empty()) {
        columns_.push_back({picture.title, picture.plain, true, nullptr, 0});
      }
    }
  }

  [[nodiscard]] std::string text() const {
    std::string result;
    std::vector<Column> block = {columns_.front()};
    for (std::size_t i = 1; i < columns_.size(); ++i) {
      block.push_back(columns_[i]);
      if (fit(block) || block.size() == 2) {
        continue;
      }
      block.pop_back();
      if (!columns_[i].is_bars()) {
        result += rendered(block) + "\n";
        block = {columns_.front(), columns_[i]};
      }
    }
    return result + rendered(block);
  }

 private:
  struct Column {
    std::string title;
    std::vector<std::string> cells;  ///< [row]; a picture's are rendered when its width is known.
    bool left = false;
    const Table::Picture* picture = nullptr;
    std::size_t width = 0;

    /// Tells whether this column holds bars, which repeat numbers and may be left out.
    [[nodiscard]] bool is_bars() const { return picture != nullptr && !picture->shares.empty(); }
  };

  static std::size_t total(const std::vector<Column>& columns) {
    std::size_t width = 0;
    for (const Column& column : columns) {
      width += column.width + kGap;
    }
    return width - kGap;
  }

  /// Sets widths at which the columns fit the screen; returns false when there are none.
  bool fit(std::vector<Column>& columns) const {
    for (Column& column : columns) {
      column.width = std::max(column.picture != nullptr ? kLeastPicture : longest(column.cells),
                              display_width(column.title));
    }
    if (total(columns) <= limit_) {
      return true;
    }
    for (Column& column : columns) {
      column.width = std::max(column.picture != nullptr ? kLeastPicture : longest(column.cells),
                              longest(wrapped(column.title, 1)));
    }
    return total(columns) <= limit_ || break_words(columns);
  }

  /// Narrows the widest column of words so that its cells wrap; returns false when that is not
  /// enough.
  bool break_words(std::vector<Column>& columns) const {
    Column* widest = nullptr;
    for (std::size_t i = 1; i < columns.size(); ++i) {
      if (columns[i].left && columns[i].picture == nullptr &&
          (widest == nullptr || columns[i].width > widest->width)) {
        widest = &columns[i];
      }
    }
    const std::size_t excess = total(columns) - limit_;
    if (widest == nullptr || widest->width < kLeastWords + excess) {
      return false;
    }
    widest->width -= excess;
    return std::ranges::all_of(widest->cells, [&](const std::string& cell) {
      return longest(wrapped(cell, widest->width)) <= widest->width;
    });
  }

  /// Widens pictures into the room that is left.
  void widen_pictures(std::vector<Column>& columns) const {
    for (Column& column : columns) {
      if (column.picture != nullptr) {
        const std::size_t used = total(columns);
        column.width = std::min(std::max(kMaxPicture, column.width),
                                column.width + (limit_ > used ? limit_ - used : 0));
      }
    }
  }

  [[nodiscard]] std::vector<std::string> pictures(const Column& column) const {
    const Table::Picture& picture = *column.picture;
    std::vector<std::string> cells = mapped(
        picture.shares, [&](const double share) { return bar_text(share, column.width, screen_); });
    double left = std::numeric_limits<double>::max();
    double right = std::numeric_limits<double>::lowest();
    for (const Interval90& interval : picture.intervals) {
      left = std::min({left, interval.low, interval.value});
      right = std::max({right, interval.high, interval.value});
    }
    for (const Interval90& interval : picture.intervals) {
      cells.push_back(interval_text(interval, left, right, column.width, screen_));
    }
    return cells;
  }

  [[nodiscard]] std::string rendered(std::vector<Column> columns) const {
    fit(columns);
    widen_pictures(columns);
    std::vector<std::vector<std::string>> titles;
    std::size_t head = 0;
    for (Column& column : columns) {
      if (column.picture != nullptr) {
        column.cells = pictures(column);
      }
      titles.push_back(wrapped(column.title, column.width));
      head = std::max(head, titles.back().size());
    }
    for (auto& title : titles) {
      title.insert(title.begin(), head - title.size(), "");
    }
    std::string text = lines(columns, titles, Paint::Strong);
    for (std::size_t r = 0; r < table_.rows_.size(); ++r) {
      std::vector<std::vector<std::string>> cells;
      for (const Column& column : columns) {
        const std::string& cell = column.cells[r];
        cells.push_back(display_width(cell) <= column.width ? std::vector{cell}
                                                            : wrapped(cell, column.width));
      }
      text += lines(columns, cells, table_.paints_[r]);
    }
    return text;
  }

  /// Renders one row of `cells`, [column][line].
  [[nodiscard]] std::string lines(const std::vector<Column>& columns,
                                  const std::vector<std::vector<std::string>>& cells,
                                  Paint paint) const {
    std::size_t count = 0;
    for (const auto& cell : cells) {
      count = std::max(count, cell.size());
    }
    std::string text;
    for (std::size_t l = 0; l < count; ++l) {
      std::string line;
      for (std::size_t i = 0; i < columns.size(); ++i) {
        const std::string part = l < cells[i].size() ? cells[i][l] : "";
        line += (i == 0 ? "" : std::string(kGap, ' ')) +
                aligned(part, columns[i].width, columns[i].left);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      text += painted(line, paint, screen_) + "\n";
    }
    return text;
  }

  const Table& table_;
  Screen screen_;
  std::size_t limit_;
  std::vector<Column> columns_;
};

void Table::add_bars(std::string title,
                     std::vector<double> shares,
                     std::vector<std::string> plain) {
  pictures_.push_back({std::move(title), std::move(shares), {}, std::move(plain)});
}

void Table::add_intervals(std::string title, std::vector<Interval90> intervals) {
  pictures_.push_back({std::move(title), {}, std::move(intervals), {}});
}

std::string Table::text(const Screen& screen) const {
  return TableLayout(*this, screen).text();
}

}  // namespace stepsim
