#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "costmodel/base/input_error.h"
#include "costmodel/base/units.h"
#include "sim/scenario/toml_tree.h"

namespace stepsim {

/// The longest single time that a scenario may name; the simulated clock counts 292 years.
inline constexpr Duration kMaxScenarioDuration = std::chrono::hours(1);

/// The slowest bandwidth that a scenario may name, in bytes per second.
inline constexpr double kMinScenarioBandwidth = 1e3;

/// A time such as "3 ms". Raises InputError (message only): no time, more than
/// kMaxScenarioDuration.
[[nodiscard]] Duration parse_scenario_duration(std::string_view text);

/// Typed access to one table of a document, which must outlive it. Every wrong value raises
/// InputError with its place and key path; a missing one with the place of the table.
class TomlReader {
 public:
  /// `path`: how messages call the table: "cluster", "data.lengths", "policy.NAME"; "" for the
  /// root.
  TomlReader(const TomlDocument& document, const TomlValue& table, std::string path);

  [[nodiscard]] bool has(std::string_view key) const { return table_.find(key) != nullptr; }
  [[nodiscard]] const TomlValue& value(std::string_view key) const;  ///< Required.
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const TomlDocument& document() const { return document_; }

  [[nodiscard]] std::string text(std::string_view key) const;
  [[nodiscard]] std::string text_or(std::string_view key, const std::string& fallback) const;
  [[nodiscard]] bool boolean_or(std::string_view key, bool fallback) const;

  /// A whole number in least..most.
  [[nodiscard]] std::int64_t integer(
      std::string_view key,
      std::int64_t least,
      std::int64_t most = std::numeric_limits<std::int64_t>::max()) const;
  [[nodiscard]] std::int64_t integer_or(
      std::string_view key,
      std::int64_t fallback,
      std::int64_t least,
      std::int64_t most = std::numeric_limits<std::int64_t>::max()) const;

  /// A finite number; an integer is one too.
  [[nodiscard]] double number(std::string_view key) const;
  [[nodiscard]] double number_or(std::string_view key, double fallback) const;

  /// "25 MiB" or bytes as an integer (1024 or more; fewer need the unit B), at least 1.
  [[nodiscard]] Bytes bytes(std::string_view key) const;
  [[nodiscard]] Bytes bytes_or(std::string_view key, Bytes fallback) const;

  /// A time such as "3 ms", at most kMaxScenarioDuration.
  [[nodiscard]] Duration duration(std::string_view key) const;
  /// A bandwidth such as "20 GB/s", in bytes per second: 0, or kMinScenarioBandwidth and more.
  [[nodiscard]] double bandwidth(std::string_view key) const;

  /// The table below `key` (required).
  [[nodiscard]] TomlReader table(std::string_view key) const;
  /// The list below `key` (required).
  [[nodiscard]] const std::vector<TomlValue>& list(std::string_view key) const;
  /// The list of whole numbers below `key` (required).
  [[nodiscard]] std::shared_ptr<const std::vector<std::int64_t>> integers(
      std::string_view key) const;

  /// `parse(text(key))`, its InputError completed with the place.
  template <typename Parse>
  [[nodiscard]] auto parsed(std::string_view key, Parse parse) const {
    const std::string written = text(key);
    try {
      return parse(written);
    } catch (const InputError& error) {
      fail(key, error);
    }
  }

  /// Raises InputError at the value of `key`, or at the table when it is not there.
  [[noreturn]] void fail(std::string_view key,
                         const std::string& message,
                         Lookup lookup = Lookup::None) const;
  /// Raises InputError at the table.
  [[noreturn]] void fail(const std::string& message) const;
  /// Raises an error that has no place yet once more, with its place.
  [[noreturn]] void fail(std::string_view key, const InputError& error) const;
  [[noreturn]] void fail(const InputError& error) const;

 private:
  [[nodiscard]] std::string path_to(std::string_view key) const;
  [[noreturn]] void wrong_type(std::string_view key, std::string_view expected) const;

  const TomlDocument& document_;
  const TomlValue& table_;
  std::string path_;
};

/// The text of `key`, which must be one of `known`; `fallback` without the key. Raises InputError
/// with the nearest known one.
[[nodiscard]] std::string read_choice(const TomlReader& table,
                                      const std::string& key,
                                      const std::string& fallback,
                                      std::span<const std::string> known);

/// Raises InputError at `key`, if the table has it, where it lacks the key without which that has
/// no effect. `meaning`: what the other key says.
void require_other(const TomlReader& table,
                   const std::string& key,
                   const std::string& other,
                   const std::string& meaning);

/// A path in the file is relative to the file; one from the command line stands as it is.
[[nodiscard]] std::string resolved_path(const TomlReader& table, const std::string& key);

}  // namespace stepsim
