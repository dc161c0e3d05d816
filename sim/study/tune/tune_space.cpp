#include "sim/study/tune/tune_space.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "sim/predict/scenario_profile.h"
#include "sim/scenario/key_table.h"

namespace stepsim {
namespace {

/// Parameters of policies that say how much a batch holds.
constexpr std::array kSizes = {"batch_size",
                               "max_tokens",
                               "token_budget",
                               "max_sentences",
                               "max_duration",
                               "batch_bins",
                               "max_batch_size",
                               "bucket_size",
                               "global_batch",
                               "num_tokens_local",
                               "effective_batch_size",
                               "capacity",
                               "rows"};

/// Whether a key leaves the batches and what they compute as they are.
bool is_only_reducing(const std::string& key) {
  return first_stage_of(key) == Stage::Reduced;
}

/// The values once each, the first of them first.
SweepAxis axis_of(const std::string& key, const std::vector<std::string>& values) {
  SweepAxis axis{key, {}};
  for (const std::string& value : values) {
    if (std::ranges::find(axis.values, value, &Setting::value_text) == axis.values.end()) {
      axis.values.emplace_back(key, value);
    }
  }
  return axis;
}

/// Half to twice the size that the scenario has, its own first.
std::vector<std::string> sizes_around(double own) {
  std::vector<std::string> values;
  for (const double factor : {1.0, 0.5, 0.625, 0.75, 0.875, 1.125, 1.25, 1.5, 1.75, 2.0}) {
    const double size = std::max(1.0, std::round(own * factor));
    values.push_back(fmt::format("{:.0f}", size));
  }
  return values;
}

std::size_t combinations(const std::vector<SweepAxis>& axes) {
  std::size_t count = 1;
  for (const SweepAxis& axis : axes) {
    if (count > TuneSpace::kMostPoints) {
      return count;
    }
    count *= axis.values.size();
  }
  return count;
}

std::size_t points_of(std::size_t own, std::size_t shared) {
  const bool too_many = own > TuneSpace::kMostPoints || shared > TuneSpace::kMostPoints;
  return too_many ? TuneSpace::kMostPoints + 1 : own * shared;
}

}  // namespace

TuneSpace::TuneSpace(const Scenario& scenario, const std::vector<SweepAxis>& over) {
  for (const BatchingPolicy& policy : scenario.policies) {
    if (!policy.is_reference()) {
      policies_.push_back({policy.name(), {}});
    }
  }
  bool any_key = false;
  std::set<std::string> seen;
  for (const SweepAxis& axis : over) {
    if (!seen.insert(axis.key).second) {
      throw InputError(SourcePlace{"--over " + printable(axis.key)},
                       "the key is given twice; list all of its values in one --over");
    }
    if (axis.key == "policy") {
      policies_ = mapped(axis.values, [&](const Setting& value) {
        return Policy{find_policy(scenario, value.value_text()).name(), {}};
      });
    }
  }
  for (const SweepAxis& axis : over) {
    const std::string prefix = "policy.";
    if (axis.key == "policy") {
      continue;
    }
    any_key = true;
    if (axis.key == "scenario.steps") {
      throw InputError("--over {}: all points take the same steps", axis.key);
    }
    if (!axis.key.starts_with(prefix)) {
      shared_.push_back({axis, is_only_reducing(axis.key)});
      continue;
    }
    const auto owner =
        std::ranges::find(policies_, policy_of_key(scenario, axis.key), &Policy::name);
    if (owner == policies_.end()) {
      throw InputError("--over {}: no policy that is searched has this name; they are {}",
                       printable(axis.key),
                       fmt::join(mapped(policies_, &Policy::name), ", "));
    }
    owner->axes.push_back(axis);
  }
  if (policies_.empty()) {
    throw InputError("there is no policy to tune: all are reference cases");
  }
  first_is_own_ = !any_key;
  if (first_is_own_) {
    add_default_axes(scenario);
  }
  shared_size_ = combinations(mapped(shared_, &TuneAxis::axis));
  for (const Policy& policy : policies_) {
    size_ += points_of(combinations(policy.axes), shared_size_);
    ends_.push_back(size_);
  }
  if (size_ > kMostPoints) {
    throw InputError(
        "the space has more than {} points; give fewer values, or fewer keys, with --over",
        kMostPoints);
  }
}

void TuneSpace::add_default_axes(const Scenario& scenario) {
  const auto share = [&](SweepAxis axis) {
    const bool reduces = is_only_reducing(axis.key);
    shared_.push_back({std::move(axis), reduces});
  };
  if (scenario_profile(scenario).memory_capacity.value() > 0) {
    const CheckpointKind own = scenario.checkpointing.kind;
    share(axis_of(
        "model.checkpointing",
        {own == CheckpointKind::Full ? "true" : std::string(name_of(own)), "false", "true"}));
  }
  share(axis_of("ddp.accumulation_steps",
                {std::to_string(scenario.ddp.accumulation_steps), "1", "2", "4"}));
  for (const TunedKey& tuned : scenario.parallel->tuned_keys(parallel_job(scenario))) {
    share(axis_of(tuned.key, tuned.values));
  }
  for (Policy& own : policies_) {
    const BatchingPolicy& policy = find_policy(scenario, own.name);
    for (const PolicyParameter& parameter : policy.kind().parameters) {
      const bool is_size = std::ranges::find(kSizes, parameter.name) != kSizes.end();
      const bool number = parameter.type == PolicyParameter::Type::Integer ||
                          parameter.type == PolicyParameter::Type::Number;
      if (is_size && number && policy.parameters().has(parameter.name)) {
        own.axes.push_back(axis_of(fmt::format("policy.{}.{}", own.name, parameter.name),
                                   sizes_around(policy.parameters().number(parameter.name))));
      }
    }
    if (!policy.is_varlen() && policy.pad_to_lengths().empty() && !policy.chooses_padding() &&
        policy.played() == nullptr) {
      own.axes.push_back(axis_of(fmt::format("policy.{}.pad_to_multiple_of", own.name),
                                 {std::to_string(policy.pad_to_multiple_of()), "1", "8", "64"}));
    }
  }
}

TuneChoice TuneSpace::choice(std::size_t number) const {
  TuneChoice choice;
  while (number >= ends_[choice.policy]) {
    ++choice.policy;
  }
  number -= choice.policy > 0 ? ends_[choice.policy - 1] : 0;
  const auto take = [&](const SweepAxis& axis) {
    const std::size_t value = number % axis.values.size();
    number /= axis.values.size();
    return value;
  };
  choice.shared.resize(shared_.size());
  for (std::size_t i = shared_.size(); i-- > 0;) {
    choice.shared[i] = take(shared_[i].axis);
  }
  const std::vector<SweepAxis>& own = policies_[choice.policy].axes;
  choice.own.resize(own.size());
  for (std::size_t i = own.size(); i-- > 0;) {
    choice.own[i] = take(own[i]);
  }
  return choice;
}

std::size_t TuneSpace::number(const TuneChoice& choice) const {
  const std::size_t before = choice.policy > 0 ? ends_[choice.policy - 1] : 0;
  std::size_t number = 0;
  const std::vector<SweepAxis>& own = policies_[choice.policy].axes;
  for (std::size_t i = 0; i < own.size(); ++i) {
    number = number * own[i].values.size() + choice.own[i];
  }
  for (std::size_t i = 0; i < shared_.size(); ++i) {
    number = number * shared_[i].axis.values.size() + choice.shared[i];
  }
  return before + number;
}

std::vector<TuneChoice> TuneSpace::simpler(const TuneChoice& choice) const {
  std::vector<TuneChoice> choices;
  if (!first_is_own_) {
    return choices;
  }
  for (const auto values : {&TuneChoice::own, &TuneChoice::shared}) {
    for (std::size_t i = 0; i < (choice.*values).size(); ++i) {
      if ((choice.*values)[i] > 0) {
        choices.push_back(choice);
        (choices.back().*values)[i] = 0;
      }
    }
  }
  return choices;
}

void TuneSpace::add_setting(const SweepAxis& axis,
                            std::size_t value,
                            std::vector<Setting>& settings) const {
  if (value > 0 || !first_is_own_) {
    settings.push_back(axis.values[value]);
  }
}

std::vector<Setting> TuneSpace::shared_settings(const TuneChoice& choice) const {
  std::vector<Setting> settings;
  for (std::size_t i = 0; i < shared_.size(); ++i) {
    add_setting(shared_[i].axis, choice.shared[i], settings);
  }
  return settings;
}

std::vector<Setting> TuneSpace::settings(const TuneChoice& choice, bool reduces) const {
  std::vector<Setting> settings;
  const std::vector<SweepAxis>& own = policies_[choice.policy].axes;
  for (std::size_t i = 0; i < own.size(); ++i) {
    add_setting(own[i], choice.own[i], settings);
  }
  for (std::size_t i = 0; i < shared_.size(); ++i) {
    if (reduces || !shared_[i].only_reduces) {
      add_setting(shared_[i].axis, choice.shared[i], settings);
    }
  }
  return settings;
}

std::vector<std::string> TuneSpace::words(const TuneChoice& choice) const {
  std::vector<std::string> parts;
  const auto add = [&](const SweepAxis& axis, std::size_t value) {
    if (axis.values.size() > 1 && (value > 0 || !first_is_own_)) {
      parts.push_back(axis.key.substr(axis.key.rfind('.') + 1) + " " +
                      axis.values[value].value_text());
    }
  };
  const std::vector<SweepAxis>& own = policies_[choice.policy].axes;
  for (std::size_t i = 0; i < own.size(); ++i) {
    add(own[i], choice.own[i]);
  }
  for (std::size_t i = 0; i < shared_.size(); ++i) {
    add(shared_[i].axis, choice.shared[i]);
  }
  if (parts.empty() && first_is_own_) {
    parts.emplace_back("as it stands");
  }
  return parts;
}

std::string TuneSpace::text(const TuneChoice& choice) const {
  return fmt::format("{}", fmt::join(words(choice), ", "));
}

}  // namespace stepsim
