#include <array>
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "costmodel/base/mapped.h"
#include "costmodel/base/row_named.h"
#include "sim/scenario/new_shapes.h"
#include "sim/scenario/tables.h"

namespace stepsim {
namespace {

constexpr std::int64_t kMostEntries = 1'000'000'000;
constexpr double kStatedShapeError = 0.2;

/// A kind of mechanism, and what its cache keys on unless the scenario says otherwise.
struct MechanismKind {
  std::string name;
  ShapeKey key = ShapeKey::SamplesAndLength;
  std::vector<int> since;  ///< The first version of torch that has it; empty: all.
};

const std::vector<MechanismKind>& mechanism_kinds() {
  static const std::vector<MechanismKind> kKinds = {
      {"attention_plan", ShapeKey::SamplesAndLength, {2, 5}},
      {"compile", ShapeKey::SamplesAndLength, {2, 0}},
      {"cuda_graph", ShapeKey::SamplesAndLength, {1, 10}},
      {"convolution", ShapeKey::SamplesAndLength, {}},
      {"autotune", ShapeKey::Tokens, {}},
      {"gemm_heuristics", ShapeKey::Tokens, {}},
      {"allocator", ShapeKey::Largest, {}},
      {"other", ShapeKey::SamplesAndLength, {}}};
  return kKinds;
}

/// The switches of [new_shapes] that apply to attention plans.
struct AttentionSwitches {
  AttentionSetup setup;
  std::string mask = "always";
  bool avoids_recompile = false;
  bool deprioritized = false;
};

std::optional<std::vector<int>> read_version(const TomlReader& table, const char* key) {
  return table.has(key) ? std::optional(table.parsed(key, parse_version)) : std::nullopt;
}

AttentionSwitches read_switches(const TomlReader& table) {
  static const std::array<std::string, 3> kMasks = {"always", "padded", "never"};
  AttentionSwitches switches;
  switches.setup = {read_version(table, "torch"),
                    read_version(table, "cudnn"),
                    read_version(table, "compute_capability"),
                    table.boolean_or("cudnn_attention", false)};
  switches.mask = read_choice(table, "mask", "always", kMasks);
  switches.avoids_recompile = table.boolean_or("avoid_recompile", false);
  switches.deprioritized = table.boolean_or("cudnn_deprioritized", false);
  if (switches.deprioritized && switches.setup.asked_for) {
    table.fail("cudnn_deprioritized", "contradicts cudnn_attention = true; give one or the other");
  }
  if (switches.deprioritized && switches.avoids_recompile) {
    table.fail("avoid_recompile",
               "has no effect with cudnn_deprioritized = true, under which cuDNN builds no plans; "
               "give one or the other");
  }
  if (switches.avoids_recompile && switches.mask == "always") {
    table.fail("avoid_recompile",
               "has no effect where every batch carries a mask; give mask = \"never\" or "
               "\"padded\" as well, where that is so");
  }
  return switches;
}

void read_rounding(const TomlReader& table, ShapeCost& cost) {
  if (!table.has("round_length")) {
    return;
  }
  if (table.value("round_length").kind == TomlValue::Kind::Text) {
    static const std::array<std::string, 1> kPower = {"power_of_two"};
    (void)read_choice(table, "round_length", "", kPower);
    cost.to_power_of_two = true;
  } else {
    cost.round_to = table.integer("round_length", 1, kMaxSampleLength);
  }
}

void read_times(const TomlReader& table, ShapeCost& cost) {
  bool any = false;
  for (const auto& [key, seconds] : {std::pair("forward", &cost.forward_seconds),
                                     std::pair("backward", &cost.backward_seconds),
                                     std::pair("forward_device", &cost.forward_device_seconds),
                                     std::pair("backward_device", &cost.backward_device_seconds)}) {
    if (table.has(key)) {
      *seconds = to_seconds(table.duration(key));
      any = true;
    }
  }
  if (!any) {
    table.fail(
        "says nothing of what a new shape takes; give forward, backward, forward_device or "
        "backward_device, as in { kind = \"attention_plan\", forward = \"0.44 s\", backward = "
        "\"0.55 s\" }");
  }
  cost.relative_error =
      table.has("error")
          ? read_number(table, "error", {[](double e) { return e >= 0 && e < 10; }, "0 up to 10"})
          : kStatedShapeError;
}

void read_entries(const TomlReader& table, ShapeCost& cost) {
  if (table.has("entries")) {
    cost.entries = table.integer("entries", 1, kMostEntries);
  }
  if (table.has("eviction")) {
    if (cost.entries == 0) {
      table.fail("eviction", "needs entries, how many shapes the cache holds");
    }
    cost.eviction = enum_named<Eviction>(
        eviction_names(), "eviction", read_choice(table, "eviction", "", eviction_names()));
  }
}

void read_compile(const TomlReader& table, ShapeCost& cost) {
  for (const char* key : {"mode", "recompile_limit", "uncompiled_factor"}) {
    if (table.has(key) && cost.mechanism != "compile") {
      table.fail(key, "only applies to kind = \"compile\"");
    }
  }
  if (cost.mechanism != "compile") {
    return;
  }
  if (table.has("entries")) {
    table.fail("entries", "does not apply to kind = \"compile\", which has recompile_limit");
  }
  const auto modes = compile_mode_names();
  cost.compile = enum_named<CompileMode>(
      modes, "mode", read_choice(table, "mode", "automatic", modes.subspan(1)));
  cost.recompile_limit = table.integer_or("recompile_limit", cost.recompile_limit, 1, kMostEntries);
  if (table.has("uncompiled_factor")) {
    cost.uncompiled_factor = read_number(table, "uncompiled_factor", positive_number());
  }
}

void apply_switches(const TomlReader& table, const AttentionSwitches& switches, ShapeCost& cost) {
  const MechanismKind& kind =
      row_named(mechanism_kinds(), &MechanismKind::name, "kind", cost.mechanism);
  const auto& torch = switches.setup.torch;
  if (torch && *torch < kind.since) {
    table.fail("kind",
               fmt::format("torch {} has no {}; it came with {}",
                           fmt::join(*torch, "."),
                           kind.name,
                           fmt::join(kind.since, ".")));
  }
  if (cost.mechanism != "attention_plan") {
    return;
  }
  if (const std::string why = why_no_attention_plans(switches.setup); !why.empty()) {
    table.fail("kind", "no attention plans are built here: " + why);
  }
  cost.mask_in_key = switches.mask == "padded";
  cost.to_power_of_two = cost.to_power_of_two || switches.avoids_recompile;
}

ShapeCost read_mechanism(const TomlReader& table, const AttentionSwitches& switches) {
  const auto names = mapped(mechanism_kinds(), &MechanismKind::name);
  ShapeCost cost;
  (void)table.value("kind");
  cost.mechanism = read_choice(table, "kind", "", names);
  cost.key = row_named(mechanism_kinds(), &MechanismKind::name, "kind", cost.mechanism).key;
  if (table.has("key")) {
    cost.key = enum_named<ShapeKey>(
        shape_key_names(), "key", read_choice(table, "key", "", shape_key_names()));
  }
  cost.shared = table.boolean_or("shared", false);
  read_times(table, cost);
  read_rounding(table, cost);
  read_entries(table, cost);
  read_compile(table, cost);
  apply_switches(table, switches, cost);
  return cost;
}

}  // namespace

std::vector<Key> new_shapes_keys() {
  return {
      described("mechanisms",
                "what builds something for a new shape, and what that takes: "
                "`[[new_shapes.mechanisms]]`, below; `[]`: new shapes cost nothing",
                "the profile's"),
      described("warm_up",
                "true: every shape of the run is met before its first step; output says what "
                "that takes",
                "false"),
      holding(
          Quantity::Text,
          described(
              "torch", "version, as `\"2.11.0\"`: a mechanism that it lacks is refused", "any")),
      holding(Quantity::Text,
              described("cudnn", "version of the cuDNN that runs, as `\"9.19\"`", "any")),
      holding(
          Quantity::Text,
          described("compute_capability",
                    "of the device, as `\"9.0\"`: cuDNN comes first for attention on 9.x and 10.x",
                    "any")),
      described("cudnn_attention",
                "true: the program asks for it (`torch.nn.attention.sdpa_kernel`)",
                "false"),
      described("cudnn_deprioritized",
                "true: `TORCH_CUDNN_SDPA_DEPRIORITIZED=1`, attention plans are not built",
                "false"),
      described("avoid_recompile",
                "true: `TORCH_CUDNN_SDPA_AVOID_RECOMPILE=1`, lengths in the key of a batch "
                "without mask are rounded up to powers of two",
                "false"),
      described("mask",
                "which batches carry a mask for attention: `\"always\"`, `\"padded\"` (a batch "
                "without padding goes without, and is another key), `\"never\"`",
                "`\"always\"`"),
  };
}

std::vector<Key> mechanism_keys() {
  const auto names = mapped(mechanism_kinds(),
                            [](const MechanismKind& kind) { return "`\"" + kind.name + "\"`"; });
  return {
      required(described("kind", fmt::format("{}", fmt::join(names, ", ")), "")),
      holding(
          Quantity::Time,
          described("forward", "time that the host is busy before the forward, `\"0.44 s\"`", "0")),
      holding(Quantity::Time, described("backward", "the same before the backward", "0")),
      holding(Quantity::Time,
              described("forward_device",
                        "time that the device is busy in the forward, as by trial runs of kernels",
                        "0")),
      holding(Quantity::Time, described("backward_device", "the same in the backward", "0")),
      described("error", "standard deviation of these times together, as a fraction", "0.2"),
      described("key",
                "what tells shapes apart: `\"samples_length\"` (samples and padded length), "
                "`\"length\"`, `\"samples\"`, `\"tokens\"` (padded ones), `\"largest\"` (only a "
                "batch of more padded tokens than any before costs)",
                "`\"tokens\"` for `autotune` and `gemm_heuristics`, `\"largest\"` for "
                "`allocator`, else `\"samples_length\"`"),
      described("round_length",
                "the length in the key is rounded up to a multiple of this, or to a "
                "`\"power_of_two\"`",
                "1"),
      described("shared",
                "true: what one rank has built, all find from their next batch on (a cache in a "
                "file)",
                "false"),
      described("entries", "shapes that the cache of a rank holds", "all"),
      described("eviction",
                "what a full cache gives up: `\"least_recent\"`, `\"oldest\"`, `\"none\"` (new "
                "shapes are not kept)",
                "`\"least_recent\"`"),
      described("mode",
                "`compile` alone: `\"static\"` (`dynamic=False`), `\"automatic\"` (a size that "
                "changes becomes symbolic; 1 never does), `\"dynamic\"`",
                "`\"automatic\"`"),
      described("recompile_limit",
                "`compile` alone: graphs after which all runs uncompiled for good",
                "8"),
      described("uncompiled_factor",
                "`compile` alone: how much longer forward and backward take then",
                "1"),
  };
}

void read_new_shapes(const TomlReader& root, Scenario& scenario) {
  if (!root.has("new_shapes")) {
    return;
  }
  const TomlReader table = root.table("new_shapes");
  const AttentionSwitches switches = read_switches(table);
  NewShapes& shapes = scenario.new_shapes;
  shapes.warm_up = table.boolean_or("warm_up", false);
  if (table.has("mechanisms")) {
    shapes.mechanisms.emplace();
    for (const TomlValue& item : table.list("mechanisms")) {
      const TomlReader one(table.document(), item, "new_shapes.mechanisms");
      if (item.kind != TomlValue::Kind::Table) {
        one.fail(fmt::format(
            "expected a list of {{ kind = \"attention_plan\", forward = \"0.44 s\" }}, got {}",
            describe(item)));
      }
      ShapeCost cost = read_mechanism(one, switches);
      const bool off = cost.mechanism == "attention_plan" && switches.deprioritized;
      if (!off) {
        shapes.mechanisms->push_back(std::move(cost));
      }
    }
  }
}

}  // namespace stepsim
