#include "tests/sim/batching/fixtures.h"

#include <stdexcept>

#include <nlohmann/json.hpp>

#include "tests/test_data.h"

namespace stepsim::test {
namespace {

std::optional<Json> data(const std::string& name) {
  const auto path = data_file(name);
  if (!path) {
    return std::nullopt;
  }
  return parse_json(read_text(*path), *path);
}

}  // namespace

std::vector<Json> fixtures(const std::string& id_prefix) {
  std::vector<Json> found;
  const auto all = data("batching_fixtures.json");
  for (const auto& item : all ? all->at("fixtures") : Json::array()) {
    if (item.at("id").get<std::string>().starts_with(id_prefix)) {
      found.push_back(item);
    }
  }
  if (all && found.empty()) {
    throw std::runtime_error("no reference case starts with " + id_prefix);
  }
  return found;
}

std::optional<Json> fixture(const std::string& id) {
  for (auto& item : fixtures(id)) {
    if (item.at("id") == id) {
      return item;
    }
  }
  return std::nullopt;
}

std::optional<std::vector<std::int64_t>> histogram_counts(const std::string& id) {
  const auto all = data("length_histograms.json");
  for (const auto& item : all ? all->at("distributions") : Json::array()) {
    if (item.at("id") == id) {
      return item.at("counts_len1_up").get<std::vector<std::int64_t>>();
    }
  }
  return std::nullopt;
}

}  // namespace stepsim::test
