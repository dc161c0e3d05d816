#include "sim/scenario/scenario_sections.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include <fmt/core.h>

namespace stepsim {
namespace {

constexpr double kMaxFactor = 1e6;

void read_slow_ranks(const TomlReader& cluster, Scenario& scenario) {
  for (const auto& item : cluster.list("slow_ranks")) {
    const TomlReader slow(cluster.document(), item, "cluster.slow_ranks");
    if (item.kind != TomlValue::Kind::Table) {
      slow.fail(
          fmt::format("expected a list of {{ rank = 1, factor = 1.2 }}, got {}", describe(item)));
    }
    const auto rank = static_cast<int>(slow.integer("rank", 0, kMaxRanks));
    if (rank >= scenario.ranks) {
      slow.fail(
          "rank",
          fmt::format("rank {} is out of range: the ranks are 0 .. {}", rank, scenario.ranks - 1));
    }
    const auto same = [rank](const SlowRank& other) { return other.rank == rank; };
    if (std::any_of(scenario.slow_ranks.begin(), scenario.slow_ranks.end(), same)) {
      slow.fail("rank", fmt::format("rank {} is listed twice", rank));
    }
    const double factor = slow.number("factor");
    if (factor <= 0 || factor > kMaxFactor) {
      slow.fail(
          "factor",
          fmt::format("{} is no factor; expected more than 0, as 1.2 for 20 % slower", factor));
    }
    scenario.slow_ranks.push_back({rank, factor});
  }
}

}  // namespace

TomlReader required_table(const TomlReader& root, const std::string& name) {
  if (!root.has(name)) {
    root.fail(fmt::format("missing table [{}]", name));
  }
  return root.table(name);
}

std::string read_choice(const TomlReader& table,
                        const std::string& key,
                        const std::string& fallback,
                        std::span<const std::string> known) {
  std::string chosen = table.text_or(key, fallback);
  if (std::find(known.begin(), known.end(), chosen) == known.end()) {
    table.fail(key, unknown_name("value", chosen, known));
  }
  return chosen;
}

std::string resolved_path(const TomlReader& table, const std::string& key) {
  std::string written = table.text(key);
  if (written.empty() || written.find('\0') != std::string::npos) {
    table.fail(key, "expected a path");
  }
  if (!table.value(key).override_key.empty()) {
    return written;
  }
  const auto folder = std::filesystem::path(table.document().file).parent_path();
  return (folder / written).lexically_normal().string();
}

void read_scenario_table(const TomlReader& root, Scenario& scenario) {
  const TomlReader table = required_table(root, "scenario");
  scenario.name = table.text("name");
  if (scenario.name.empty()) {
    table.fail("name", "expected a name");
  }
  scenario.question = table.text_or("question", "");
  scenario.seed = static_cast<std::uint64_t>(table.integer_or("seed", 0, 0));
  scenario.steps = static_cast<int>(table.integer("steps", 1, kMaxSteps));
  scenario.warmup_steps = static_cast<int>(table.integer_or("warmup_steps", 0, 0, kMaxSteps));
  if (scenario.warmup_steps >= scenario.steps) {
    table.fail("warmup_steps",
               fmt::format("{} warm-up steps of {} steps leave none to report; expected less than "
                           "{}",
                           scenario.warmup_steps,
                           scenario.steps,
                           scenario.steps));
  }
}

void read_cluster(const TomlReader& root, Scenario& scenario) {
  const TomlReader table = required_table(root, "cluster");
  scenario.ranks = static_cast<int>(table.integer("ranks", 1, kMaxRanks));
  scenario.ranks_per_node = static_cast<int>(table.integer_or("ranks_per_node", 0, 1, kMaxRanks));
  if (table.has("cores")) {
    scenario.cores = static_cast<int>(table.integer("cores", 0, kMaxRanks));
  }
  if (table.has("profile")) {
    scenario.profile = resolved_path(table, "profile");
  }
  if (table.has("slow_ranks")) {
    read_slow_ranks(table, scenario);
  }
  scenario.skew = table.number_or("skew", 0);
  if (scenario.skew < 0 || scenario.skew > kMaxFactor) {
    table.fail("skew",
               fmt::format("{} is no skew; expected 0.2 for 20 % more work on the last rank",
                           scenario.skew));
  }
  static const std::array<std::string, 2> kCommunicators = {"in_order", "gloo"};
  scenario.gloo = read_choice(table, "communicator", "in_order", kCommunicators) == "gloo";
  scenario.jitter = table.number_or("jitter", 0);
  if (scenario.jitter < 0 || scenario.jitter >= 1) {
    table.fail("jitter",
               fmt::format("{} is no jitter; expected a fraction of a step from 0 up to 1",
                           scenario.jitter));
  }
}

void read_optimizer(const TomlReader& root, Scenario& scenario) {
  if (!root.has("optimizer")) {
    return;
  }
  static const std::array<std::string, 2> kKinds = {"adamw", "sgd"};
  const TomlReader table = root.table("optimizer");
  scenario.optimizer = read_choice(table, "kind", "adamw", kKinds);
  // AdamW keeps two moments in fp32; plain SGD keeps nothing.
  const double usual = scenario.optimizer == "adamw" ? 8 : 0;
  scenario.optimizer_bytes_per_parameter = table.number_or("state_bytes_per_parameter", usual);
  if (scenario.optimizer_bytes_per_parameter < 0) {
    table.fail("state_bytes_per_parameter", "a negative size; expected 0 or more bytes");
  }
}

}  // namespace stepsim
