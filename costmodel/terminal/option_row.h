#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "costmodel/terminal/command_parser.h"

namespace stepsim {

/// LOW..HIGH
using NumberRange = std::pair<double, double>;

/// The variable that an option sets. An optional one is empty where the option is not given.
using OptionVariable = std::variant<bool*,
                                    std::string*,
                                    std::optional<std::string>*,
                                    int*,
                                    std::optional<int>*,
                                    std::optional<std::int64_t>*,
                                    std::uint64_t*,
                                    double*,
                                    std::optional<double>*,
                                    std::optional<NumberRange>*,
                                    std::vector<std::int64_t>*,
                                    std::vector<std::string>*>;

/// A value for an option: a text of a command line, or a value of another language.
using OptionValue = std::variant<bool,
                                 std::int64_t,
                                 double,
                                 std::string,
                                 std::vector<std::int64_t>,
                                 std::vector<double>,
                                 std::vector<std::string>>;

/// The numbers that an option takes.
struct OptionLimits {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool without_low = false;  ///< True: more than `low`.
};

/// A row of the table of a command's options. The default of an option is what its variable has
/// before it is set.
struct OptionRow {
  std::string name;   ///< "quiet", or "quiet,q" with a letter.
  std::string words;  ///< What the help says, as Option::description.
  /// Finds the variable in the options of a command.
  std::function<OptionVariable(void* options)> variable;
  OptionLimits limits;
  int arguments = 0;    ///< So many arguments without a dash are its value; -1: all.
  bool writes = false;  ///< As Option::writes.
  bool shared = false;  ///< Most commands have it.
  bool rest = false;    ///< It takes all texts up to the next option.

  // Each says one thing of the row, and returns it.
  OptionRow& from(double low) { return limits.low = low, *this; }  ///< `low` or more.
  OptionRow& above(double low) { return limits.without_low = true, from(low); }
  OptionRow& up_to(double high) { return limits.high = high, *this; }  ///< `high` at most.
  OptionRow& written() { return writes = true, *this; }
  OptionRow& for_most() { return shared = true, *this; }
  OptionRow& up_to_next_option() { return rest = true, *this; }
  OptionRow& positional(int count) { return arguments = count, *this; }

  [[nodiscard]] std::string long_name() const { return name.substr(0, name.find(',')); }
};

/// Returns "flag", "text", "texts", "whole number", "whole numbers", "number" or "range".
[[nodiscard]] std::string type_name(const OptionVariable& variable);

/// Returns the variable's value, or nothing where it is empty.
[[nodiscard]] std::optional<OptionValue> value_of(const OptionVariable& variable);

/// Returns each text of a value as a command line has it: one, or of a list of texts all.
[[nodiscard]] std::vector<std::string> value_texts(const OptionValue& value);

/// Sets an option in `options`. Returns what is wrong with the value, or an empty text.
[[nodiscard]] std::string set_option(const OptionRow& row, void* options, const OptionValue& value);

/// Adds the rows to a parser; `options` has the defaults.
void add_rows(std::span<const OptionRow> rows, void* options, CommandParser& parser);

/// Sets what a parser was given. Raises InputError: a value is wrong.
void take_given(std::span<const OptionRow> rows, const CommandParser& parser, void* options);

/// Returns which of the rows are files.
[[nodiscard]] FileOptions file_options(std::span<const OptionRow> rows);

}  // namespace stepsim
