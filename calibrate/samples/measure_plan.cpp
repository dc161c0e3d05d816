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
  box.min_length = reader.integer("min_length");
  box.max_length = reader.integer("max_length");
  box.min_samples = reader.integer("min_samples");
  box.max_samples = reader.integer("max_samples");
  box.min_tokens = reader.integer("min_tokens");
  box.max_tokens = reader.integer("max_tokens");
  box.length_step = reader.integer("length_step");
  box.padded = reader.boolean_or("padded", true);  // Until 0.1 all grids were.
  return box;
}

/// Calls `read`, which converts one member, and turns a JSON type error into one with its place.
template <typename Read>
auto member(JsonReader& reader, const char* key, const Read& read) {
  const Json& value = reader.get(key);
  try {
    return read(value);
  } catch (const Json::exception&) {
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
  plan.ranks = static_cast<int>(reader.integer("ranks"));
  plan.nodes = static_cast<int>(reader.integer_or("nodes", 1));
  plan.device = reader.text("device");
  plan.seed = static_cast<std::uint64_t>(reader.integer("seed"));
  plan.budget_seconds = reader.number("budget_seconds");
  plan.box = box_from_json(reader.get("box"), file, line);
  plan.passes = static_cast<int>(reader.integer("passes"));
  plan.repetitions = static_cast<int>(reader.integer("repetitions"));
  plan.target = reader.number("target");
  plan.points = member(reader, "points", [](const Json& value) {
    return mapped(value.get<std::vector<std::vector<std::int64_t>>>(), [](const auto& pair) {
      return GridPoint{pair.at(0), pair.at(1)};
    });
  });
  plan.collectives = {CollectiveKind::AllReduce};
  if (reader.has("collectives")) {
    plan.collectives = member(reader, "collectives", [](const Json& value) {
      return mapped(value.get<std::vector<std::string>>(),
                    [&](const auto& name) { return parse_collective_kind(name); });
    });
  }
  const char* const sizes = reader.has("all_reduce_bytes") ? "all_reduce_bytes"  // Until 0.1.
                                                           : "collective_bytes";
  plan.collective_bytes = member(
      reader, sizes, [](const Json& value) { return value.get<std::vector<std::int64_t>>(); });
  plan.buckets = member(reader, "buckets", [](const Json& value) {
    return value.get<std::vector<std::vector<int>>>();
  });
  if (plan.ranks < 1 || plan.passes < 1 || plan.repetitions < 1) {
    throw InputError({file, line, 0, ""}, "plan: ranks, passes and repetitions must be 1 or more");
  }
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
