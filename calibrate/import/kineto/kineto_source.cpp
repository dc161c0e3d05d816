#include "calibrate/import/kineto/kineto_source.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "costmodel/base/input_error.h"
#include "costmodel/io/foreign_file.h"
#include "costmodel/io/json_lines.h"

namespace stepsim {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 18;
/// So many characters are repaired at once: those behind them may be read without.
constexpr std::size_t kRepaired = std::size_t{1} << 10;
/// A repair looks at no more than this many characters ahead.
constexpr std::size_t kAhead = 16;
constexpr std::size_t kLongestString = std::size_t{16} << 20;

using CharacterSet = std::array<bool, 256>;

/// Characters outside of strings with which a string begins, or what is no JSON.
constexpr CharacterSet beginning_set() {
  CharacterSet set{};
  for (const char c : std::string_view("\"NniI-")) {
    set[static_cast<unsigned char>(c)] = true;
  }
  return set;
}

/// Characters of a string that stay as they are: of ASCII, but for its end, escapes and controls.
constexpr CharacterSet plain_set() {
  CharacterSet set{};
  for (std::size_t c = 0x20; c < 0x80; ++c) {
    set[c] = c != '"' && c != '\\';
  }
  return set;
}

constexpr CharacterSet kBeginnings = beginning_set();
constexpr CharacterSet kPlainInStrings = plain_set();

bool is_in(const CharacterSet& set, char c) {
  return set[static_cast<unsigned char>(c)];
}

bool is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

}  // namespace

KinetoSource::KinetoSource(const std::string& path, ProgressCallback on_progress)
    : path_(path), on_progress_(std::move(on_progress)), file_(path) {}

void KinetoSource::fail(std::size_t offset, const std::string& message) const {
  throw InputError(SourcePlace{path_}, "byte {}: {}", offset, message);
}

bool KinetoSource::fill() {
  if (ended_ && ready_ == chunk_.size()) {
    return false;
  }
  if (!ended_ && chunk_.size() - ready_ < kRepaired + kAhead) {
    refill();
  }
  repair(std::min(ready_ + kRepaired, ended_ ? chunk_.size() : chunk_.size() - kAhead));
  return at_ < ready_;
}

std::span<char> KinetoSource::ahead() {
  if (!ended_ && chunk_.size() - at_ < kChunk / 2) {
    refill();
  }
  return std::span(chunk_).subspan(at_);
}

void KinetoSource::skip(std::size_t count) {
  at_ += count;
  skipped_ += count;
  if (at_ > ready_) {
    ready_ = at_;
    in_string_ = false;
  }
}

void KinetoSource::refill() {
  chunk_.erase(0, at_);
  before_ += at_;
  ready_ -= at_;
  at_ = 0;
  read_more();
  chunk_.reserve(chunk_.size() + kJsonPadding);
  if (on_progress_) {
    on_progress_(file_.share());
  }
}

void KinetoSource::read_more() {
  while (!ended_ && chunk_.size() <= kChunk) {
    ended_ = !file_.append(kChunk, &chunk_);
  }
  if (before_ > 0) {
    return;
  }
  if (const std::string_view what = foreign_file(chunk_); !what.empty()) {
    throw InputError(SourcePlace{path_}, "this is {}", what);
  }
  if (chunk_.find_first_not_of(" \t\r\n") == std::string::npos && ended_) {
    throw InputError(SourcePlace{path_}, "the file is empty");
  }
}

void KinetoSource::repair(std::size_t limit) {
  std::size_t i = ready_;
  while (i < limit) {
    if (in_string_) {
      i = repair_in_string(skip_plain(i, limit));
    } else if (!is_in(kBeginnings, chunk_[i])) {
      ++i;
    } else if (chunk_[i] == '"') {
      in_string_ = true;
      string_size_ = 0;
      ++i;
    } else {
      i = repair_value(i);
    }
  }
  ready_ = i;
}

std::size_t KinetoSource::skip_plain(std::size_t i, std::size_t limit) {
  // The last character before the limit is left to repair_in_string().
  while (continuation_ == 0 && i + 1 < limit && string_size_ < kLongestString &&
         is_in(kPlainInStrings, chunk_[i])) {
    ++string_size_;
    ++i;
  }
  return i;
}

std::size_t KinetoSource::repair_in_string(std::size_t i) {
  char& c = chunk_[i];
  const auto byte = static_cast<unsigned char>(c);
  count_utf8(byte);
  if (++string_size_ > kLongestString) {
    fail(before_ + i, "a string of more than 16 MiB");
  }
  if (c == '"') {
    in_string_ = false;
  } else if (c == '\\') {
    return repair_escape(i);
  } else if (byte < 0x20) {
    c = ' ';
    ++repaired_;
  } else if (byte >= 0x80) {
    c = '?';
  }
  return i + 1;
}

std::size_t KinetoSource::repair_escape(std::size_t i) {
  constexpr std::size_t kUnicode = 6;  // \uXXXX
  if (i + 1 >= chunk_.size()) {
    return i + 1;
  }
  const char kind = chunk_[i + 1];
  if (std::string_view("\"\\/bfnrt").find(kind) != std::string_view::npos) {
    return i + 2;
  }
  const std::string_view digits =
      std::string_view{chunk_}.substr(i + 2, std::min(chunk_.size() - i - 2, kUnicode - 2));
  if (kind != 'u' || digits.size() < kUnicode - 2 || !std::ranges::all_of(digits, is_hex)) {
    chunk_[i] = '/';
    ++repaired_;
    return i + 1;
  }
  const bool surrogate =
      (digits[0] == 'd' || digits[0] == 'D') && digits[1] >= '8';  // Letters are above digits.
  if (surrogate) {
    chunk_.replace(i, kUnicode, kUnicode, '?');
  }
  return i + kUnicode;
}

std::size_t KinetoSource::repair_value(std::size_t i) {
  const std::string_view rest = std::string_view{chunk_}.substr(i, kAhead);
  for (const std::string_view word :
       {"N/A", "NaN", "nan", "Infinity", "-Infinity", "inf", "-inf"}) {
    if (rest.substr(0, word.size()) == word) {
      chunk_.replace(i, word.size(), "\"\"" + std::string(word.size() - 2, ' '));
      ++repaired_;
      return i + word.size();
    }
  }
  return i + 1;
}

void KinetoSource::count_utf8(unsigned char byte) {
  if (continuation_ > 0 && (byte & 0xc0) == 0x80) {
    --continuation_;
    return;
  }
  if (continuation_ > 0 || (byte & 0xc0) == 0x80 || byte >= 0xf8) {
    ++repaired_;
  }
  continuation_ = byte >= 0xf8 ? 0 : byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : byte >= 0xc0 ? 1 : 0;
}

}  // namespace stepsim
