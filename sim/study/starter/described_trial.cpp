#include "sim/study/starter/described_trial.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "costmodel/base/input_error.h"
#include "costmodel/records/profile.h"
#include "costmodel/records/shipped.h"
#include "sim/parallel/parallelism.h"
#include "sim/parallel/shardings.h"
#include "sim/predict/predict.h"
#include "sim/predict/run/jobs.h"
#include "sim/scenario/key_table.h"

namespace stepsim {

namespace {

/// Whether the training can be predicted.
bool is_priced(DescribedTraining training, const DescribedLengths& lengths) {
  try {
    training.dtype.clear();
    training.flash = false;
    take_from_profile(training);
    // Read here, where the file of lengths may have another name than beside the scenario.
    const Scenario scenario = parse_scenario(described_scenario(training, lengths), "scenario");
    return refusal_of(scenario).empty();
  } catch (const InputError&) {
    return false;
  }
}

/// The GPUs of the fullest node that the profile has an all-reduce of; 0: of none.
int most_measured(const Profile& profile) {
  int most = 0;
  for (const CollectiveCost& table : profile.collectives) {
    most = std::max(most, table.ranks / std::max(table.nodes, 1));
  }
  return most;
}

std::vector<std::string> pricing_profiles(const DescribedTraining& training,
                                          const DescribedLengths& lengths) {
  std::vector<std::string> names;
  for (const std::string& name : shipped_profiles()) {
    DescribedTraining other = training;
    other.profile = name;
    if (name != training.profile && is_priced(other, lengths)) {
      names.push_back(name);
    }
  }
  return names;
}

}  // namespace

void take_from_profile(DescribedTraining& training) {
  std::set<Dtype> types;
  bool fused = false;
  bool dense = false;
  for (const OpCost& op : read_profile(training.profile).ops) {
    if (op.op_class == OpClass::Gemm) {
      types.insert(op.dtype);
    }
    fused = fused || op.op_class == OpClass::Attention;
    dense = dense || op.op_class == OpClass::AttentionScores;
  }
  if (types.size() == 1) {
    training.dtype = name_of(*types.begin());
  }
  training.flash = fused && !dense;
}

void check_sharding(const std::string& name) {
  const bool is_kind = std::ranges::any_of(
      parallelisms(), [&](const Parallelism* kind) { return kind->name() == name; });
  if (is_kind || std::ranges::count(sharding_names(), name) > 0) {
    return;
  }
  if (const std::string advice = advice_for_kind(name); !advice.empty()) {
    throw InputError("unknown sharding '{}'; {}; known: {}",
                     printable(name),
                     advice,
                     fmt::join(sharding_names(), ", "));
  }
  (void)sharding_settings(name);
}

std::string refusal_of(const Scenario& scenario) {
  PredictOptions plain;  // No draws: they cost time and refuse nothing.
  plain.noise_runs = 0;
  plain.rows = KeptRows::None;
  plain.training_effects = true;
  try {
    Jobs jobs(scenario);
    for (const BatchingPolicy& policy : scenario.policies) {
      (void)predict(jobs.job(policy.name(), {}), plain);
    }
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

std::string better_profile(const DescribedTraining& training, const DescribedLengths& lengths) {
  const std::vector<std::string> names = pricing_profiles(training, lengths);
  if (!names.empty()) {
    return fmt::format("shipped {} with which it can be predicted: --profile {}",
                       names.size() == 1 ? "profile" : "profiles",
                       fmt::join(names, ", "));
  }
  DescribedTraining alone = training;
  alone.gpus = "1";
  alone.parallel = "ddp";
  if (!is_priced(alone, lengths)) {
    return "";
  }
  const int most = most_measured(read_profile(training.profile));
  return fmt::format(
      "no shipped profile has what this sends between {0} GPUs: write a scenario with --gpus {1}, "
      "then "
      "cluster.placement = \"{0}\" and your links in [cluster.topology], as "
      "scenarios/shard_8b.toml has them",
      training.gpus,
      std::max(most, 1));
}

std::string placed_gpus(const Scenario& scenario) {
  const Placement& placed = scenario.placement;
  if (placed.ranks() == 1) {
    return "1 GPU";
  }
  return placed.nodes() == 1 ? fmt::format("{} GPUs of one node", placed.ranks())
         : placed.is_even()
             ? fmt::format("{} nodes of {} GPU{}",
                           placed.nodes(),
                           placed.fullest(),
                           placed.fullest() == 1 ? "" : "s")
             : fmt::format(
                   "{} nodes of {} GPUs", placed.nodes(), fmt::join(placed.node_ranks(), "+"));
}

std::string fuller_node(const DescribedTraining& training, const Scenario& scenario) {
  const Placement& placed = scenario.placement;
  const Profile profile = read_profile(training.profile);
  const int most = most_measured(profile);
  if (most < 2 || placed.fullest() <= most) {
    return "";
  }
  std::string text =
      fmt::format("{} has all-reduces of {} GPUs on a node at most; this has {} on one",
                  profile.name,
                  most,
                  placed.fullest());
  if (placed.nodes() > 1 || placed.ranks() % most != 0) {
    return text;
  }
  const std::string apart = fmt::format("{}x{}", placed.ranks() / most, most);
  text += fmt::format(". On nodes of {}: --gpus {}", most, apart);
  for (const std::string& name : shipped_profiles()) {
    for (const CollectiveCost& table : read_profile(name).collectives) {
      if (table.nodes == placed.ranks() / most && table.ranks == placed.ranks()) {
        return text + fmt::format(", of which {} has the all-reduce", name);
      }
    }
  }
  return text;
}

}  // namespace stepsim
