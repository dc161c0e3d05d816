#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/core.h>

#include "costmodel/records/shipped.h"
#include "sim/scenario/key_table.h"
#include "sim/scenario/tables.h"

namespace stepsim {
namespace {

constexpr double kMaxSlowdown = 1e6;

/// A factor on the speed of something.
NumberRange speed() {
  return {[](double value) { return value >= 1 / kMaxSlowdown && value <= kMaxSlowdown; },
          "0.000001 to 1000000, as 2 for twice as fast"};
}

void read_slow_ranks(const TomlReader& cluster, Scenario& scenario) {
  scenario.slow_ranks_given = true;
  read_by_rank(cluster,
               "slow_ranks",
               "{ rank = 1, factor = 1.2 }",
               scenario.ranks,
               [&](const TomlReader& slow, int rank) {
                 const double factor = slow.number("factor");
                 if (factor <= 0 || factor > kMaxSlowdown) {
                   slow.fail(
                       "factor",
                       fmt::format("{} is no factor; expected more than 0, at most {:.0f}, as "
                                   "1.2 for 20 % slower",
                                   factor,
                                   kMaxSlowdown));
                 }
                 scenario.slow_ranks.push_back({rank, factor});
               });
}

/// A name alone is that of a shipped profile, unless a file beside the scenario is called so.
void read_profile_name(const TomlReader& table, Scenario& scenario) {
  scenario.profile = resolved_path(table, "profile");
  std::error_code error;
  const std::string named = table.text("profile");
  if (is_name_alone(named) && !std::filesystem::exists(scenario.profile, error)) {
    scenario.profile = named;
  }
}

Placement read_placement(const TomlReader& cluster) {
  const TomlValue& value = cluster.value("placement");
  if (value.kind == TomlValue::Kind::Text) {
    return cluster.parsed("placement", parse_placement);
  }
  if (value.kind == TomlValue::Kind::Integer) {
    return Placement(
        {static_cast<int>(cluster.integer("placement", 1, std::int64_t{kMaxPlacedRanks}))});
  }
  std::vector<int> nodes;
  for (const TomlValue& item : cluster.list("placement")) {
    if (item.kind != TomlValue::Kind::Integer || item.integer < 1 ||
        item.integer > kMaxPlacedRanks) {
      cluster.fail("placement", "expected the ranks of each node, each 1 or more, as [1, 2, 4]");
    }
    nodes.push_back(static_cast<int>(item.integer));
  }
  try {
    return Placement(nodes);
  } catch (const InputError& error) {
    cluster.fail("placement", error);
  }
}

/// Reads the number of ranks and where they lie.
void read_ranks(const TomlReader& cluster, Scenario& scenario) {
  if (cluster.has("ranks_per_node")) {
    scenario.ranks_per_node =
        static_cast<int>(cluster.integer("ranks_per_node", 1, kMaxPlacedRanks));
  }
  const bool placed = cluster.has("placement");
  const bool stated_counts = cluster.has("ranks") || !placed;
  const int ranks =
      stated_counts ? static_cast<int>(cluster.integer("ranks", 1, kMaxPlacedRanks)) : 0;
  if (!placed) {
    scenario.ranks = ranks;
    scenario.placement = Placement::filled(ranks, scenario.ranks_per_node);
    return;
  }
  scenario.placement = read_placement(cluster);
  scenario.ranks = scenario.placement.ranks();
  if (cluster.has("ranks_per_node")) {
    cluster.fail("ranks_per_node", "cluster.placement says it already; write one of them");
  }
  if (stated_counts && ranks != scenario.ranks) {
    cluster.fail("ranks",
                 fmt::format("{} ranks, but the nodes of cluster.placement hold {}; leave "
                             "cluster.ranks out",
                             ranks,
                             scenario.ranks));
  }
}

void read_name(const TomlReader& table, Scenario& scenario) {
  scenario.name = table.text("name");
  if (scenario.name.empty()) {
    table.fail("name", "expected a name");
  }
}

}  // namespace

void read_by_rank(const TomlReader& owner,
                  const std::string& key,
                  const std::string& example,
                  int ranks,
                  const std::function<void(const TomlReader& table, int rank)>& read) {
  std::set<int> seen;
  for (const TomlValue& item : owner.list(key)) {
    const TomlReader table(owner.document(), item, owner.path() + "." + key);
    if (item.kind != TomlValue::Kind::Table) {
      table.fail(fmt::format("expected a list of {}, got {}", example, describe(item)));
    }
    const auto rank = static_cast<int>(table.integer("rank", 0, kMaxRanks));
    if (rank >= ranks) {
      table.fail("rank",
                 fmt::format("rank {} is out of range: the ranks are 0 .. {}", rank, ranks - 1));
    }
    if (!seen.insert(rank).second) {
      table.fail("rank", fmt::format("rank {} is listed twice", rank));
    }
    read(table, rank);
  }
}

TomlReader required_table(const TomlReader& root, const std::string& name) {
  if (!root.has(name)) {
    root.fail(fmt::format("missing table [{}]", name));
  }
  return root.table(name);
}

std::vector<Key> scenario_keys() {
  using S = Scenario;
  return {
      required(custom("name", read_name, "text", "")),
      text("question", field(&S::question), "what the scenario answers", "empty"),
      integer("seed", field(&S::seed), {0}, "integer, 0 or more"),
      touching(Stage::Planned,
               required(integer("steps",
                                field(&S::steps),
                                {1, kMaxSteps},
                                "optimizer steps to simulate, 1 to 1,000,000"))),
      touching(Stage::Planned,
               integer("warmup_steps",
                       field(&S::warmup_steps),
                       {0, kMaxSteps},
                       "leading steps left out of every mean; fewer than `steps`")),
  };
}

std::vector<Key> cluster_keys() {
  using S = Scenario;
  return {
      described("ranks", "processes, 1 to 65,536", "those of `placement`"),
      described("ranks_per_node", "ranks that share a node", "all on one node"),
      holding(Quantity::Text,
              described(
                  "placement",
                  "ranks of each node, where nodes hold different numbers of them: `[1, 2, 4]`, "
                  "`\"1+2+4\"`, or `\"2x8\"` for two nodes of 8; instead of `ranks_per_node`. From "
                  "`--set` or `--over` it replaces `ranks` and `ranks_per_node`",
                  "`ranks_per_node` on each node, the last one partly filled")),
      touching(
          Stage::Played,
          number("cores",
                 field(&S::cores),
                 {[](double value) { return value == 0 || (value >= 1 && value <= kMaxRanks); },
                  "0, or 1 to 65536"},
                 "processor cores that the ranks of a node share, where a rank computes on its "
                 "processor and there are fewer cores than ranks (1.5 where the machine gives no "
                 "more): "
                 "the cores go in equal parts to the ranks that still compute; 0: ranks do not "
                 "slow each "
                 "other",
                 "as the profile says")),
      custom("profile",
             read_profile_name,
             "calibration of the machine, a file or the name of a shipped one (`stepsim "
             "profiles`); only "
             "predictions need it",
             "none"),
      touching(Stage::Played,
               custom("slow_ranks",
                      read_slow_ranks,
                      "`[{ rank = 1, factor = 1.2 }]`: compute on rank 1 takes 1.2 times as long, "
                      "and so does building its batches; "
                      "`[]`: all "
                      "ranks are alike, also where the profile was recorded on unequal ones",
                      "as the profile says")),
      touching(Stage::Reduced,
               number("network_speed",
                      field(&S::network_speed),
                      speed(),
                      "how many times as fast the network is as the profile, `all_reduce` or "
                      "`topology` say: every collective's time is divided by it")),
      touching(Stage::Planned,  // Policies that plan by time read it.
               number("compute_speed",
                      field(&S::compute_speed),
                      speed(),
                      "how many times as fast ranks compute as the profile or `[times]` say: every "
                      "kernel's time is divided by it; the host's (launches, building and loading "
                      "batches) is not")),
      touching(Stage::Played,
               number("peak_tflops",
                      field(&S::peak_tflops),
                      positive_number(),
                      "dense TFLOP/s of a rank's device in the type that it computes in, of which "
                      "MFU is a share",
                      "in 16 bit the data sheet's, of the cards that are known by name")),
      touching(Stage::Played,
               number("skew",
                      field(&S::skew),
                      {[](double value) { return value >= 0 && value <= kMaxSlowdown; },
                       "0 to 1000000, as 0.2 for 20 % more work on the last rank"},
                      "the last rank has 1 + `skew` times the forward and backward work of the "
                      "first, those "
                      "between in proportion; beside what their batches make")),
      touching(
          Stage::Played,
          number("jitter",
                 field(&S::jitter),
                 {[](double value) { return value >= 0 && value < 1; },
                  "a fraction of a step from 0 up to 1"},
                 "standard deviation of a step's compute time, as a fraction from 0 (none) up to 1",
                 "the profile's")),
      touching(Stage::Played,
               choice("communicator",
                      field(&S::gloo),
                      {{"in_order", false}, {"gloo", true}},
                      "`\"in_order\"` (NCCL: one collective at a time, a stream waits for it) or "
                      "`\"gloo\"` "
                      "(two at a time share the links, the host waits)")),
      touching(
          Stage::Reduced,
          described(
              "topology", "the links, for collectives that the profile did not measure", "none")),
      touching(
          Stage::Reduced,
          described("all_reduce",
                    "`{ sizes = [\"1 MiB\", \"4 MiB\"], times = [\"0.118 ms\", \"0.4 ms\"], error "
                    "= 0.05 }`: "
                    "measured all-reduces of these ranks, in place of the profile's; at least two, "
                    "ascending. "
                    "`error` (0.05 when left out): the mean size of their error, as a fraction. "
                    "Not with another `ranks` or `ranks_per_node` from `--set` or `--over`",
                    "the profile's")),
  };
}

std::vector<Key> optimizer_keys() {
  using S = Scenario;
  return {
      choice(
          "kind",
          field(&S::optimizer),
          {{name_of(OptimizerKind::AdamW), OptimizerKind::AdamW},
           {name_of(OptimizerKind::Sgd), OptimizerKind::Sgd}},
          "`\"adamw\"`, `\"sgd\"`. Profiles hold the time of AdamW; SGD is taken to need as much "
          "less as it reads and writes less (3 of 7 elements a parameter, 5 with momentum)"),
      number(
          "state_bytes_per_parameter",
          field(&S::optimizer_bytes_per_parameter),
          {[](double value) { return value >= 0 && value <= 1e6; }, "0 to 1000000 bytes"},
          "optimizer state, for the memory estimate",
          "for `adamw` two moments in `model.parameter_dtype`, as PyTorch keeps them (8 with f32); "
          "0 for `sgd`"),
  };
}

void read_scenario_table(const TomlReader& root, Scenario& scenario) {
  const TomlReader table = required_table(root, "scenario");
  read_keys(table, scenario);
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
  const TomlReader cluster = required_table(root, "cluster");
  read_ranks(cluster, scenario);
  read_keys(cluster, scenario);
}

void read_optimizer(const TomlReader& root, Scenario& scenario) {
  const bool stated = root.has("optimizer");
  if (stated) {
    read_keys(root.table("optimizer"), scenario);
  }
  if (!stated || !root.table("optimizer").has("state_bytes_per_parameter")) {
    // AdamW's moments are made like the parameters; plain SGD keeps nothing.
    scenario.optimizer_bytes_per_parameter =
        scenario.optimizer == OptimizerKind::AdamW
            ? 2 * static_cast<double>(element_size(scenario.model.parameter_dtype))
            : 0;
  }
}

}  // namespace stepsim
