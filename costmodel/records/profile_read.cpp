#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/compute/op_cost.h"
#include "costmodel/compute/tile_feature.h"
#include "costmodel/io/json_file.h"
#include "costmodel/records/profile.h"
#include "costmodel/records/profile_format.h"

namespace stepsim {
namespace {

using Knots = std::vector<std::pair<double, double>>;

constexpr int kMax = std::numeric_limits<int>::max();
constexpr std::array<std::pair<CostForm, std::string_view>, 6> kForms = {
    {{CostForm::Table, "table"},
     {CostForm::PerSampleTable, "per_sample_table"},
     {CostForm::Features, "features"},
     {CostForm::Roofline, "roofline"},
     {CostForm::FeaturesRatio, "features_ratio"},
     {CostForm::RooflineRatio, "roofline_ratio"}}};

double not_negative(JsonReader& reader, std::string_view key) {
  const double value = reader.number(key);
  if (value < 0) {
    reader.fail(key, fmt::format("{} is negative", value));
  }
  return value;
}

/// One time of a profile, in seconds.
double seconds(JsonReader& reader, std::string_view key) {
  const double value = not_negative(reader, key);
  if (value > kMaxCostSeconds) {
    reader.fail(key, fmt::format("{} s is too long; expected at most 1 hour", value));
  }
  return value;
}

double not_negative_or_zero(JsonReader& reader, std::string_view key) {
  return reader.has(key) ? not_negative(reader, key) : 0;
}

std::int64_t size(JsonReader& reader, std::string_view key) {
  const std::int64_t value = reader.integer_or(key, 0);
  if (value < 0) {
    reader.fail(key, fmt::format("{} is negative; 0 means any", value));
  }
  return value;
}

/// A list of [x, y], x ascending, neither negative.
Knots read_knots(JsonReader& reader, std::string_view key = "knots_s") {
  const Json& list = reader.get(key);
  if (!list.is_array() || list.empty()) {
    reader.fail(key, "expected an array of at least one knot [x, seconds]");
  }
  Knots knots;
  for (const Json& knot : list) {
    const std::size_t i = knots.size();
    if (!knot.is_array() || knot.size() != 2 || !knot[0].is_number() || !knot[1].is_number()) {
      reader.fail(key, i, "expected a knot [x, seconds]");
    }
    const std::pair<double, double> value(knot[0].get<double>(), knot[1].get<double>());
    if (value.first < 0 || value.second < 0) {
      reader.fail(key, i, fmt::format("[{}, {}] is negative", value.first, value.second));
    }
    if (key == "knots_s" && value.second > kMaxCostSeconds) {
      reader.fail(key, i, fmt::format("{} s is too long; expected at most 1 hour", value.second));
    }
    if (i > 0 && value.first <= knots.back().first) {
      reader.fail(
          key, i, fmt::format("knots must ascend, {} follows {}", value.first, knots.back().first));
    }
    knots.push_back(value);
  }
  return knots;
}

std::optional<double> read_error(JsonReader& errors, std::string_view key) {
  return errors.has(key) ? std::optional(not_negative(errors, key)) : std::nullopt;
}

void refuse(JsonReader& reader, std::string_view key, CostForm form) {
  if (reader.has(key)) {
    reader.fail(key, fmt::format("has no place in the form '{}'", name_of(form)));
  }
}

std::pair<double, double> read_range(JsonReader& reader, std::string_view key) {
  const auto range = reader.numbers(key);
  if (range.size() != 2 || range[0] < 1 || range[0] > range[1]) {
    reader.fail(key, "expected [lo, hi] with 1 <= lo <= hi");
  }
  return {range[0], range[1]};
}

GemmRatio read_gemm_ratio(JsonReader reader) {
  GemmRatio ratio;
  ratio.processors = reader.integer_in("processors", 1, kMax);
  ratio.weights = reader.numbers("weights");
  if (ratio.weights.size() != gemm_ratio_width()) {
    reader.fail(
        "weights",
        fmt::format("{} weights for {} features", ratio.weights.size(), gemm_ratio_width()));
  }
  ratio.m = read_range(reader, "m_range");
  ratio.n = read_range(reader, "n_range");
  ratio.k = read_range(reader, "k_range");
  return ratio;
}

void read_features(JsonReader& reader, OpCost& cost) {
  refuse(reader, "knots_s", cost.form);
  cost.features = reader.texts("features");
  cost.coefficients = reader.numbers("coefficients_s");
  if (cost.features.empty() || cost.features.size() != cost.coefficients.size()) {
    reader.fail(
        "coefficients_s",
        fmt::format(
            "{} coefficients for {} features", cost.coefficients.size(), cost.features.size()));
  }
  static const std::vector<std::string> kAll(feature_names().begin(), feature_names().end());
  static const std::vector<std::string> kRoofline = {"1", "flops", "bytes"};
  const bool roofline = cost.form == CostForm::Roofline || cost.form == CostForm::RooflineRatio;
  const auto& known = roofline ? kRoofline : kAll;
  for (std::size_t i = 0; i < cost.features.size(); ++i) {
    const bool tile = !roofline && parse_tile_feature(cost.features[i]);
    if (!tile && std::find(known.begin(), known.end(), cost.features[i]) == known.end()) {
      reader.fail("features", i, unknown_name("feature", cost.features[i], known));
    }
  }
}

void read_ratio(JsonReader& reader, OpCost& cost) {
  if (cost.form == CostForm::FeaturesRatio) {
    cost.knots = read_knots(reader, "ratio_knots");
  }
  if (cost.form == CostForm::RooflineRatio) {
    cost.gemm_ratio = read_gemm_ratio(reader.object("gemm_ratio"));
    if (cost.op_class != OpClass::Gemm) {
      reader.fail("form", "roofline_ratio prices a gemm only");
    }
  }
  if (needs_processors(cost.features)) {
    cost.processors = reader.integer_in("processors", 1, kMax);
  }
}

void read_table(JsonReader& reader, OpCost& cost) {
  refuse(reader, "features", cost.form);
  refuse(reader, "coefficients_s", cost.form);
  cost.knots = read_knots(reader);
  if (reader.text_or("variable", std::string(variable_label(cost))) != variable_label(cost)) {
    reader.fail("variable",
                fmt::format("the knots of this entry are over {}", variable_label(cost)));
  }
}

OpCost read_op(JsonReader reader) {
  OpCost cost;
  cost.op_class = reader.parsed("op", parse_op_class);
  cost.pass = reader.parsed("pass", parse_pass);
  cost.dtype = reader.parsed("dtype", parse_dtype);
  cost.n = size(reader, "n");
  cost.k = size(reader, "k");
  cost.heads = size(reader, "heads");
  cost.head_dim = size(reader, "head_dim");
  cost.form = reader.parsed("form", parse_cost_form);
  if (holds_knots(cost.form)) {
    read_table(reader, cost);
  } else {
    read_features(reader, cost);
    read_ratio(reader, cost);
  }
  const auto range = reader.numbers("range");
  if (range.size() != 2 || range[0] < 0 || range[0] > range[1]) {
    reader.fail("range", "expected [lo, hi] with 0 <= lo <= hi");
  }
  cost.range_lo = range[0];
  cost.range_hi = range[1];
  cost.samples = reader.has("samples") ? reader.integer_in("samples", 0, kMax) : 0;
  cost.errors = read_errors(reader);
  return cost;
}

CollectiveCost read_collective(JsonReader reader) {
  CollectiveCost cost;
  cost.kind = reader.text("kind");
  cost.ranks = reader.integer_in("ranks", 1, kMax);
  cost.nodes = reader.has("nodes") ? reader.integer_in("nodes", 1, kMax) : 1;
  cost.dtype = reader.parsed("dtype", parse_dtype);
  cost.knots = read_knots(reader);
  if (cost.knots.back().first <= 0 || cost.knots.back().first > 0x1p62) {
    reader.fail("knots_s", "expected a last knot of more than 0 bytes, below 4 EiB");
  }
  if (reader.text_or("variable", "bytes") != "bytes") {
    reader.fail("variable", "the knots of a collective are over bytes");
  }
  if (reader.has("tail_s_per_byte")) {
    cost.tail_seconds_per_byte = not_negative(reader, "tail_s_per_byte");
  }
  if (reader.has("spread")) {
    cost.spread = reader.numbers("spread");
    if (cost.spread.size() < 2 || cost.spread.front() < 0 ||
        !std::is_sorted(cost.spread.begin(), cost.spread.end())) {
      reader.fail("spread", "expected at least two quantiles of time / mean, ascending");
    }
  }
  cost.errors = read_errors(reader);
  return cost;
}

void read_ops(JsonReader& root, Profile& profile) {
  using Key =
      std::tuple<OpClass, Pass, Dtype, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
  std::set<Key> seen;
  for (auto& entry : root.objects("ops")) {
    OpCost cost = read_op(entry);
    const Key key(cost.op_class, cost.pass, cost.dtype, cost.n, cost.k, cost.heads, cost.head_dim);
    if (!seen.insert(key).second) {
      root.fail("ops",
                profile.ops.size(),
                fmt::format("a second entry for {} {} of these sizes",
                            name_of(cost.op_class),
                            name_of(cost.pass)));
    }
    profile.ops.push_back(std::move(cost));
  }
}

void read_collectives(JsonReader& root, Profile& profile) {
  std::set<std::tuple<std::string, int, int, Dtype>> seen;
  for (auto& entry : root.objects("collectives")) {
    CollectiveCost cost = read_collective(entry);
    if (!seen.emplace(cost.kind, cost.ranks, cost.nodes, cost.dtype).second) {
      root.fail("collectives",
                profile.collectives.size(),
                fmt::format("a second {} of {} ranks", printable(cost.kind), cost.ranks));
    }
    profile.collectives.push_back(std::move(cost));
  }
}

void read_step_quantiles(JsonReader& noise, NoiseProfile& profile) {
  if (!noise.has("step_quantiles")) {
    return;
  }
  profile.step_quantiles = noise.numbers("step_quantiles");
  const auto& quantiles = profile.step_quantiles;
  if (quantiles.size() < 2 || quantiles.front() <= 0 ||
      !std::is_sorted(quantiles.begin(), quantiles.end())) {
    noise.fail("step_quantiles", "expected at least two quantiles of time / mean, ascending");
  }
  profile.rank_correlation = not_negative_or_zero(noise, "rank_correlation");
  if (profile.rank_correlation > 1) {
    noise.fail("rank_correlation", "expected 0 .. 1");
  }
}

void read_machine(JsonReader& root, Profile& profile) {
  profile.memory_capacity = Bytes(root.integer_or("memory_capacity_bytes", 0));
  if (profile.memory_capacity < Bytes(0)) {
    root.fail("memory_capacity_bytes", "negative; 0 means unknown");
  }
  JsonReader host = root.object("host");
  profile.launch_seconds = seconds(host, "launch_s");
  profile.host_is_device = host.boolean("host_is_device");
  constexpr int kMaxCores = 1 << 20;
  profile.cores = host.has("cores") ? host.integer_in("cores", 1, kMaxCores) : 0;
  if (root.has("noise")) {
    JsonReader noise = root.object("noise");
    profile.noise.step_jitter = not_negative_or_zero(noise, "step_jitter");
    profile.noise.drift = not_negative_or_zero(noise, "drift");
    profile.noise.sentinel_seconds = not_negative_or_zero(noise, "sentinel_s");
    read_step_quantiles(noise, profile.noise);
  }
}

std::optional<InterferenceProfile::Interval> read_interval(JsonReader& reader,
                                                           std::string_view key) {
  if (!reader.has(key)) {
    return std::nullopt;
  }
  const auto interval = reader.numbers(key);
  if (interval.size() != 2 || interval[0] < 0 || interval[0] > interval[1]) {
    reader.fail(key, "expected [lo, hi] with 0 <= lo <= hi");
  }
  return std::pair(interval[0], interval[1]);
}

/// The ranges are those of a scenario's [interference].
InterferenceProfile read_interference(JsonReader reader) {
  constexpr double kMaxFactor = 100;
  InterferenceProfile result;
  Interference& value = result.value;
  for (const auto& [key, member] : {std::pair("compute", &value.compute),
                                    std::pair("transfer", &value.transfer),
                                    std::pair("limit", &value.limit)}) {
    *member = not_negative(reader, key);
    if (*member > kMaxFactor) {
      reader.fail(key, fmt::format("{} is out of range; expected 0 .. {}", *member, kMaxFactor));
    }
  }
  value.memory_share = not_negative(reader, "memory_share");
  if (value.memory_share >= 1) {
    reader.fail("memory_share", "expected less than 1");
  }
  value.multiprocessors = reader.integer_in("multiprocessors", 0, 1 << 16);
  value.max_channels = reader.integer_in("max_channels", 1, 64);
  result.compute = read_interval(reader, "compute_interval90");
  result.transfer = read_interval(reader, "transfer_interval90");
  result.memory_share = read_interval(reader, "memory_share_interval90");
  result.samples = reader.has("samples") ? reader.integer_in("samples", 0, kMax) : 0;
  result.errors = read_errors(reader);
  return result;
}

}  // namespace

FitErrors read_errors(JsonReader& reader) {
  FitErrors result;
  if (!reader.has("errors")) {
    return result;
  }
  JsonReader errors = reader.object("errors");
  result.random = read_error(errors, "random");
  result.block = read_error(errors, "block");
  result.beyond = read_error(errors, "beyond");
  if (errors.has("bias")) {
    result.bias = errors.number("bias");
  }
  return result;
}

std::string_view name_of(CostForm form) {
  for (const auto& [value, name] : kForms) {
    if (value == form) {
      return name;
    }
  }
  return "?";
}

CostForm parse_cost_form(std::string_view name) {
  std::vector<std::string> known;
  for (const auto& [value, text] : kForms) {
    if (text == name) {
      return value;
    }
    known.emplace_back(text);
  }
  throw InputError(unknown_name("form", name, known));
}

std::string_view variable_label(const OpCost& cost) {
  if (cost.form == CostForm::PerSampleTable ||
      (cost.form == CostForm::FeaturesRatio && cost.op_class == OpClass::Attention)) {
    return "length";
  }
  switch (cost.op_class) {
    case OpClass::ZeroGradient:
    case OpClass::GradientCopyIn:
    case OpClass::GradientCopyOut:
    case OpClass::Optimizer:
      return "elements";
    default:
      return "rows";
  }
}

Profile read_profile(const std::string& path) {
  const std::string text = read_text(path);
  const Json json = parse_json(text, path);
  JsonReader root(json, path, 0, "", &text);
  const std::string format = root.text("format");
  root.require_format(format == kProfileFormat3   ? kProfileFormat3
                      : format == kProfileFormat2 ? kProfileFormat2
                                                  : kProfileFormat);
  Profile profile;
  profile.name = root.text("name");
  profile.device = root.text("device");
  profile.backend = root.text("backend");
  if (root.has("provenance")) {
    profile.provenance = root.get("provenance");
  }
  read_machine(root, profile);
  if (root.has("interference")) {
    profile.interference = read_interference(root.object("interference"));
  }
  if (root.has("recorded")) {
    profile.recorded = read_recorded(root.object("recorded"));
  }
  read_ops(root, profile);
  read_collectives(root, profile);
  return profile;
}

}  // namespace stepsim
