#include <algorithm>

#include <fmt/core.h>

#include "costmodel/base/parse_units.h"
#include "sim/scenario/scenario_sections.h"

namespace stepsim {
namespace {

constexpr int kMaxQueue = 1 << 20;
constexpr int kMaxWorkers = 1024;

double read_fraction(const TomlReader& table, const std::string& key, double fallback) {
  const double value = table.number_or(key, fallback);
  if (value < 0 || value > 1) {
    table.fail(key, fmt::format("{} is no fraction; expected 0 .. 1", value));
  }
  return value;
}

double read_factor(const TomlReader& table, const std::string& key, double fallback) {
  const double value = table.number_or(key, fallback);
  if (value < 0 || value > 100) {
    table.fail(key, fmt::format("{} is out of range; expected 0 (nothing) .. 100", value));
  }
  return value;
}

double read_bandwidth_or(const TomlReader& table, const std::string& key, double fallback) {
  return table.has(key)
             ? table.parsed(key, [](const std::string& text) { return parse_bandwidth(text); })
             : fallback;
}

void read_interference(const TomlReader& table, Interference& interference) {
  if (table.has("strength") && (table.has("compute") || table.has("transfer"))) {
    table.fail("strength", "stands for compute and transfer together; give one or the other");
  }
  const double both = read_factor(table, "strength", 0);
  interference.compute = read_factor(table, "compute", both);
  interference.transfer = read_factor(table, "transfer", both);
  interference.multiprocessors =
      static_cast<int>(table.integer_or("multiprocessors", 0, 0, 1 << 16));
  interference.max_channels =
      static_cast<int>(table.integer_or("max_channels", interference.max_channels, 1, 64));
  interference.memory_share = read_fraction(table, "memory_share", 0);
  if (interference.memory_share >= 1) {
    table.fail("memory_share", "collectives that take all of the memory bandwidth leave nothing");
  }
  interference.limit = read_factor(table, "limit", interference.limit);
  interference.while_waiting = table.boolean_or("while_waiting", interference.while_waiting);
}

void read_host(const TomlReader& table, HostOptions& host) {
  if (table.has("launch")) {
    host.launch = read_duration_or(table, "launch", {});
  }
  host.queue_depth = static_cast<int>(table.integer_or("queue_depth", 0, 0, kMaxQueue));
  host.enqueue = read_duration_or(table, "enqueue", host.enqueue);
  host.hook = read_duration_or(table, "hook", host.hook);
  host.python_hook = read_duration_or(table, "python_hook", host.python_hook);
  host.traversal_per_op = read_duration_or(table, "traversal_per_op", host.traversal_per_op);
  host.sync = read_duration_or(table, "sync", host.sync);
  host.step_sync = table.boolean_or("step_sync", false);
  host.copy_bytes_per_s = read_bandwidth_or(table, "copy_bandwidth", 0);
}

void read_noise(const TomlReader& table, NoiseOptions& noise) {
  noise.op_jitter = read_fraction(table, "op_jitter", 0);
  noise.rank_speed = read_fraction(table, "rank_speed", 0);
  noise.stall_probability = read_fraction(table, "stall_probability", 0);
  noise.stall = read_duration_or(table, "stall", {});
  noise.loader_stall_probability = read_fraction(table, "loader_stall_probability", 0);
  noise.loader_stall = read_duration_or(table, "loader_stall", {});
  if (table.has("rank_correlation")) {
    noise.rank_correlation = read_fraction(table, "rank_correlation", 0);
  }
  if (!table.has("step_quantiles")) {
    return;
  }
  for (const TomlValue& item : table.list("step_quantiles")) {
    const TomlReader quantile(table.document(), item, "noise.step_quantiles");
    const bool number = item.kind == TomlValue::Kind::Real || item.kind == TomlValue::Kind::Integer;
    const double value =
        item.kind == TomlValue::Kind::Integer ? static_cast<double>(item.integer) : item.real;
    const bool ascends = noise.step_quantiles.empty() || value >= noise.step_quantiles.back();
    if (!number || !(value > 0) || !ascends) {
      quantile.fail(
          "expected factors above 0 in ascending order, from the fastest step to the "
          "slowest, as [0.97, 1.0, 1.08]");
    }
    noise.step_quantiles.push_back(value);
  }
  if (noise.step_quantiles.size() < 2) {
    table.fail("step_quantiles", "expected at least two factors");
  }
}

void read_times(const TomlReader& table, MeasuredTimes& times) {
  const auto required = [&](const char* key) {
    if (!table.has(key)) {
      table.fail(fmt::format("missing key {} (a time as \"82.5 ms\")", key));
    }
    return read_duration_or(table, key, {});
  };
  times.forward = required("forward");
  times.backward = required("backward");
  times.optimizer = read_duration_or(table, "optimizer", {});
  times.tokens = table.integer_or("tokens", 0, 1);
  times.copy_bytes_per_s = read_bandwidth_or(table, "copy_bandwidth", 0);
}

}  // namespace

Duration read_duration_or(const TomlReader& table, const std::string& key, Duration fallback) {
  if (!table.has(key)) {
    return fallback;
  }
  const Duration read =
      table.parsed(key, [](const std::string& text) { return parse_duration(text); });
  if (read < Duration::zero()) {
    table.fail(key, "a negative time");
  }
  return read;
}

void read_machine(const TomlReader& root, Scenario& scenario) {
  if (root.has("interference")) {
    read_interference(root.table("interference"), scenario.interference);
    scenario.interference_given = true;
  }
  if (root.has("host")) {
    read_host(root.table("host"), scenario.host);
  }
  if (root.has("noise")) {
    read_noise(root.table("noise"), scenario.noise);
  }
  if (root.has("times")) {
    scenario.times.emplace();
    read_times(root.table("times"), *scenario.times);
  } else if (!scenario.model.tensors.empty()) {
    root.table("model").fail("tensors",
                             "their work is a share of measured times; give [times] as well");
  }
}

void read_loader(const TomlReader& root, Scenario& scenario) {
  const TomlReader data = root.table("data");
  LoaderOptions& loader = scenario.loader;
  loader.workers = static_cast<int>(data.integer_or("workers", 0, 0, kMaxWorkers));
  loader.prefetch = static_cast<int>(data.integer_or("prefetch", loader.prefetch, 1, kMaxWorkers));
  if (!data.has("loading")) {
    if (loader.workers > 0) {
      data.fail("workers", "say what loading costs: loading = { batch = \"2 ms\" }");
    }
    return;
  }
  const TomlReader loading = data.table("loading");
  loader.batch = read_duration_or(loading, "batch", {});
  loader.token_seconds = to_seconds(read_duration_or(loading, "per_token", {}));
  loader.plan_every = static_cast<int>(loading.integer_or("plan_every", 0, 1, kMaxSteps));
  loader.plan = read_duration_or(loading, "plan", {});
}

}  // namespace stepsim
