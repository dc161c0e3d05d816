#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "costmodel/base/units.h"

namespace stepsim {

using OwnValue = std::variant<bool, std::int64_t, Bytes, std::string>;

/// A key of [parallel] that a kind of parallelism has for itself.
struct OwnKey {
  std::string name;
  std::string meaning;  ///< The cell "value" of its row in scenarios/README.md, in Markdown.
  OwnValue fallback;    ///< Its default, which has its type.
  // The range of an integer, both ends included.
  std::int64_t least = 0;
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  std::vector<std::string> choices = {};  ///< What a text may be, or is beside an integer.
  /// The value that a text, or an integer, which is none of the choices stands for. Raises
  /// InputError that says what to write instead. Empty: there are no others.
  std::function<std::string(const std::string&)> meant = {};
  /// Batches and the prices of gradient_work() are the same, whatever its value is.
  bool only_reduces = true;
  /// Its default may stand beside a kind that lacks it, where it says no more than that kind does.
  bool default_is_common = false;
};

/// The values of a kind's own keys, by name. Those that return one throw std::out_of_range or
/// std::bad_variant_access: the kind has no such key.
class OwnValues {
 public:
  void set(const std::string& name, OwnValue value) { values_[name] = std::move(value); }

  /// All values in one line, alike where they are.
  [[nodiscard]] std::string printed() const;

  [[nodiscard]] bool flag(const std::string& name) const { return std::get<bool>(at(name)); }
  [[nodiscard]] std::int64_t integer(const std::string& name) const {
    return std::get<std::int64_t>(at(name));
  }
  [[nodiscard]] Bytes bytes(const std::string& name) const { return std::get<Bytes>(at(name)); }
  [[nodiscard]] const std::string& text(const std::string& name) const {
    return std::get<std::string>(at(name));
  }

 private:
  [[nodiscard]] const OwnValue& at(const std::string& name) const { return values_.at(name); }

  std::map<std::string, OwnValue> values_;
};

}  // namespace stepsim
