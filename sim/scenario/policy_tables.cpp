#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/core.h>

#include "costmodel/base/row_named.h"
#include "sim/batching/loss_scale.h"
#include "sim/batching/policies/policy_table.h"
#include "sim/scenario/tables.h"

namespace stepsim {
namespace {

void check_name(const TomlReader& table, const std::string& name, const Scenario& scenario) {
  if (name.empty()) {
    table.fail("name", "expected a name");
  }
  const auto same = [&](const BatchingPolicy& other) { return other.name() == name; };
  if (std::ranges::any_of(scenario.policies, same)) {
    table.fail("name", fmt::format("two policies are called '{}'", printable(name)));
  }
}

std::vector<std::int64_t> read_integers(const TomlReader& table,
                                        const std::string& key,
                                        std::int64_t least) {
  std::vector<std::int64_t> values;
  for (const TomlValue& item : table.list(key)) {
    if (item.kind != TomlValue::Kind::Integer || item.integer < least ||
        item.integer > kMaxSampleLength) {
      table.fail(key,
                 fmt::format("expected a list of integers from {} to {}", least, kMaxSampleLength));
    }
    values.push_back(item.integer);
  }
  return values;
}

double read_number(const TomlReader& table, const std::string& key) {
  const double value = table.number(key);
  if (value <= 0) {
    table.fail(key, fmt::format("{} is too small; expected a number above 0", value));
  }
  return value;
}

/// Checks a parameter where it stands, before the policy looks at the whole.
PolicyValue read_parameter(const TomlReader& table, const PolicyParameter& parameter) {
  const std::string& name = parameter.name;
  switch (parameter.type) {
    case PolicyParameter::Type::Flag:
      return table.boolean_or(name, false);
    case PolicyParameter::Type::Integer:
      return table.integer(name, parameter.least, kMaxSampleLength);
    case PolicyParameter::Type::Number:
      return read_number(table, name);
    case PolicyParameter::Type::Text:
      return read_choice(table, name.c_str(), parameter.choices.front().c_str(), parameter.choices);
    case PolicyParameter::Type::File:
      return resolved_path(table, name);
    case PolicyParameter::Type::Integers:
      return read_integers(table, name, parameter.least);
  }
  return {};
}

constexpr const char* kGlobalBatch = "global_batch";

bool takes(const PolicyKind& kind, const std::string& parameter) {
  return std::ranges::find(kind.parameters, parameter, &PolicyParameter::name) !=
         kind.parameters.end();
}

/// The samples of a rank's batch where the policy states those of a whole step.
std::int64_t read_share_of_global_batch(const TomlReader& table,
                                        const PolicyKind& kind,
                                        const Scenario& scenario) {
  if (!takes(kind, "batch_size")) {
    table.fail(kGlobalBatch,
               fmt::format("does not apply to policy kind '{}', whose batches are not of a number "
                           "of samples that could be divided",
                           kind.name));
  }
  const std::int64_t samples = table.integer(kGlobalBatch, 1, kMaxSampleLength);
  const std::int64_t shares =
      std::int64_t{scenario.ranks} * std::int64_t{scenario.ddp.accumulation_steps};
  if (samples % shares != 0) {
    const std::int64_t below = samples - samples % shares;
    table.fail(
        kGlobalBatch,
        fmt::format("{} samples do not divide over {} rank{}{}; {}{} do",
                    samples,
                    scenario.ranks,
                    scenario.ranks == 1 ? "" : "s",
                    scenario.ddp.accumulation_steps == 1
                        ? ""
                        : fmt::format(" x {} micro-batches", scenario.ddp.accumulation_steps),
                    below > 0 ? fmt::format("{} and ", below) : "",
                    below + shares));
  }
  return samples / shares;
}

PolicyParameters read_parameters(const TomlReader& table,
                                 const PolicyKind& kind,
                                 const Scenario& scenario) {
  for (const std::string& name : policy_parameter_names()) {
    const auto is_named = [&name](const PolicyParameter& known) { return known.name == name; };
    if (name != kGlobalBatch && table.has(name) &&
        std::ranges::none_of(kind.parameters, is_named)) {
      table.fail(name,
                 fmt::format("does not apply to policy kind '{}', which takes {}",
                             kind.name,
                             names_of(kind.parameters)),
                 Lookup::Policies);
    }
  }
  PolicyParameters parameters;
  for (const PolicyParameter& parameter : kind.parameters) {
    if (table.has(parameter.name)) {
      parameters.set(parameter.name, read_parameter(table, parameter));
    }
  }
  if (table.has(kGlobalBatch) && !takes(kind, kGlobalBatch)) {
    parameters.set("batch_size", read_share_of_global_batch(table, kind, scenario));
  }
  return parameters;
}

/// The policy's own attention, else the model's, and what only one kind of attention has.
void read_attention(const TomlReader& table, const Scenario& scenario, PolicySpec& spec) {
  const TransformerConfig& model = scenario.model;
  spec.attention = model.attention;
  if (table.has("attention")) {
    spec.attention = table.parsed("attention", parse_attention);
  } else if (spec.played && spec.played->attention) {
    spec.attention = *spec.played->attention;
  }
  spec.varlen = scenario.varlen;
  const bool varlen = spec.attention == AttentionKind::Varlen;
  if (table.has("varlen")) {
    if (!varlen) {
      table.fail("varlen", "only applies to attention = \"varlen\"");
    }
    spec.varlen = read_varlen(table, scenario.varlen);
  }
  if (table.has("row_length")) {
    if (varlen) {
      table.fail("row_length",
                 "attention = \"varlen\" has no rows; expected \"dense\" or \"flash\"");
    }
    spec.row_length =
        table.integer("row_length", 1, model.max_length > 0 ? model.max_length : kMaxSampleLength);
  }
}

void read_padding(const TomlReader& table, PolicySpec& spec) {
  spec.pad_to_multiple_of = table.integer_or("pad_to_multiple_of", 1, 1, kMaxSampleLength);
  if (!table.has("pad_to_lengths")) {
    return;
  }
  spec.pad_to_lengths = read_integers(table, "pad_to_lengths", 1);
  if (spec.pad_to_lengths.empty()) {
    table.fail("pad_to_lengths", "the list is empty; expected one length or more");
  }
  if (table.has("pad_to_multiple_of")) {
    table.fail("pad_to_lengths", "does not go with pad_to_multiple_of; give one of them");
  }
  if (spec.attention == AttentionKind::Varlen) {
    table.fail("pad_to_lengths", "attention = \"varlen\" pads nothing");
  }
}

/// Adds the place of the key or of the table to what is wrong with a policy.
BatchingPolicy checked(const TomlReader& table, const PolicyKind& kind, PolicySpec spec) {
  try {
    return {kind, std::move(spec)};
  } catch (const FieldError& error) {
    table.fail(error.field(), error.reason());
  } catch (const InputError& error) {
    table.fail(error);
  }
}

/// Reads the file whose batches are played; what forms other batches of them does not apply.
void read_played(const TomlReader& table, const PolicyKind& kind, PolicySpec& spec) {
  for (const char* key :
       {"weighting", "pad_to_multiple_of", "pad_to_lengths", "lengths", "row_length"}) {
    if (table.has(key)) {
      table.fail(key,
                 fmt::format("does not apply to policy kind '{}', which plays the batches of its "
                             "file as they are",
                             kind.name));
    }
  }
  if (!table.has("file")) {
    table.fail(fmt::format("kind = \"{}\" needs file, a plan or a run record", kind.name));
  }
  try {
    spec.played =
        std::make_shared<const PlayedBatches>(read_played_batches(spec.parameters.text("file")));
  } catch (const InputError& error) {
    table.fail("file", error);
  }
}

BatchingPolicy read_policy(const TomlReader& unnamed,
                           const TomlValue& value,
                           const Scenario& scenario) {
  PolicySpec spec;
  spec.name = unnamed.text("name");
  check_name(unnamed, spec.name, scenario);
  const TomlReader table(unnamed.document(), value, "policy." + spec.name);
  spec.kind = table.text("kind");
  const PolicyKind& kind =
      table.parsed("kind", [](const std::string& name) { return std::cref(policy_kind(name)); });
  spec.parameters = read_parameters(table, kind, scenario);
  const auto weightings = loss_weighting_names();
  spec.weighting = enum_named<LossWeighting>(
      weightings, "weighting", read_choice(table, "weighting", "none", weightings));
  if (std::holds_alternative<PolicyKind::PlaysFile>(kind.epoch)) {
    read_played(table, kind, spec);
  }
  if (table.has("reference")) {
    spec.reference = table.boolean_or("reference", false);
  }
  read_attention(table, scenario, spec);
  read_padding(table, spec);
  if (table.has("lengths")) {
    spec.lengths = read_lengths(table.table("lengths"), scenario);
    if (scenario.samples == 0 && !has_own_count(*spec.lengths)) {
      table.fail("lengths", "data.samples is missing, so the number of samples is not known");
    }
  }
  BatchingPolicy policy = checked(table, kind, std::move(spec));
  // Tensor2Tensor's batch_size is no limit of padded tokens, but counts tokens all the same.
  const bool counts_tokens =
      kind.name == "tensor2tensor" || policy.token_budget() == policy.batch_size();
  if (table.has(kGlobalBatch) && !takes(kind, kGlobalBatch) && counts_tokens) {
    table.fail(kGlobalBatch, "does not apply where batch_size counts tokens");
  }
  if (policy.lengths() && !policy.cuts()) {
    check_longest(table.table("lengths"), *policy.lengths(), scenario);
  }
  return policy;
}

}  // namespace

std::vector<Key> policy_keys() {
  std::vector<Key> keys = {
      required(described("name", "unique in the file", "")),
      required(
          described("kind",
                    "one of the table below; `stepsim policies KIND` describes one, `--all` all",
                    "")),
  };
  for (const std::string& parameter : policy_parameter_names()) {
    if (parameter == kGlobalBatch) {
      continue;  // All kinds have it, see below.
    }
    keys.push_back(described(parameter, "", ""));
  }
  const std::vector<Key> common = {
      described(kGlobalBatch,
                "with a kind that has `batch_size`, in its place, also where both are given: the "
                "samples of an optimizer step, which `ranks` and `accumulation_steps` divide. For "
                "`min_max` those of a step of all ranks",
                "none"),
      described("weighting",
                "`\"none\"`, `\"sample\"`, `\"token\"`: scale of each rank's loss, so that DDP's "
                "mean over ranks is the mean over samples or tokens",
                "`\"none\"`"),
      described("pad_to_multiple_of",
                "batches are padded to the next multiple of it, 8 or 64 for tensor cores or fewer "
                "shapes; the policy forms its batches as without it",
                "1: to the longest sample"),
      described("pad_to_lengths",
                "in its place: batches are padded to the next of these ascending lengths, which "
                "`stepsim ladder` finds; the policy forms its batches as without it, so that a "
                "batch may then exceed its budget of padded tokens",
                "none"),
      described("lengths",
                "a source of its own in place of `[data]`'s, for a reference case",
                "`[data]`'s"),
      described("reference",
                "true: a case to compare with, which is not recommended",
                "true with `lengths` or a `file` of its own"),
      described("attention", "in place of the model's", "the model's"),
      described("varlen", "in place of the model's; only the keys that differ", "the model's"),
      described("row_length",
                "with `dense` or `flash`: the batch's samples stand after one another in rows of "
                "this many tokens, cut where a row ends, and each row is attended as one: packing "
                "without varlen",
                "each sample is a row, padded"),
  };
  keys.insert(keys.end(), common.begin(), common.end());
  return keys;
}

void read_policies(const TomlReader& root, Scenario& scenario) {
  if (!root.has("policy")) {
    root.fail("no policy: add a [[policy]] table");
  }
  const TomlValue& policies = root.value("policy");
  if (policies.kind != TomlValue::Kind::List) {
    root.fail("policy",
              fmt::format("expected [[policy]], a list of tables, got {}", describe(policies)));
  }
  if (policies.children.empty()) {
    root.fail("policy", "no policy: the list is empty");
  }
  for (const auto& item : policies.children) {
    const TomlReader unnamed(root.document(), item, "policy");
    if (item.kind != TomlValue::Kind::Table) {
      unnamed.fail(fmt::format("expected a table, got {}", describe(item)));
    }
    scenario.policies.push_back(read_policy(unnamed, item, scenario));
  }
  const auto takes_whole_samples = [](const BatchingPolicy& policy) {
    return !policy.has_own_data() && !policy.cuts();
  };
  const auto& all = scenario.policies;
  if (std::ranges::any_of(all, takes_whole_samples)) {
    check_longest(root.table("data").table("lengths"), scenario.lengths, scenario);
  }
  const auto is_varlen = [](const BatchingPolicy& policy) { return policy.is_varlen(); };
  const TomlReader model = root.table("model");
  if (model.has("varlen") && std::ranges::none_of(scenario.policies, is_varlen)) {
    model.fail("varlen", "only applies to attention = \"varlen\", which no policy has");
  }
}

}  // namespace stepsim
