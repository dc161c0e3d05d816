#include "calibrate/import/nccl/nccl_text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <set>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "calibrate/import/nccl/nccl_line.h"
#include "calibrate/import/nccl/nccl_row.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/parse_number.h"

namespace stepsim {
namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// What follows `key` up to a blank; empty when there is none.
std::string word_after(std::string_view text, std::string_view key) {
  const std::size_t at = text.find(key);
  if (at == std::string_view::npos) {
    return "";
  }
  const auto words = words_of(text.substr(at + key.size()));
  return words.empty() ? "" : printable(words.front());
}

/// A number of ranks or the like, 0 or more; absent when `word` is none.
std::optional<int> small_number(std::string_view word) {
  constexpr int kMax = 1 << 24;
  const auto value = parse_number<int>(word);
  return value && *value >= 0 && *value <= kMax ? value : std::nullopt;
}

/// "Rank 3 [Group 0] Pid 17 on host device 3 [id] NAME", anywhere in the line.
std::optional<NcclRank> read_rank(std::string_view line) {
  const std::size_t at = line.find("Rank ");
  if (at == std::string_view::npos) {
    return std::nullopt;
  }
  const auto words = words_of(line.substr(at));
  std::size_t pid = 2;
  NcclRank rank;
  if (words.size() > 4 && words[2] == "Group") {
    rank.group = small_number(words[3]).value_or(0);
    pid = 4;
  }
  const auto number = words.size() > 1 ? small_number(words[1]) : std::nullopt;
  if (!number || words.size() < pid + 7 || words[pid] != "Pid" || words[pid + 2] != "on" ||
      words[pid + 4] != "device") {
    return std::nullopt;
  }
  rank.rank = *number;
  rank.host = words[pid + 3];
  rank.device = small_number(words[pid + 5]).value_or(0);
  const std::string_view id = words[pid + 6];
  rank.bus_id = id.size() > 2 && id.front() == '[' ? id.substr(1, id.size() - 2) : id;
  for (std::size_t i = pid + 7; i < words.size(); ++i) {
    rank.name += (rank.name.empty() ? "" : " ") + std::string(words[i]);
  }
  return rank;
}

/// "2.29.2" of 22902, "2.4.6" of 2406.
std::string version_of_code(const std::string& code) {
  const int number = small_number(code).value_or(0);
  constexpr int kNewCodes = 10000;
  const int step = number >= kNewCodes ? kNewCodes : 1000;
  return number == 0 ? ""
                     : fmt::format("{}.{}.{}", number / step, number % step / 100, number % 100);
}

/// True for a line of dots only, with or without "#".
bool is_elision(std::string_view line) {
  std::string rest;
  for (const std::string_view word : words_of(line)) {
    rest += word;
  }
  rest.erase(0, rest.starts_with("#") ? 1 : 0);
  return rest == "…" || (rest.size() >= 3 && rest.find_first_not_of('.') == std::string::npos);
}

bool is_word_letter(char letter) {
  return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_';
}

/// Tells whether a program's name is of some collective: hypercube_perf, all_reduce_bias_perf; not
/// ib_write_perf.
bool names_collective(std::string_view name) {
  constexpr std::array kWords = {"reduce",
                                 "gather",
                                 "scatter",
                                 "broadcast",
                                 "all_to_all",
                                 "alltoall",
                                 "sendrecv",
                                 "hypercube"};
  return std::ranges::any_of(kWords, [&](std::string_view word) { return contains(name, word); });
}

class TextReader {
 public:
  explicit TextReader(const std::string& file) { log_.file = file; }

  void line(int number, std::string_view text);
  [[nodiscard]] NcclLog finish();

 private:
  void row(int number, std::string_view text, const RowHead& head, std::size_t cut);
  void other(int number, std::string_view text, bool cut_off);
  bool footer(std::string_view text);
  bool run_line(std::string_view text);
  void command(std::string_view text);
  void versions(std::string_view text);
  void fragment(int number, std::string_view text, bool cut_off);
  void unread(int number, std::string_view text);
  void rank(NcclRank rank);
  void open_table(NcclTable table);
  void close_row();
  void close_table();
  void forget_run();

