#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "costmodel/io/json_file.h"

namespace stepsim::test {

using Ids = std::vector<std::int64_t>;
using IdLists = std::vector<Ids>;

/// A file of reference cases, and the histograms that its recipes name.
class FixtureFile {
 public:
  /// Histograms are read from length_histograms.json beside the file when a recipe asks for one.
  explicit FixtureFile(const std::string& path);

  [[nodiscard]] const Json& cases() const { return json_.at("fixtures"); }
  /// A list, "@NAME" of named_inputs, or a recipe ("conventions" in the file).
  [[nodiscard]] Ids numbers(const Json& value) const;
  /// The recipe mt_mod_matrix, or a list of lists.
  [[nodiscard]] IdLists matrix(const Json& value) const;
  /// [length - 1] how many sequences a histogram holds.
  [[nodiscard]] Ids counts(const std::string& histogram_id) const;

 private:
  [[nodiscard]] Ids recipe(const Json& value) const;
  [[nodiscard]] const Json& histogram(const std::string& id) const;

  std::string histogram_path_;
  Json json_;
  mutable std::map<std::string, Json> histograms_;
};

/// One reference case.
struct FixtureCase {
  const FixtureFile& file;
  std::string id;
  const Json& parameters;
  const Json& input;
  const Json& expected;

  [[nodiscard]] Ids lengths(const char* key = "lengths") const {
    return file.numbers(input.at(key));
  }
  /// A parameter, or `fallback` when the case does not have it or has null.
  template <typename T>
  [[nodiscard]] T parameter(const char* key, T fallback) const {
    const auto found = parameters.find(key);
    return found == parameters.end() || found->is_null() ? fallback : found->get<T>();
  }
};

/// How the cases are run whose id starts with `prefix`; the longest prefix that fits counts.
struct CaseKind {
  std::string_view prefix;
  Json (*run)(const FixtureCase&);  ///< What the library gives in place of "expected".
};

// One table a family of cases, each in its own file fixture_cases_FAMILY.cpp.
[[nodiscard]] std::span<const CaseKind> min_max_cases();
[[nodiscard]] std::span<const CaseKind> sampling_cases();
[[nodiscard]] std::span<const CaseKind> budget_cases();
[[nodiscard]] std::span<const CaseKind> bucket_cases();
[[nodiscard]] std::span<const CaseKind> lab_cases();
[[nodiscard]] std::span<const CaseKind> trend_cases();
[[nodiscard]] std::span<const CaseKind> packing_cases();
[[nodiscard]] std::span<const CaseKind> balance_cases();

/// Where `got` differs from `expected`, "" when it does not. Every member of `expected` must be
/// there; floating numbers agree to a relative 1e-9.
[[nodiscard]] std::string difference(const Json& expected, const Json& got);

/// `value` to that many decimals, as rounded figures are written in the file.
[[nodiscard]] double rounded(double value, int decimals);

/// [{"useful", "padded", "max_len", "n"}] of each batch.
[[nodiscard]] Json batch_stats(const IdLists& batches, std::span<const std::int64_t> lengths);

}  // namespace stepsim::test
