#include "tests/sim/batching/fixture_case.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <random>
#include <stdexcept>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/model/batch_shape.h"
#include "sim/batching/histogram.h"

namespace stepsim::test {
namespace {

Ids mt_mod(const Json& recipe, std::size_t count) {
  std::mt19937 generator(recipe.at("seed").get<std::uint32_t>());
  const auto low = recipe.at("lo").get<std::int64_t>();
  const auto choices = recipe.at("hi").get<std::int64_t>() - low + 1;
  Ids values(count);
  for (auto& value : values) {
    value = low + static_cast<std::int64_t>(generator()) % choices;
  }
  return values;
}

LengthHistogram counted(const Json& distribution) {
  LengthHistogram histogram;
  if (distribution.contains("values_in_order")) {
    std::map<std::int64_t, std::int64_t> counts;
    for (const auto& length : distribution.at("values_in_order")) {
      ++counts[length.get<std::int64_t>()];
    }
    histogram.counts.assign(counts.begin(), counts.end());
    return histogram;
  }
  std::int64_t length = 0;
  for (const auto& count : distribution.at("counts_len1_up")) {
    histogram.counts.emplace_back(++length, count.get<std::int64_t>());
  }
  return histogram;
}

std::string differs(const Json& expected, const Json& got) {
  constexpr std::size_t kShown = 60;
  return fmt::format(
      "expected {}, got {}", expected.dump().substr(0, kShown), got.dump().substr(0, kShown));
}

bool same_number(const Json& expected, const Json& got) {
  if (expected.is_number_integer() && got.is_number_integer()) {
    return expected == got;
  }
  const auto a = expected.get<double>();
  const auto b = got.get<double>();
  return std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b));
}

}  // namespace

FixtureFile::FixtureFile(const std::string& path)
    : histogram_path_(
          (std::filesystem::path(path).parent_path() / "length_histograms.json").string()),
      json_(parse_json(read_text(path), path)) {}

Ids FixtureFile::numbers(const Json& value) const {
  if (value.is_string()) {
    return json_.at("named_inputs").at(value.get<std::string>().substr(1)).get<Ids>();
  }
  return value.is_object() ? recipe(value) : value.get<Ids>();
}

IdLists FixtureFile::matrix(const Json& value) const {
  if (!value.is_object()) {
    return value.get<IdLists>();
  }
  const auto rows = value.at("rows").get<std::size_t>();
  const auto columns = value.at("cols").get<std::size_t>();
  const Ids all = mt_mod(value, rows * columns);
  IdLists result(rows);
  for (std::size_t row = 0; row < rows; ++row) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(row * columns);
    result[row].assign(begin, begin + static_cast<std::ptrdiff_t>(columns));
  }
  return result;
}

Ids FixtureFile::counts(const std::string& histogram_id) const {
  return histogram(histogram_id).at("counts_len1_up").get<Ids>();
}

Ids FixtureFile::recipe(const Json& value) const {
  const auto name = value.at("recipe").get<std::string>();
  if (name == "mt_mod") {
    return mt_mod(value, value.at("n").get<std::size_t>());
  }
  const Json& distribution = histogram(value.at("histogram"));
  if (name == "values_in_order") {
    return distribution.at("values_in_order").get<Ids>();
  }
  if (name != "histogram_sample") {
    throw std::runtime_error("unknown recipe " + name);
  }
  Ids lengths = sample_histogram(counted(distribution), value.at("n"), value.at("seed"));
  for (auto& length : lengths) {
    length = std::min(length, value.value("cap", length));
  }
  return lengths;
}

const Json& FixtureFile::histogram(const std::string& id) const {
  if (histograms_.empty()) {
    const Json all = parse_json(read_text(histogram_path_), histogram_path_);
    for (const auto& item : all.at("distributions")) {
      histograms_.emplace(item.at("id").get<std::string>(), item);
    }
  }
  return histograms_.at(id);
}

std::string difference(const Json& expected, const Json& got) {
  if (expected.is_object() && got.is_object()) {
    for (const auto& [key, value] : expected.items()) {
      const std::string inner =
          got.contains(key) ? difference(value, got.at(key)) : "is not computed";
      if (!inner.empty()) {
        return key + ": " + inner;
      }
    }
    return "";
  }
  if (expected.is_array() && got.is_array() && expected.size() == got.size()) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const std::string inner = difference(expected[i], got[i]);
      if (!inner.empty()) {
        return fmt::format("[{}]: {}", i, inner);
      }
    }
    return "";
  }
  if (expected.is_number() && got.is_number()) {
    return same_number(expected, got) ? "" : differs(expected, got);
  }
  return expected == got ? "" : differs(expected, got);
}

double rounded(double value, int decimals) {
  const double unit = std::pow(10.0, decimals);
  return std::round(value * unit) / unit;
}

Json batch_stats(const IdLists& batches, std::span<const std::int64_t> lengths) {
  Json result = Json::array();
  for (const Ids& batch : batches) {
    Ids own;
    for (const auto id : batch) {
      own.push_back(lengths[static_cast<std::size_t>(id)]);
    }
    const BatchShape shape = batch_shape(own);
    result.push_back({{"useful", shape.useful_tokens},
                      {"padded", shape.padded_tokens()},
                      {"max_len", shape.max_length},
                      {"n", shape.samples}});
  }
  return result;
}

}  // namespace stepsim::test
