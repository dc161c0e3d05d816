#include "costmodel/base/input_error.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace stepsim {
namespace {

/// Returns how many bytes the UTF-8 character that starts at `at` has; 0 when it is not valid.
std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const std::size_t length = lead < 0x80                    ? 1
                             : lead >= 0xc2 && lead <= 0xdf ? 2
                             : lead >= 0xe0 && lead <= 0xef ? 3
                             : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                            : 0;
  if (length == 0 || at + length > text.size()) {
    return 0;
  }
  for (std::size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[at + i]) & 0xc0) != 0x80) {
      return 0;
    }
  }
  return length;
}

/// True for control characters: C0, DEL, and C1 in its UTF-8 form.
bool is_control(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character[0]);
  return lead < 0x20 || lead == 0x7f ||
         (lead == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0);
}

/// Appends the bytes of a character as \xNN.
void append_bytes(std::string_view character, std::string& text) {
  for (const char byte : character) {
    text += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  }
}

/// Splits a text into the cells of a terminal line, one for each character.
std::vector<std::string> cells(std::string_view text) {
  std::vector<std::string> result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = std::max<std::size_t>(utf8_length(text, at), 1);
    const std::string_view character = text.substr(at, length);
    const bool plain = utf8_length(text, at) > 0 && !is_control(character);
    result.emplace_back(plain ? character : character == "\t" ? " " : "?");
    at += length;
  }
  return result;
}

/// Returns the line with a caret under `column`; a long line is cut to the part around the caret.
std::string quoted_line(const SourcePlace& place) {
  constexpr std::size_t kBefore = 60;
  constexpr std::size_t kWidth = 100;
  // Enough for the window below, whatever the size of the line.
  const std::size_t column = static_cast<std::size_t>(std::max(place.column, 1)) - 1;
  const auto line = cells(std::string_view{place.text}.substr(0, 4 * (column + kWidth)));
  const std::size_t caret = std::min(column, line.size());
  const std::size_t first = caret > kBefore + kWidth / 4 ? caret - kBefore : 0;
  const std::size_t last = std::min(line.size(), first + kWidth);
  std::string quoted = first > 0 ? "…" : "";
  for (std::size_t i = first; i < last; ++i) {
    quoted += line[i];
  }
  if (last < line.size()) {
    quoted += "…";
  }
  if (place.column <= 0) {
    return "\n" + quoted;
  }
  return "\n" + quoted + "\n" + std::string(caret - first + (first > 0 ? 1 : 0), ' ') + "^";
}

std::string placed(const SourcePlace& place, const std::string& message) {
  std::string result = printable(place.file);
  if (place.line > 0) {
    result += fmt::format(":{}", place.line);
    if (place.column > 0) {
      result += fmt::format(":{}", place.column);
    }
  }
  result += ": error: " + message;
  if (!place.text.empty()) {
    result += quoted_line(place);
  }
  return result;
}

/// Edit distance in which swapping two neighbours is one edit (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

std::string in_lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(
      lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

/// Whether a word of a name, between dots and underscores, is a text but for one letter.
bool has_word_near(std::string_view candidate, std::string_view wanted) {
  constexpr std::size_t kShortest = 4;
  for (std::size_t begin = 0; begin < candidate.size() && wanted.size() >= kShortest;) {
    const std::size_t end = std::min(candidate.find_first_of("._- ", begin), candidate.size());
    if (edit_distance(candidate.substr(begin, end - begin), wanted) <= 1) {
      return true;
    }
    begin = end + 1;
  }
  return false;
}

/// The known names that hold a name, are a part of it or have a word near it, whatever the case of
/// their letters; the first eight, each once.
std::vector<std::string> names_like(std::string_view name, std::span<const std::string> known) {
  constexpr std::size_t kMost = 8;
  constexpr std::size_t kShortest = 3;  // Of what two names have in common.
  const std::string wanted = in_lower_case(name);
  std::vector<std::string> alike;
  for (const std::string& one : known) {
    const std::string candidate = in_lower_case(one);
    const bool holds = wanted.size() >= kShortest && candidate.find(wanted) != std::string::npos;
    const bool is_part =
        candidate.size() >= kShortest && wanted.find(candidate) != std::string::npos;
    const bool is_new = std::ranges::find(alike, one) == alike.end();
    const bool is_alike = holds || is_part || has_word_near(candidate, wanted);
    if (is_alike && is_new && alike.size() < kMost) {
      alike.push_back(one);
    }
  }
  return alike;
}

}  // namespace

InputError::InputError(const std::string& message, Lookup lookup)
    : std::runtime_error(without_controls(message)), lookup_(lookup) {}

InputError::InputError(const SourcePlace& place, const std::string& message, Lookup lookup)
    : std::runtime_error(without_controls(placed(place, message))),
      has_place_(true),
      place_(place),
      lookup_(lookup) {}

FieldError::FieldError(const std::string& field, const std::string& reason)
    : InputError(field + ": " + reason), field_(field), reason_(reason) {}

std::string nearest_name(std::string_view name, std::span<const std::string> known) {
  constexpr std::size_t kLongestName = 100;
  std::string nearest;
  if (name.size() > kLongestName) {
    return nearest;
  }
  // A third of the letters may be wrong: 'clusterr' is near 'cluster', 'rank' is not near 'name'.
  std::size_t best = std::max<std::size_t>(1, name.size() / 3) + 1;
  for (const auto& candidate : known) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best && distance < candidate.size()) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string unknown_name(std::string_view what,
                         std::string_view name,
                         std::span<const std::string> known) {
  const std::string nearest = nearest_name(name, known);
  std::string text = fmt::format("unknown {} '{}';", what, printable(name));
  if (!nearest.empty()) {
    text += fmt::format(" did you mean '{}'?", nearest);
  }
  constexpr std::size_t kLongList = 24;      // Where one is near.
  constexpr std::size_t kVeryLongList = 40;  // Where none is.
  if (known.size() <= (nearest.empty() ? kVeryLongList : kLongList)) {
    text += known.empty() ? " none is known" : fmt::format(" known: {}", fmt::join(known, ", "));
  } else if (nearest.empty()) {
    const std::vector<std::string> alike = names_like(name, known);
    text += alike.empty() ? fmt::format(" none of the {} known is like it", known.size())
                          : fmt::format(" like it: {}", fmt::join(alike, ", "));
  }
  return text;
}

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    if (length == 0) {
      return false;
    }
    at += length;
  }
  return true;
}

std::string printable(std::string_view text, std::size_t limit) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    const std::string_view character = text.substr(at, std::max<std::size_t>(length, 1));
    std::string shown(character);
    if (length == 0 || is_control(character)) {
      shown.clear();
      append_bytes(character, shown);
    }
    if (result.size() + shown.size() > limit) {
      return result + "…";
    }
    result += shown;
    at += character.size();
  }
  return result;
}

std::string without_controls(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    const std::string_view character = text.substr(at, std::max<std::size_t>(length, 1));
    const bool lays_out = character == "\n" || character == "\t";
    if (!lays_out && (length == 0 || is_control(character))) {
      append_bytes(character, result);
    } else {
      result += character;
    }
    at += character.size();
  }
  return result;
}

}  // namespace stepsim
