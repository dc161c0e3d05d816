#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

namespace stepsim {

/// The kind of a value that is no list and no object.
enum class KinetoValue { Integer, Decimal, Text, Other };

/// Is told what a trace holds.
class KinetoClient {
 public:
  KinetoClient() = default;
  virtual ~KinetoClient() = default;
  KinetoClient(const KinetoClient&) = delete;
  KinetoClient& operator=(const KinetoClient&) = delete;

  virtual void open_object() = 0;
  virtual void close_object() = 0;
  virtual void open_list() = 0;
  virtual void close_list() = 0;
  /// The name of the member whose value comes next.
  virtual void name_member(std::string_view name) = 0;
  /// False where the value that comes next would be told for nothing.
  [[nodiscard]] virtual bool takes_value() const = 0;
  /// A number as it is written, a text without quotes and escapes; other values are empty.
  virtual void take(std::string_view value, KinetoValue kind) = 0;
};

/// Reads rows of a trace that are plain JSON by simdjson, many at once, and tells a client what is
/// in them, in the order and the words in which a parser of the repaired trace would.
class KinetoPlainRows {
 public:
  KinetoPlainRows();
  ~KinetoPlainRows();
  KinetoPlainRows(const KinetoPlainRows&) = delete;
  KinetoPlainRows& operator=(const KinetoPlainRows&) = delete;

  /// `text` begins behind a row and is followed by kJsonPadding bytes that may be read. Returns how
  /// many of its characters were a comma and a row, again and again, each of which has been told
  /// from open_object() to close_object(). What follows them is for another parser: the last row of
  /// the list, and a row that is no plain JSON or has a number that needs care, of which the client
  /// may have been told a part.
  std::size_t read(std::span<char> text, KinetoClient& client);

 private:
  class Parser;

  std::unique_ptr<Parser> parser_;
  std::size_t window_;  ///< Characters that are looked at together.
};

}  // namespace stepsim
