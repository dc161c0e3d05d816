#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "costmodel/base/units.h"
#include "sim/scenario/toml_tree.h"

namespace stepsim {

/// A key of a scenario, and the value that it is set to.
class Setting {
 public:
  Setting() = default;
  /// `text`: as `--set KEY=TEXT` takes it. What reads as one TOML value is that value; any other is
  /// text.
  Setting(std::string key, std::string text);
  Setting(std::string key, const char* text);
  /// To the byte, in the largest unit that says it.
  Setting(std::string key, Bytes size);
  /// Throws std::invalid_argument: the value holds a date.
  Setting(std::string key, TomlValue value);
  /// A source of lengths that are in no file. Its text names them, and cannot be read again.
  Setting(std::string key, std::shared_ptr<const std::vector<std::int64_t>> lengths);

  /// "ddp.bucket_cap", "policy.NAME.batch_size"
  [[nodiscard]] const std::string& key() const { return key_; }
  [[nodiscard]] const TomlValue& value() const { return value_; }
  /// The value as --set takes it.
  [[nodiscard]] const std::string& value_text() const { return text_; }
  /// "ddp.bucket_cap=25 MiB"
  [[nodiscard]] std::string text() const { return key_ + "=" + text_; }

  bool operator==(const Setting& other) const { return key_ == other.key_ && text_ == other.text_; }

 private:
  std::string key_;
  TomlValue value_;
  std::string text_;
};

}  // namespace stepsim