  NcclLog log_;
  bool in_table_ = false;  ///< Rows go to the last table.
  NcclColumns columns_;
  std::optional<OpenRow> row_;
  std::string collective_;
  std::string section_;
  std::vector<NcclRank> ranks_;
  std::set<int> rank_numbers_;
  std::shared_ptr<const std::vector<NcclRank>> listed_;  ///< ranks_, once a table has begun.
  bool ranks_elided_ = false;
  bool ranks_repeated_ = false;
  int strays_ = 0;
};

void TextReader::line(int number, std::string_view text) {
  std::string without_commas;
  constexpr std::ptrdiff_t kCommasOfCsv = 7;
  if (std::ranges::count(text, ',') >= kCommasOfCsv) {
    without_commas = text;
    std::replace(without_commas.begin(), without_commas.end(), ',', ' ');
    text = without_commas;
  }
  const std::size_t cut = nccl_output_at(text).value_or(text.size());
  if (cut < text.size()) {
    log_.interleaved = log_.interleaved || in_table_;
    versions(text.substr(cut));
  }
  const auto head = find_row_head(text);
  if (head && head->at < cut) {
    row(number, text, *head, cut);
  } else {
    other(number, text.substr(0, cut), cut < text.size());
  }
}

void TextReader::row(int number, std::string_view text, const RowHead& head, std::size_t cut) {
  close_row();
  if (!in_table_) {
    NcclTable table;
    table.line = number;
    columns_.clear();
    open_table(std::move(table));
  }
  const std::string_view before = text.substr(0, head.at);
  const std::string_view behind = text.substr(head.end, cut - std::min(cut, head.end));
  log_.prefixes = log_.prefixes || before.find_first_not_of(" \t#>|") != std::string_view::npos;
  log_.prefixes_inside = log_.prefixes_inside || blank_labels(behind) != behind;
  row_.emplace(number, text, head, cut, columns_);
}

void TextReader::other(int number, std::string_view text, bool cut_off) {
  const std::string_view line = without_labels(text);
  if (line.empty()) {
    return;
  }
  const std::string numbers = blank_labels(line);
  NcclTable table;
  NcclColumns columns;
  if (is_numeric(numbers)) {
    fragment(number, numbers, cut_off);
  } else if (contains(line, "algbw") && read_header(line, &table, &columns)) {
    table.header_repeated = in_table_ && !row_ && log_.tables.back().rows.empty();
    close_table();
    table.line = number;
    columns_ = std::move(columns);
    open_table(std::move(table));
  } else if (auto found = read_rank(line)) {
    rank(*std::move(found));
  } else if (is_elision(line)) {
    const bool between_rows = in_table_ && (row_ || !log_.tables.back().rows.empty());
    if (between_rows) {
      log_.tables.back().rows_elided = true;
    } else {
      ranks_elided_ = true;
    }
  } else if (!footer(line) && !run_line(line)) {
    command(line);
    versions(line);
    if (looks_like_row(line)) {
      unread(number, line);
    }
  }
}

/// The end of a row whose beginning stood further up.
void TextReader::fragment(int number, std::string_view text, bool cut_off) {
  if (row_ && !row_->is_full()) {
    row_->add(text, cut_off);
    return;
  }
  const std::size_t words = words_of(text).size();
  if ((words == 4 || words == 8) && contains(text, ".")) {
    ++(in_table_ ? log_.tables.back().stray_fragments : strays_);
  } else if (looks_like_row(text)) {
    unread(number, text);
  }
}

void TextReader::unread(int number, std::string_view text) {
  if (log_.unread_rows++ == 0) {
    constexpr std::size_t kMostShown = 100;
    const std::string shown = printable(text.substr(0, kMostShown));
    log_.first_unread_row = fmt::format("line {}: {}", number, fmt::join(words_of(shown), " "));
  }
}

bool TextReader::footer(std::string_view text) {
  const bool bounds = contains(text, "Out of bounds values");
  const bool average = contains(text, "Avg bus bandwidth");
  if (!bounds && !average) {
    return false;
  }
  close_row();
  // A host's name in front may end with a colon, too.
  const std::string value = word_after(text.substr(text.find(bounds ? "Out of" : "Avg bus")), ":");
  if (!log_.tables.empty()) {
    NcclTable& table = log_.tables.back();
    if (bounds) {
      table.footer_failed = contains(text, "FAILED");
      table.out_of_bounds = small_number(value);
    } else {
      table.avg_busbw = parse_printed(value);
    }
  }
  in_table_ = in_table_ && !average;
  return true;
}

/// Lines that begin or end a run.
bool TextReader::run_line(std::string_view text) {
  if (text.starts_with("###")) {
    close_table();
    forget_run();
    section_ = printable(text.substr(std::min(text.size(), text.find_first_not_of("# "))));
    return true;
  }
  if (contains(text, "Collective test starting:")) {
    close_table();
    forget_run();
    collective_ = nccl_collective_name(word_after(text, "Collective test starting:"));
    return true;
  }
  if (contains(text, "nThread ") && contains(text, "minBytes ")) {
    close_table();
    ranks_.clear();
    ranks_repeated_ = false;
    rank_numbers_.clear();
    listed_.reset();
    return true;
  }
  if (contains(text, "Collective test concluded:")) {
    close_table();
    forget_run();
    return true;
  }
  return false;
}

/// The program's name in a command line above the table, which older versions do not repeat.
void TextReader::command(std::string_view text) {
  constexpr std::string_view kEnd = "_perf";
  for (std::size_t end = text.find(kEnd); end != text.npos; end = text.find(kEnd, end + 1)) {
    std::size_t begin = end;
    while (begin > 0 && is_word_letter(text[begin - 1])) {
      --begin;
    }
    const std::string name = nccl_collective_name(std::string(text.substr(begin, end - begin)));
    if (names_collective(name)) {
      collective_ = name;
      return;
    }
  }
}

void TextReader::versions(std::string_view text) {
  if (contains(text, "nccl-library=")) {
    log_.nccl_version = version_of_code(word_after(text, "nccl-library="));
    log_.tests_version = word_after(text, "nccl-tests version");
  } else if (contains(text, "NCCL version ") && log_.nccl_version.empty()) {
    log_.nccl_version = word_after(text, "NCCL version ");
  } else if (contains(text, "RCCL version") && log_.nccl_version.empty()) {
    log_.nccl_version = "RCCL " + word_after(text, ":");
  } else if (contains(text, "rccl-tests: Version")) {
    log_.tests_version = "RCCL " + word_after(text, "Version");
  }
  for (const std::string_view key : {"NCCL_ALGO", "NCCL_PROTO"}) {
    if (contains(text, key) && contains(text, "set by environment to")) {
      log_.forced = std::string(key) + "=" + word_after(text, "set by environment to");
    }
  }
  for (const std::string_view key :
       {"Test CUDA failure", "Test NCCL failure", ": Test failure", ": Test timeout"}) {
    if (log_.failure.empty() && contains(text, key)) {
      log_.failure = printable(text);
    }
  }
}

void TextReader::rank(NcclRank rank) {
  if (in_table_) {
    close_table();
  }
  if (listed_ || rank_numbers_.count(rank.rank) > 0) {
    // Another run begins, or another job wrote its list into this one.
    ranks_repeated_ = !listed_;
    ranks_.clear();
    rank_numbers_.clear();
    listed_.reset();
  }
  rank_numbers_.insert(rank.rank);
  ranks_.push_back(std::move(rank));
}

void TextReader::open_table(NcclTable table) {
  if (!ranks_.empty()) {
    listed_ = std::make_shared<const std::vector<NcclRank>>(std::exchange(ranks_, {}));
  }
  table.collective = collective_;
  table.section = section_;
  table.ranks = listed_;
  table.ranks_elided = ranks_elided_;
  table.ranks_repeated = ranks_repeated_;
  table.stray_fragments = std::exchange(strays_, 0);
  log_.tables.push_back(std::move(table));
  in_table_ = true;
}

void TextReader::close_row() {
  if (!row_) {
    return;
  }
  NcclTable& table = log_.tables.back();
  if (auto row = row_->finish(table)) {
    if (!table.has_header) {
      table.has_root = row->root.has_value();
      table.blocks = row->out_of_place && row->in_place ? 2 : 1;
    }
    if (log_.date.empty()) {
      log_.date = row->stamp;
    }
    table.rows.push_back(*std::move(row));
  } else {
    ++table.incomplete_rows;
  }
  row_.reset();
}

void TextReader::close_table() {
  close_row();
  if (log_.tables.size() > 1 && log_.tables.back().rows.empty() && in_table_) {
    log_.tables.pop_back();
  }
  in_table_ = false;
}

/// What was said of the run so far does not hold for the next.
void TextReader::forget_run() {
  collective_.clear();
  section_.clear();
  ranks_.clear();
  rank_numbers_.clear();
  listed_.reset();
  ranks_elided_ = false;
  ranks_repeated_ = false;
}

NcclLog TextReader::finish() {
  close_table();
  if (log_.tables.empty() && !ranks_.empty()) {
    open_table({});
  }
  const bool some =
      std::ranges::any_of(log_.tables, [](const auto& table) { return !table.rows.empty(); });
  if (some) {
    std::erase_if(log_.tables, [](const auto& table) { return table.rows.empty(); });
  }
  return std::move(log_);
}

}  // namespace

std::string nccl_collective_name(std::string program) {
  for (const std::string_view begin : {"nccl_", "rccl_"}) {
    if (program.starts_with(begin)) {
      program.erase(0, begin.size());
    }
  }
  for (const std::string_view end : {"_mpi", "_perf"}) {
    if (program.size() > end.size() && program.ends_with(end)) {
      program.resize(program.size() - end.size());
    }
  }
  return program == "alltoall" ? "all_to_all" : program;
}

NcclLog read_nccl_text(std::string_view text, const std::string& file) {
  TextReader reader(file);
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    line.remove_suffix(line.ends_with('\r') ? 1 : 0);
    reader.line(number, line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return reader.finish();
}

}  // namespace stepsim
