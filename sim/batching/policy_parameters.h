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
  enum class Type { Flag, Integer, Number, Text, Integers, File };
  std::string name;
  Type type = Type::Integer;
  std::optional<PolicyValue> fallback;  ///< Its value when the scenario leaves it out.
  bool required = false;
  std::int64_t least = 1;            ///< The least value of integers. A Number is always > 0.
  std::vector<std::string> choices;  ///< The values that a Text may have.
};

// Each of these makes one entry of a policy kind's parameter list. An optional one has no default:
// where the scenario leaves it out, it stays absent.
[[nodiscard]] PolicyParameter required_integer(std::string name, std::int64_t least = 1);
[[nodiscard]] PolicyParameter integer_or(std::string name,
                                         std::int64_t fallback,
                                         std::int64_t least = 1);
[[nodiscard]] PolicyParameter optional_integer(std::string name, std::int64_t least = 1);
[[nodiscard]] PolicyParameter required_number(std::string name);
[[nodiscard]] PolicyParameter number_or(std::string name, double fallback);
[[nodiscard]] PolicyParameter optional_number(std::string name);
[[nodiscard]] PolicyParameter flag_or(std::string name, bool fallback);
[[nodiscard]] PolicyParameter choice(
    std::string name,
    std::vector<std::string> choices);                          ///< The first is the default.
[[nodiscard]] PolicyParameter required_file(std::string name);  ///< A path, as a text.
[[nodiscard]] PolicyParameter required_integers(std::string name);
[[nodiscard]] PolicyParameter optional_integers(std::string name);

/// The parameter as `stepsim policies` lists it: "batch_size", "seed = 1",
/// "max_sentences (may be left out)".
[[nodiscard]] std::string describe(const PolicyParameter& parameter);

/// The names as a list: "a, b, c", or "none".
[[nodiscard]] std::string names_of(std::span<const PolicyParameter> parameters);

/// The values of a policy's parameters, by name.
class PolicyParameters {
 public:
  PolicyParameters() = default;
  PolicyParameters(std::initializer_list<std::pair<const std::string, PolicyValue>> values)
      : values_(values) {}

  void set(const std::string& name, PolicyValue value) { values_[name] = std::move(value); }
  [[nodiscard]] bool has(const std::string& name) const { return values_.count(name) > 0; }

  // These return the value of a parameter. They throw std::out_of_range when it is absent.
  [[nodiscard]] std::int64_t integer(const std::string& name) const;
  [[nodiscard]] double number(const std::string& name) const;  ///< An integer counts as a number.
  [[nodiscard]] bool flag(const std::string& name) const;
  [[nodiscard]] const std::string& text(const std::string& name) const;
  [[nodiscard]] const std::vector<std::int64_t>& integers(const std::string& name) const;

  // These return nothing when the parameter is absent.
  [[nodiscard]] std::optional<std::int64_t> maybe_integer(const std::string& name) const;
  [[nodiscard]] std::optional<double> maybe_number(const std::string& name) const;

  /// Checks the values and adds the defaults of those that are left out.
  ///
  /// `kind` names the policy in messages.
  /// Raises InputError: the kind does not take a value, or takes one of another type; a required
  /// value is missing; a value is out of range.
  [[nodiscard]] PolicyParameters completed(const std::string& kind,
                                           std::span<const PolicyParameter> known) const;

  bool operator==(const PolicyParameters&) const = default;

 private:
  std::map<std::string, PolicyValue> values_;
};

}  // namespace stepsim
