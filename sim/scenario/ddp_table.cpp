#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "costmodel/base/parse_units.h"
#include "sim/scenario/scenario_sections.h"

namespace stepsim {
namespace {

constexpr int kMaxAccumulation = 100'000;

void read_bucket_rule(const TomlReader& table, DdpOptions& ddp) {
  static const std::array<std::string, 4> kVersions = {"2.4", "1.8", "1.13", "newest"};
  static const std::array<std::string, 4> kRules = {
      "pytorch", "before_cap", "per_parameter", "single"};
  ddp.torch = read_choice(table, "torch", ddp.torch, kVersions);
  const std::string rule = read_choice(table, "bucket_rule", "pytorch", kRules);
  ddp.bucket_rule =
      static_cast<BucketRule>(std::find(kRules.begin(), kRules.end(), rule) - kRules.begin());
  ddp.bucket_cap = table.bytes_or("bucket_cap", ddp.bucket_cap);
  ddp.bucket_cap_given = table.has("bucket_cap");
  const bool first_follows = ddp.torch == "newest" && ddp.bucket_cap_given;
  ddp.first_bucket_cap =
      table.bytes_or("first_bucket_cap", first_follows ? ddp.bucket_cap : ddp.first_bucket_cap);
  ddp.last_bucket_cap = table.boolean_or("last_bucket_cap", false);
  if (!table.has("bucket_caps")) {
    return;
  }
  if (ddp.torch != "newest") {
    table.fail("bucket_caps", "a limit for each bucket needs torch = \"newest\"");
  }
  for (const TomlValue& item : table.list("bucket_caps")) {
    const TomlReader limit(table.document(), item, "ddp.bucket_caps");
    if (item.kind != TomlValue::Kind::Text) {
      limit.fail(fmt::format("expected a list of sizes as \"1 MiB\", got {}", describe(item)));
    }
    try {
      ddp.bucket_caps.push_back(parse_bytes(item.text));
    } catch (const InputError& error) {
      limit.fail(error.what());
    }
  }
  if (ddp.bucket_caps.empty()) {
    table.fail("bucket_caps", "expected at least one size");
  }
}

void read_hook(const TomlReader& table, const Scenario& scenario, DdpOptions& ddp) {
  if (!table.has("communication_hook")) {
    return;
  }
  const auto kind = [](const std::string& name) { return parse_communication_hook(name); };
  if (table.value("communication_hook").kind != TomlValue::Kind::Table) {
    ddp.hook = table.parsed("communication_hook", kind);
    return;
  }
  const TomlReader hook = table.table("communication_hook");
  HookOptions& options = ddp.hook_options;
  ddp.hook = hook.parsed("kind", kind);
  options.rank = static_cast<int>(hook.integer_or("rank", options.rank, 1, 1 << 20));
  options.start_iteration = hook.integer_or("start_iteration", options.start_iteration, 0);
  options.min_compression_rate =
      hook.number_or("min_compression_rate", options.min_compression_rate);
  options.topk_fraction = hook.number_or("topk_fraction", options.topk_fraction);
  options.subgroup_ranks = static_cast<int>(
      hook.integer_or("subgroup_ranks", scenario.ranks_per_node, 0, scenario.ranks));
  if (options.subgroup_ranks > 0 && scenario.ranks % options.subgroup_ranks != 0) {
    hook.fail(
        "subgroup_ranks",
        fmt::format(
            "{} ranks do not split into groups of {}", scenario.ranks, options.subgroup_ranks));
  }
  options.period = hook.integer_or("period", options.period, 1);
  if (!(options.min_compression_rate > 0)) {
    hook.fail("min_compression_rate", "expected more than 0");
  }
  if (!(options.topk_fraction > 0) || options.topk_fraction > 1) {
    hook.fail("topk_fraction", "expected a fraction of the elements, more than 0 and at most 1");
  }
}

void read_mixed_precision(const TomlReader& table, DdpOptions& ddp) {
  if (!table.has("mixed_precision")) {
    return;
  }
  const TomlReader mixed = table.table("mixed_precision");
  const auto dtype = [](const std::string& name) { return parse_dtype(name); };
  ddp.mixed_param_dtype = mixed.parsed("param_dtype", dtype);
  ddp.mixed_reduce_dtype =
      mixed.has("reduce_dtype") ? mixed.parsed("reduce_dtype", dtype) : *ddp.mixed_param_dtype;
}

void read_names(const TomlReader& table, const Scenario& scenario, DdpOptions& ddp) {
  if (!table.has("unused_parameters")) {
    return;
  }
  std::vector<std::string> known;
  for (const Parameter& parameter : parameters(scenario.model)) {
    known.push_back(parameter.name);
  }
  for (const TomlValue& item : table.list("unused_parameters")) {
    const TomlReader name(table.document(), item, "ddp.unused_parameters");
    if (item.kind != TomlValue::Kind::Text) {
      name.fail(fmt::format("expected a list of parameter names, got {}", describe(item)));
    }
    if (std::find(known.begin(), known.end(), item.text) == known.end()) {
      name.fail(unknown_name("parameter", item.text, known));
    }
    ddp.unused_parameters.push_back(item.text);
  }
}

void read_join(const TomlReader& table, const Scenario& scenario, DdpOptions& ddp) {
  ddp.divide_by_initial_world_size = table.boolean_or("divide_by_initial_world_size", true);
  if (!table.has("join")) {
    return;
  }
  for (const TomlValue& item : table.list("join")) {
    const TomlReader steps(table.document(), item, "ddp.join");
    if (item.kind != TomlValue::Kind::Integer || item.integer < 0 || item.integer > kMaxSteps) {
      steps.fail(fmt::format("expected the number of steps that a rank has inputs for, got {}",
                             describe(item)));
    }
    ddp.join_steps.push_back(static_cast<int>(item.integer));
  }
  if (static_cast<int>(ddp.join_steps.size()) != scenario.ranks) {
    table.fail("join",
               fmt::format("{} numbers of steps for {} ranks; expected one for each rank",
                           ddp.join_steps.size(),
                           scenario.ranks));
  }
  if (*std::max_element(ddp.join_steps.begin(), ddp.join_steps.end()) < scenario.steps) {
    table.fail("join",
               fmt::format("no rank has inputs for the {} steps of the scenario", scenario.steps));
  }
}

/// Combinations that torch refuses or that would hang.
void check_combinations(const TomlReader& table, const DdpOptions& ddp) {
  const bool hooked = ddp.hook != CommunicationHook::None;
  if (!ddp.unused_parameters.empty() && !ddp.find_unused_parameters && !ddp.static_graph) {
    table.fail("unused_parameters",
               "their buckets would never be complete; torch needs find_unused_parameters = true "
               "(or static_graph) with them");
  }
  if (ddp.optimizer_in_backward && (hooked || ddp.accumulation_steps > 1 || ddp.zero_stage > 0)) {
    table.fail("optimizer_in_backward",
               "works without a communication hook, accumulation_steps and zero_stage only");
  }
  if (ddp.mixed_param_dtype && (hooked || ddp.zero_stage > 0)) {
    table.fail("mixed_precision", "works without a communication hook and zero_stage only");
  }
  if (hooked && ddp.zero_stage > 1) {
    table.fail("communication_hook", "hooks belong to DDP's all-reduce: zero_stage 0 or 1 only");
  }
  if (!ddp.join_steps.empty() && ddp.zero_stage > 1) {
    table.fail("join", "works with zero_stage 0 or 1 only");
  }
  if (ddp.batched_grad_copy && ddp.torch != "newest") {
    table.fail("batched_grad_copy", "needs torch = \"newest\"");
  }
}

}  // namespace

void read_ddp(const TomlReader& root, Scenario& scenario) {
  if (!root.has("ddp")) {
    return;
  }
  const TomlReader table = root.table("ddp");
  DdpOptions& ddp = scenario.ddp;
  read_bucket_rule(table, ddp);
  const auto flag = [&](const char* key, bool& field) { field = table.boolean_or(key, field); };
  flag("overlap", ddp.overlap);
  flag("gradient_as_bucket_view", ddp.gradient_as_bucket_view);
  flag("set_to_none", ddp.set_to_none);
  flag("find_unused_parameters", ddp.find_unused_parameters);
  flag("static_graph", ddp.static_graph);
  flag("broadcast_buffers", ddp.broadcast_buffers);
  flag("batched_grad_copy", ddp.batched_grad_copy);
  flag("optimizer_in_backward", ddp.optimizer_in_backward);
  flag("no_sync", ddp.no_sync);
  flag("zero_broadcast_by_rank", ddp.zero_broadcast_by_rank);
  ddp.accumulation_steps =
      static_cast<int>(table.integer_or("accumulation_steps", 1, 1, kMaxAccumulation));
  ddp.zero_stage = static_cast<int>(table.integer_or("zero_stage", 0, 0, 3));
  read_hook(table, scenario, ddp);
  read_mixed_precision(table, ddp);
  read_names(table, scenario, ddp);
  read_join(table, scenario, ddp);
  check_combinations(table, ddp);
}

}  // namespace stepsim
