#pragma once

#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "costmodel/io/json_file.h"

namespace stepsim {

/// An input iterator over the text that records, for the handler, how far the parser has read.
struct TrackingIterator {
  // NOLINTBEGIN(readability-identifier-naming): std::iterator_traits looks for these names.
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  // NOLINTEND(readability-identifier-naming)

  const char* at = nullptr;
  const char** read_to = nullptr;

  reference operator*() const { return *at; }
  TrackingIterator& operator++() {
    *read_to = ++at;
    return *this;
  }
  TrackingIterator operator++(int) {
    TrackingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const TrackingIterator& other) const { return at == other.at; }
  bool operator!=(const TrackingIterator& other) const { return at != other.at; }
};

/// Receives the parser's events and knows how far in the text the parser has read.
class JsonHandler : public nlohmann::json_sax<Json> {
 public:
  explicit JsonHandler(std::string_view text) : text_(text), read_to_(text.data()) {}

  /// Parses the text; returns false when a callback stopped the parser.
  bool run() {
    const char* end = text_.data() + text_.size();
    return Json::sax_parse(TrackingIterator{text_.data(), &read_to_},
                           TrackingIterator{end, &read_to_},
                           static_cast<nlohmann::json_sax<Json>*>(this));
  }

 protected:
  [[nodiscard]] std::size_t offset() const {
    return static_cast<std::size_t>(read_to_ - text_.data());
  }
  [[nodiscard]] std::string_view source() const { return text_; }

 private:
  std::string_view text_;
  const char* read_to_;
};

/// Converts an offset in the text to its line, column and the text of that line.
[[nodiscard]] SourcePlace place_of(std::string_view text,
                                   std::size_t offset,
                                   const std::string& file,
                                   int first_line);

}  // namespace stepsim
