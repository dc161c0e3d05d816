#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace stepsim {

using PolicyValue =
    std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>>;

/// One parameter of a policy kind: its type, its default and its range.
struct PolicyParameter {
  enum class Type { Flag, Integer, Number, Text, Integers };
  std::string name;
  Type type = Type::Integer;
  std::optional<PolicyValue> fallback;  ///< Taken when it is left out; none: stays absent.
  bool required = false;
  std::int64_t least = 1;            ///< Of an Integer, or of each of Integers. A Number is > 0.
  std::vector<std::string> choices;  ///< Of a Text.
};

// Rows of a policy's parameter list. An integer without a default may be left out.
[[nodiscard]] PolicyParameter required_integer(std::string name, std::int64_t least = 1);
[[nodiscard]] PolicyParameter integer_or(std::string name,
                                         std::int64_t fallback,
                                         std::int64_t least = 1);
[[nodiscard]] PolicyParameter optional_integer(std::string name, std::int64_t least = 1);
[[nodiscard]] PolicyParameter required_number(std::string name);
[[nodiscard]] PolicyParameter number_or(std::string name, double fallback);
[[nodiscard]] PolicyParameter optional_number(std::string name);
[[nodiscard]] PolicyParameter flag_or(std::string name, bool fallback);
[[nodiscard]] PolicyParameter choice(std::string name,
                                     std::vector<std::string> choices);  ///< First: default.
[[nodiscard]] PolicyParameter required_integers(std::string name);
[[nodiscard]] PolicyParameter optional_integers(std::string name);

/// "batch_size", "seed = 1", "max_sentences (may be left out)".
[[nodiscard]] std::string describe(const PolicyParameter& parameter);

/// "a, b, c", or "none".
[[nodiscard]] std::string names_of(std::span<const PolicyParameter> parameters);

/// Values of a policy's parameters by name.
class PolicyParameters {
 public:
  PolicyParameters() = default;
  PolicyParameters(std::initializer_list<std::pair<const std::string, PolicyValue>> values)
      : values_(values) {}

  void set(const std::string& name, PolicyValue value) { values_[name] = std::move(value); }
  [[nodiscard]] bool has(const std::string& name) const { return values_.count(name) > 0; }

  // The value of a parameter that is there; std::out_of_range when it is not.
  [[nodiscard]] std::int64_t integer(const std::string& name) const;
  [[nodiscard]] double number(const std::string& name) const;  ///< An integer is a number too.
  [[nodiscard]] bool flag(const std::string& name) const;
  [[nodiscard]] const std::string& text(const std::string& name) const;
  [[nodiscard]] const std::vector<std::int64_t>& integers(const std::string& name) const;

  // The same, nothing when it is not there.
  [[nodiscard]] std::optional<std::int64_t> maybe_integer(const std::string& name) const;
  [[nodiscard]] std::optional<double> maybe_number(const std::string& name) const;

  /// These values with the defaults of what is left out.
  ///
  /// `kind` names the policy in messages.
  /// Raises InputError: a value that the kind does not take or of another type, a required one that
  /// is missing, one that is out of range.
  [[nodiscard]] PolicyParameters completed(const std::string& kind,
                                           std::span<const PolicyParameter> known) const;

  bool operator==(const PolicyParameters&) const = default;

 private:
  std::map<std::string, PolicyValue> values_;
};

}  // namespace stepsim
