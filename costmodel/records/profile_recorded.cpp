#include <algorithm>
#include <limits>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"
#include "costmodel/io/json_numbers.h"
#include "costmodel/model/transformer_json.h"
#include "costmodel/records/profile_format.h"

namespace stepsim {
namespace {

Json pass_json(const PassCost& cost) {
  Json json = {{"features", cost.features}, {"coefficients_s", numbers_json(cost.coefficients)}};
  json["tokens_range"] = range_json(cost.tokens);
  json["length_range"] = range_json(cost.length);
  json["samples"] = cost.samples;
  json["errors"] = errors_json(cost.errors);
  json["draws_s"] = mapped(cost.draws, numbers_json);
  return json;
}

bool are_coefficients(const std::vector<double>& numbers, std::size_t features) {
  return numbers.size() == features &&
         std::ranges::all_of(numbers, [](double c) { return c >= 0; });
}

std::string expected_coefficients(std::size_t features) {
  return fmt::format("expected {} numbers, none negative", features);
}

/// [draw][feature]
std::vector<std::vector<double>> read_draws(JsonReader& reader, std::size_t features) {
  const Json& draws = reader.get("draws_s");
  if (!draws.is_array()) {
    reader.fail("draws_s", "expected an array of draws");
  }
  std::vector<std::vector<double>> result;
  for (const Json& draw : draws) {
    const bool numbers =
        draw.is_array() && std::ranges::all_of(draw, [](const Json& c) { return c.is_number(); });
    if (!numbers || !are_coefficients(draw.get<std::vector<double>>(), features)) {
      reader.fail("draws_s", result.size(), expected_coefficients(features));
    }
    result.push_back(draw.get<std::vector<double>>());
  }
  return result;
}

std::pair<double, double> read_positive_range(JsonReader& reader, std::string_view key) {
  const auto range = reader.numbers(key);
  if (range.size() != 2 || range[0] <= 0 || range[0] > range[1]) {
    reader.fail(key, "expected [lo, hi] with 0 < lo <= hi");
  }
  return {range[0], range[1]};
}

PassCost read_pass(JsonReader reader) {
  PassCost cost;
  cost.features = reader.texts("features");
  for (std::size_t i = 0; i < cost.features.size(); ++i) {
    try {
      static_cast<void>(pass_feature(cost.features[i], {}, false));
    } catch (const InputError& error) {
      reader.fail("features", i, error.what());
    }
  }
  cost.coefficients = reader.numbers("coefficients_s");
  const std::size_t features = cost.features.size();
  if (!are_coefficients(cost.coefficients, features)) {
    reader.fail("coefficients_s", expected_coefficients(features));
  }
  cost.draws = read_draws(reader, features);
  cost.tokens = read_positive_range(reader, "tokens_range");
  cost.length = read_positive_range(reader, "length_range");
  cost.samples = reader.integer_in("samples", 0, std::numeric_limits<int>::max());
  cost.errors = read_errors(reader);
  return cost;
}

/// [factor, per_doubling], and per_doubling_of_node where it is not 0.
SeveralRanks several_ranks_of(JsonReader& reader, std::string_view key, const Json& json) {
  const bool numbers = json.is_array() && (json.size() == 2 || json.size() == 3) &&
                       std::ranges::all_of(json, [](const Json& n) { return n.is_number(); });
  const SeveralRanks several = numbers ? SeveralRanks{json[0].get<double>(),
                                                      json[1].get<double>(),
                                                      json.size() == 3 ? json[2].get<double>() : 0}
                                       : SeveralRanks{0, 0};
  constexpr double kLeast = -1.0 / 16;
  if (!(several.factor > 0) || !(several.per_doubling > kLeast) ||
      !(several.per_doubling_of_node > -1)) {
    reader.fail(key,
                "expected [factor, per doubling of the ranks, per doubling of a node's ranks], the "
                "first above 0, the second above -1/16, the third above -1");
  }
  return several;
}

void read_several_ranks(JsonReader reader, RecordedModel& recorded) {
  recorded.several_ranks = several_ranks_of(reader, "fitted", reader.get("fitted"));
  const Json& draws = reader.get("draws");
  const std::size_t expected = recorded.forward.draws.size();
  if (!draws.is_array() || draws.size() != expected || recorded.backward.draws.size() != expected) {
    reader.fail("draws", fmt::format("expected as many draws as the passes have, {}", expected));
  }
  for (const Json& draw : draws) {
    recorded.several_ranks_draws.push_back(several_ranks_of(reader, "draws", draw));
  }
}

}  // namespace

Json recorded_json(const RecordedModel& recorded) {
  Json json = {{"model", to_json(recorded.model)},
               {"optimizer_s", finite(recorded.optimizer_seconds)},
               {"operations_per_byte", finite(recorded.operations_per_byte)}};
  if (recorded.launch_seconds > 0) {
    json["launch_s"] = finite(recorded.launch_seconds);
    json["launch_error"] = finite(recorded.launch_error);
    json["host_syncs"] = recorded.host_syncs;
    if (recorded.launched_copies > 0) {
      json["launched_copies"] = finite(recorded.launched_copies);
    }
  }
  if (recorded.whole_steps) {
    json["whole_steps"] = true;
  }
  if (recorded.several_ranks) {
    const auto numbers = [](const SeveralRanks& several) {
      return several.per_doubling_of_node == 0
                 ? numbers_json({several.factor, several.per_doubling})
                 : numbers_json(
                       {several.factor, several.per_doubling, several.per_doubling_of_node});
    };
    json["several_ranks"] = {{"fitted", numbers(*recorded.several_ranks)},
                             {"draws", mapped(recorded.several_ranks_draws, numbers)}};
  }
  json["data"] = pass_json(recorded.data);
  json["forward"] = pass_json(recorded.forward);
  json["backward"] = pass_json(recorded.backward);
  return json;
}

RecordedModel read_recorded(JsonReader reader) {
  RecordedModel recorded;
  JsonReader model = reader.object("model");
  recorded.model = transformer_from_json(model);
  recorded.optimizer_seconds = reader.not_negative("optimizer_s");
  recorded.launch_seconds = reader.has("launch_s") ? reader.not_negative("launch_s") : 0;
  recorded.launch_error = reader.has("launch_error") ? reader.not_negative("launch_error") : 0;
  recorded.launched_copies = read_launched_copies(reader);
  recorded.host_syncs = recorded.launch_seconds == 0 || reader.boolean("host_syncs");
  recorded.operations_per_byte = reader.not_negative("operations_per_byte");
  recorded.whole_steps = reader.has("whole_steps") && reader.boolean("whole_steps");
  recorded.data = read_pass(reader.object("data"));
  recorded.forward = read_pass(reader.object("forward"));
  recorded.backward = read_pass(reader.object("backward"));
  if (reader.has("several_ranks")) {
    read_several_ranks(reader.object("several_ranks"), recorded);
  }
  return recorded;
}

}  // namespace stepsim
