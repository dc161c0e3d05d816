#include "calibrate/samples/measure_plan.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/model/transformer_json.h"

namespace stepsim {
namespace {

constexpr std::int64_t kSmallest = 1024;
constexpr std::int64_t kAtLeastTo = std::int64_t{64} << 20U;

GridBox box_from_json(const Json& json, const std::string& file, int line) {
  JsonReader reader(json, file, line, "plan.box");
  GridBox box;
  box.min_length = reader.integer_in("min_length", 0, kMaxInt);
  box.max_length = reader.integer_in("max_length", 0, kMaxInt);
  box.min_samples = reader.integer_in("min_samples", 0, kMaxInt);
  box.max_samples = reader.integer_in("max_samples", 0, kMaxInt);
  box.min_tokens = reader.integer("min_tokens");
  box.max_tokens = reader.integer("max_tokens");
  box.length_step = reader.integer_in("length_step", 0, kMaxInt);
  box.padded = reader.boolean_or("padded", true);  // Until 0.1 all grids were.
  return box;
}

/// Thrown where a list is not of the form that stepcal measure writes.
struct OtherForm {};

const Json& list_in(const Json& value) {
  if (!value.is_array()) {
    throw OtherForm{};
  }
  return value;
}

/// A whole number from 0 to `most`.
std::int64_t whole(const Json& value, std::int64_t most) {
  const bool fits =
      value.is_number_unsigned() && value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most);
  if (!fits) {
    throw OtherForm{};
  }
  return value.get<std::int64_t>();
}

GridPoint grid_point(const Json& value) {
  if (list_in(value).size() != 2) {
    throw OtherForm{};
  }
  return {whole(value[0], kMaxInt), whole(value[1], kMaxInt)};
}

/// Calls `read`, which converts one member, and adds its place to what is wrong.
template <typename Read>
auto member(JsonReader& reader, const char* key, const Read& read) {
  const Json& value = reader.get(key);
  try {
    return read(value);
  } catch (const OtherForm&) {
    reader.fail(key, "is not of the form that stepcal measure writes");
  }
}

}  // namespace

Json plan_json(const MeasurePlan& plan) {
  const Json points = mapped(plan.points, [](const GridPoint& point) -> Json {
    return {point.samples, point.length};
  });
  const Json collectives =
      mapped(plan.collectives, [](CollectiveKind kind) { return name_of(kind); });
  return {{"model", to_json(plan.model)},
          {"ranks", plan.ranks},
          {"nodes", plan.nodes},
          {"device", plan.device},
          {"seed", plan.seed},
          {"budget_seconds", plan.budget_seconds},
          {"box",
           {{"min_length", plan.box.min_length},
            {"max_length", plan.box.max_length},
            {"min_samples", plan.box.min_samples},
            {"max_samples", plan.box.max_samples},
            {"min_tokens", plan.box.min_tokens},
            {"max_tokens", plan.box.max_tokens},
            {"length_step", plan.box.length_step},
            {"padded", plan.box.padded}}},
          {"points", points},
          {"passes", plan.passes},
          {"repetitions", plan.repetitions},
          {"target", plan.target},
          {"collectives", collectives},
          {"collective_bytes", plan.collective_bytes},
          {"buckets", plan.buckets}};
}

MeasurePlan measure_plan_from_json(const Json& json, const std::string& file, int line) {
  JsonReader reader(json, file, line, "plan");
  MeasurePlan plan;
  JsonReader model(reader.get("model"), file, line, "plan.model");
  plan.model = transformer_from_json(model);
  plan.ranks = reader.integer_in("ranks", 1, kMaxInt);
  plan.nodes = reader.has("nodes") ? reader.integer_in("nodes", 1, kMaxInt) : 1;
  plan.device = reader.text("device");
  plan.seed = reader.unsigned_integer("seed");
  plan.budget_seconds = reader.number("budget_seconds");
  plan.box = box_from_json(reader.get("box"), file, line);
  plan.passes = reader.integer_in("passes", 1, kMaxInt);
  plan.repetitions = reader.integer_in("repetitions", 1, kMaxInt);
  plan.target = reader.number("target");
  plan.points = member(
      reader, "points", [](const Json& value) { return mapped(list_in(value), grid_point); });
  plan.collectives = {CollectiveKind::AllReduce};
  if (reader.has("collectives")) {
    plan.collectives = mapped(reader.texts("collectives"),
                              [](const std::string& name) { return parse_collective_kind(name); });
  }
  const char* const sizes = reader.has("all_reduce_bytes") ? "all_reduce_bytes"  // Until 0.1.
                                                           : "collective_bytes";
  plan.collective_bytes = reader.integers(sizes);
  plan.buckets = member(reader, "buckets", [](const Json& value) {
    return mapped(list_in(value), [](const Json& bucket) {
      return mapped(list_in(bucket),
                    [](const Json& index) { return static_cast<int>(whole(index, kMaxInt)); });
    });
  });
  return plan;
}

std::vector<std::vector<int>> buckets_by_cap(const TransformerConfig& model,
                                             Bytes first_cap,
                                             Bytes cap) {
  const std::vector<Parameter> tensors = parameters(model);
  std::vector<std::vector<int>> buckets;
  std::vector<int> open;
  Bytes size;
  for (const int index : ready_order(model)) {
    open.push_back(index);
    size += tensors[static_cast<std::size_t>(index)].bytes();
    if (size >= (buckets.empty() ? first_cap : cap)) {
      buckets.push_back(std::move(open));
      open.clear();
      size = Bytes(0);
    }
  }
  if (!open.empty()) {
    buckets.push_back(std::move(open));
  }
  return buckets;
}

std::vector<std::int64_t> bucket_bytes(const TransformerConfig& model,
                                       const std::vector<std::vector<int>>& buckets) {
  const std::vector<Parameter> tensors = parameters(model);
  std::vector<std::int64_t> sizes;
  for (const auto& bucket : buckets) {
    const Bytes size = sum_of(
        bucket, [&](const int index) { return tensors[static_cast<std::size_t>(index)].bytes(); });
    sizes.push_back(size.value());
  }
  return sizes;
}

std::vector<std::int64_t> collective_sizes(const TransformerConfig& model,
                                           const std::vector<std::vector<int>>& buckets,
                                           int ranks) {
  if (ranks < 2) {
    return {};
  }
  std::vector<std::int64_t> sizes = bucket_bytes(model, buckets);
  const std::int64_t largest = *std::ranges::max_element(sizes);
  for (std::int64_t bytes = kSmallest; bytes <= kAtLeastTo || bytes / 2 < largest; bytes *= 2) {
    sizes.push_back(bytes);
  }
  std::ranges::sort(sizes);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

}  // namespace stepsim
