#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/content_id.h"
#include "costmodel/base/shell_word.h"
#include "costmodel/compute/op_cost.h"
#include "costmodel/io/json_file.h"
#include "costmodel/records/profile.h"
#include "costmodel/records/profile_format.h"
#include "costmodel/records/shipped.h"

namespace stepsim {
namespace {

/// One time of a profile, in seconds.
double seconds(JsonReader& reader, std::string_view key) {
  const double value = reader.not_negative(key);
  if (value > kMaxCostSeconds) {
    reader.fail(key, fmt::format("{} s is too long; expected at most 1 hour", value));
  }
  return value;
}

std::int64_t size(JsonReader& reader, std::string_view key) {
  const std::int64_t value = reader.integer_or(key, 0);
  if (value < 0) {
    reader.fail(key, fmt::format("{} is negative; 0 means any", value));
  }
  return value;
}

std::optional<double> read_error(JsonReader& errors, std::string_view key) {
  return errors.has(key) ? std::optional(errors.not_negative(key)) : std::nullopt;
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
  form_row(cost.form).read(reader, cost);
  std::tie(cost.range_lo, cost.range_hi) = reader.range("range");
  cost.samples = reader.has("samples") ? reader.integer_in("samples", 0, kMaxInt) : 0;
  cost.errors = read_errors(reader);
  return cost;
}

CollectiveCost read_collective(JsonReader reader) {
  CollectiveCost cost;
  cost.kind = reader.text("kind");
  cost.ranks = reader.integer_in("ranks", 1, kMaxInt);
  cost.nodes = reader.has("nodes") ? reader.integer_in("nodes", 1, kMaxInt) : 1;
  cost.dtype = reader.parsed("dtype", parse_dtype);
  cost.knots = read_knots(reader, "knots_s");
  if (cost.knots.back().first <= 0 || cost.knots.back().first > 0x1p62) {
    reader.fail("knots_s", "expected a last knot of more than 0 bytes, below 4 EiB");
  }
  if (reader.text_or("variable", "bytes") != "bytes") {
    reader.fail("variable", "the knots of a collective are over bytes");
  }
  if (reader.has("tail_s_per_byte")) {
    cost.tail_seconds_per_byte = reader.not_negative("tail_s_per_byte");
  }
  if (reader.has("spread")) {
    cost.spread = reader.numbers("spread");
    if (cost.spread.size() < 2 || cost.spread.front() < 0 || !std::ranges::is_sorted(cost.spread)) {
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
  if (quantiles.size() < 2 || quantiles.front() <= 0 || !std::ranges::is_sorted(quantiles)) {
    noise.fail("step_quantiles", "expected at least two quantiles of time / mean, ascending");
  }
  profile.rank_correlation = noise.not_negative_or("rank_correlation", 0);
  if (profile.rank_correlation > 1) {
    noise.fail("rank_correlation", "expected 0 .. 1");
  }
}

void read_stalls(JsonReader stalls, StallNoise& profile) {
  profile.per_step = stalls.not_negative("per_step");
  if (profile.per_step > 1) {
    stalls.fail("per_step", "expected 0 .. 1");
  }
  profile.seconds = stalls.numbers("seconds");
  if (profile.seconds.empty() || profile.seconds.front() < 0 ||
      !std::ranges::is_sorted(profile.seconds)) {
    stalls.fail("seconds", "expected at least one length in seconds, ascending, none negative");
  }
  if (stalls.has("step_s")) {
    profile.step_seconds = stalls.not_negative("step_s");
    profile.steps = static_cast<int>(stalls.integer_or("steps", 0));
    if (profile.steps < 1) {
      stalls.fail("steps", "expected at least 1");
    }
  }
}

void read_crowded(JsonReader crowded, CrowdedMachine& profile) {
  constexpr double kMostSlowed = 1e6;
  profile.slowed = crowded.number("slowed");
  if (!(profile.slowed >= 1 && profile.slowed <= kMostSlowed)) {
    crowded.fail("slowed", fmt::format("expected 1 to {}", kMostSlowed));
  }
  profile.run_spread = crowded.not_negative_or("run_spread", 0);
}

void read_machine(JsonReader& root, Profile& profile) {
  profile.memory_capacity = Bytes(root.integer_or("memory_capacity_bytes", 0));
  if (profile.memory_capacity < Bytes(0)) {
    root.fail("memory_capacity_bytes", "negative; 0 means unknown");
  }
  JsonReader host = root.object("host");
  profile.launch_seconds = seconds(host, "launch_s");
  profile.launch_error = host.has("launch_error") ? host.not_negative("launch_error") : 0;
  profile.launched_copies = read_launched_copies(host);
  profile.host_is_device = host.boolean("host_is_device");
  if (host.has("units")) {
    profile.unit_host = read_unit_host(host.object("units"));
  }
  constexpr double kMaxCores = 1 << 20;
  profile.cores = host.number_or("cores", 0);
  if (host.has("cores") && !(profile.cores >= 1 && profile.cores <= kMaxCores)) {
    host.fail("cores", fmt::format("expected 1 to {}", kMaxCores));
  }
  if (host.has("rank_factors")) {
    constexpr double kMostFactor = 1e6;
    profile.rank_factors = host.numbers("rank_factors");
    const auto is_factor = [](double factor) { return factor > 0 && factor <= kMostFactor; };
    if (profile.rank_factors.empty() || !std::ranges::all_of(profile.rank_factors, is_factor)) {
      host.fail("rank_factors", "expected a factor of each rank, more than 0");
    }
  }
  if (root.has("noise")) {
    JsonReader noise = root.object("noise");
    profile.noise.step_jitter = noise.not_negative_or("step_jitter", 0);
    profile.noise.drift = noise.not_negative_or("drift", 0);
    profile.noise.sentinel_seconds = noise.not_negative_or("sentinel_s", 0);
    profile.noise.other_models = noise.not_negative_or("other_models", 0);
    read_step_quantiles(noise, profile.noise);
    if (noise.has("stalls")) {
      read_stalls(noise.object("stalls"), profile.noise.stalls);
    }
    if (noise.has("crowded")) {
      read_crowded(noise.object("crowded"), profile.noise.crowded);
    }
  }
}

std::optional<InterferenceProfile::Interval> read_interval(JsonReader& reader,
                                                           std::string_view key) {
  return reader.has(key) ? std::optional(reader.range(key)) : std::nullopt;
}

/// The ranges are those of a scenario's [interference].
InterferenceProfile read_interference(JsonReader reader) {
  constexpr double kMaxFactor = 100;
  InterferenceProfile result;
  Interference& value = result.value;
  for (const auto& [key, member] : {std::pair("compute", &value.compute),
                                    std::pair("transfer", &value.transfer),
                                    std::pair("limit", &value.limit)}) {
    *member = reader.not_negative(key);
    if (*member > kMaxFactor) {
      reader.fail(key, fmt::format("{} is out of range; expected 0 .. {}", *member, kMaxFactor));
    }
  }
  value.memory_share = reader.not_negative("memory_share");
  if (value.memory_share >= 1) {
    reader.fail("memory_share", "expected less than 1");
  }
  value.multiprocessors = reader.integer_in("multiprocessors", 0, 1 << 16);
  value.max_channels = reader.integer_in("max_channels", 1, 64);
  result.compute = read_interval(reader, "compute_interval90");
  result.transfer = read_interval(reader, "transfer_interval90");
  result.memory_share = read_interval(reader, "memory_share_interval90");
  if (reader.has("compute_draws")) {
    result.compute_draws = reader.numbers("compute_draws");
    for (const double draw : result.compute_draws) {
      if (!(draw >= 0 && draw <= kMaxFactor)) {
        reader.fail("compute_draws",
                    fmt::format("{} is out of range; expected 0 .. {}", draw, kMaxFactor));
      }
    }
  }
  result.samples = reader.has("samples") ? reader.integer_in("samples", 0, kMaxInt) : 0;
  result.errors = read_errors(reader);
  return result;
}

/// Whether the format names a version that this program reads: any up to the newest one, which the
/// last form of cost may have added.
bool is_known_format(std::string_view format) {
  int newest = std::max(kCompilersVersion, kPaddingVersion);
  for (const CostFormRow& row : cost_form_rows()) {
    newest = std::max(newest, row.since_version);
  }
  for (int version = 1; version <= newest; ++version) {
    if (format == fmt::format("{}{}", kProfileFormat, version)) {
      return true;
    }
  }
  return false;
}

constexpr const char* kOwnProfile =
    "; or the path of a profile: python3 -m stepsim.torch.calibrate makes one of this machine, "
    "stepcal import one of records, step times, logs or traces";

/// Raises InputError where the text is a run record: a profile is made of it.
void refuse_run_record(std::string_view text, const std::string& path) {
  const std::string_view header = text.substr(0, text.find('\n'));
  if (header.find("\"stepsim-run-record/") != header.npos) {
    throw InputError(
        fmt::format("{}: error: this is a run record, not a profile; stepcal import run-record {} "
                    "--out profile.json makes one of it",
                    printable(path),
                    printable(shell_word(path))));
  }
}

/// A name alone is searched among the shipped profiles.
std::string profile_text(const std::string& path) {
  try {
    return read_text(path);
  } catch (const InputError& error) {
    std::error_code no_file;
    const bool is_name = is_name_alone(path) && !std::filesystem::exists(path, no_file);
    if (!is_name) {
      throw InputError(error.what(), Lookup::Profiles);
    }
    const std::vector<std::string> shipped = shipped_profiles();
    throw InputError(
        shipped.empty()
            ? fmt::format("unknown profile '{}'; {}", printable(path), no_shipped_profiles())
            : unknown_name("profile", path, shipped) + kOwnProfile,
        Lookup::Profiles);
  }
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

Profile read_profile(const std::string& named) {
  const std::string path = profile_path(named);
  const std::string text = profile_text(path);
  refuse_run_record(text, path);
  const Json json = parse_json(text, path);
  JsonReader root(json, path, 0, "", &text);
  const std::string format = root.text("format");
  root.require_format(is_known_format(format) ? format : std::string(kProfileFormat) + "1");
  Profile profile;
  profile.name = root.text("name");
  profile.id.text = content_id(text);
  profile.device = root.text("device");
  profile.backend = root.text("backend");
  if (root.has("provenance")) {
    profile.provenance = root.get("provenance");
  }
  read_machine(root, profile);
  if (root.has("interference")) {
    profile.interference = read_interference(root.object("interference"));
  }
  if (root.has("new_shapes")) {
    for (JsonReader& entry : root.objects("new_shapes")) {
      profile.new_shapes.push_back(read_shape_cost(entry));
    }
  }
  if (root.has("recorded")) {
    profile.recorded = read_recorded(root.object("recorded"));
  }
  if (root.has("links")) {
    profile.links = read_links(root.object("links"));
  }
  read_ops(root, profile);
  read_collectives(root, profile);
  return profile;
}

}  // namespace stepsim
