#pragma once

#include <optional>
#include <utility>

namespace stepsim {

/// What was made last, and what of: who asks for the same thing again and again has it made once.
template <typename Of, typename Value>
class LastMade {
 public:
  /// Returns what `make()` made of this, or makes it now. It stays until another is asked for.
  template <typename Make>
  [[nodiscard]] const Value& get(const Of& of, const Make& make) {
    if (!last_ || !(last_->first == of)) {
      last_.emplace(of, make());
    }
    return last_->second;
  }

 private:
  std::optional<std::pair<Of, Value>> last_;
};

}  // namespace stepsim
