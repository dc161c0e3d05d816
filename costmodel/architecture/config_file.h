#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "costmodel/io/json_value.h"

namespace stepsim {

/// The keys of a config.json as transformers writes it. A key that it lacks, or that is null, has
/// the default of transformers 5.24 for its model_type, where the caller names one.
///
/// All readers raise FieldError with the key: a value of another type, a size outside its range.
class ConfigFile {
 public:
  /// Raises InputError: no JSON object, or no model_type. `file` stands in messages.
  ConfigFile(std::string_view text, const std::string& file);

  [[nodiscard]] const std::string& model_type() const { return model_type_; }
  /// The class that is trained; empty where the file names none.
  [[nodiscard]] const std::string& architecture() const { return architecture_; }

  /// True when one of these keys is there and not null.
  [[nodiscard]] bool has(std::string_view key) const;
  /// True when the key is there and null, which can mean something else than not there.
  [[nodiscard]] bool is_null(std::string_view key) const;
  /// Returns the first of these keys that is there: a key and its other names.
  [[nodiscard]] std::int64_t integer(std::initializer_list<std::string_view> keys,
                                     std::int64_t fallback) const;
  [[nodiscard]] std::int64_t integer(std::string_view key, std::int64_t fallback) const {
    return integer({key}, fallback);
  }
  /// The model_type of a part that is a model of its own, "text_config"; empty: there is none.
  [[nodiscard]] std::string part_type(std::string_view key) const;
  [[nodiscard]] bool flag(std::string_view key, bool fallback) const;
  [[nodiscard]] std::string text(std::string_view key, const std::string& fallback) const;
  [[nodiscard]] std::vector<std::string> texts(std::string_view key) const;
  /// Words of a list, or of a text such as "c2p|p2c"; in lower case.
  [[nodiscard]] std::vector<std::string> words(std::string_view key) const;
  /// True for a number above 0; keys have -1 for what a model does without.
  [[nodiscard]] bool is_positive(std::string_view key) const;
  [[nodiscard]] std::vector<std::int64_t> integers(std::string_view key) const;
  /// Two sizes, given as one number or as a list of two.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> pair(std::string_view key,
                                                           std::int64_t fallback) const;
  /// The type of the weights, "bfloat16", in which from_pretrained() of transformers 5 trains;
  /// empty where the file says none.
  [[nodiscard]] std::string dtype() const;
  /// Outputs of a classification head: entries of id2label, or num_labels; 2 without both.
  [[nodiscard]] std::int64_t labels() const;
  /// Returns the file without white space and with the number of the labels in place of their
  /// names, of which there can be thousands.
  [[nodiscard]] std::string brief() const;

 private:
  JsonValue object_;
  std::string model_type_;
  std::string architecture_;
};

}  // namespace stepsim
