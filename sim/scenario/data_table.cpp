#include <algorithm>
#include <iterator>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "costmodel/base/mapped.h"
#include "sim/scenario/key_table.h"
#include "sim/scenario/tables.h"

namespace stepsim {
namespace {

using SourceKind = LengthSource::Kind;

constexpr int kMaxWorkers = 1024;

/// A key that names a source of lengths.
struct SourceKey {
  std::string key;
  SourceKind kind;
  std::vector<std::string> options;  ///< Beside cap, which all take.
  void (*read)(const TomlReader& table, const std::string& key, LengthSource& source);
};

/// [shortest, longest]
void read_range(const TomlReader& table, const std::string& key, LengthSource& source) {
  const auto& items = table.list(key);
  const bool are_integers = std::ranges::all_of(
      items, [](const TomlValue& item) { return item.kind == TomlValue::Kind::Integer; });
  if (items.size() != 2 || !are_integers) {
    table.fail(key, "expected [shortest, longest], two integers");
  }
  source.min = items[0].integer;
  source.max = items[1].integer;
}

void read_constant(const TomlReader& table, const std::string& key, LengthSource& source) {
  source.constant = table.integer(key, 1, kMaxSampleLength);
}

void read_log_normal(const TomlReader& table, const std::string& key, LengthSource& source) {
  const TomlReader normal = table.table(key);
  source.mu = normal.number("mu");
  source.sigma = normal.number("sigma");
  source.min = normal.integer_or("min", 1, 1, kMaxSampleLength);
  source.max = normal.integer("max", 1, kMaxSampleLength);
}

void read_file(const TomlReader& table, const std::string& key, LengthSource& source) {
  source.file = resolved_path(table, key);
}

void read_jsonl(const TomlReader& table, const std::string& key, LengthSource& source) {
  source.field = table.text_or("field", "length");
  read_file(table, key, source);
}

void read_values(const TomlReader& table, const std::string& key, LengthSource& source) {
  source.values = table.integers(key);
}

/// The parts of a mixture are sources themselves, see read_mixture().
void read_nothing(const TomlReader& /*table*/, const std::string& /*key*/, LengthSource& /*s*/) {}

const std::vector<SourceKey>& source_keys() {
  static const std::vector<SourceKey> kKeys = {
      {"constant", SourceKind::Constant, {}, read_constant},
      {"uniform", SourceKind::Uniform, {"seed"}, read_range},
      {"log_uniform",
       SourceKind::LogUniform,
       {"seed", "outlier_probability", "label_classes"},
       read_range},
      {"log_normal", SourceKind::LogNormal, {"seed", "outlier_probability"}, read_log_normal},
      {"histogram", SourceKind::Histogram, {"seed"}, read_file},
      {"file", SourceKind::File, {}, read_file},
      {"jsonl", SourceKind::Jsonl, {"field"}, read_jsonl},
      {"plan", SourceKind::Plan, {}, read_file},
      {"values", SourceKind::Values, {}, read_values},
      {"mixture", SourceKind::Mixture, {"seed"}, read_nothing},
  };
  return kKeys;
}

/// What only some sources take.
const std::vector<std::string>& source_options() {
  static const std::vector<std::string> kOptions = {
      "seed", "outlier_probability", "label_classes", "field"};
  return kOptions;
}

/// The one source that the table names.
const SourceKey& find_source(const TomlReader& table) {
  const SourceKey* found = nullptr;
  for (const auto& source : source_keys()) {
    if (!table.has(source.key)) {
      continue;
    }
    if (found != nullptr) {
      // Blame the one that the user has just set on the command line.
      const bool first_is_new = !table.value(found->key).override_key.empty();
      table.fail(
          first_is_new ? found->key : source.key,
          fmt::format("two sources of lengths, {} and {}; give one", found->key, source.key));
    }
    found = &source;
  }
  if (found == nullptr) {
    table.fail(fmt::format("expected one of {}; got none",
                           fmt::join(mapped(source_keys(), &SourceKey::key), ", ")));
  }
  return *found;
}

void check_options(const TomlReader& table, const SourceKey& source) {
  for (const std::string& option : source_options()) {
    const auto& taken = source.options;
    if (table.has(option) && std::ranges::find(taken, option) == taken.end()) {
      table.fail(option, fmt::format("does not apply to {} lengths", source.key));
    }
  }
}

/// [{ weight = 0.9, log_normal = { … } }, { weight = 0.1, constant = 2048 }]
void read_mixture(const TomlReader& table, const Scenario& scenario, LengthSource& source) {
  for (const TomlValue& item : table.list("mixture")) {
    const TomlReader part(table.document(), item, table.path() + ".mixture");
    if (item.kind != TomlValue::Kind::Table) {
      part.fail(fmt::format("expected a list of {{ weight = 0.9, constant = 128 }}, got {}",
                            describe(item)));
    }
    if (part.has("mixture")) {
      part.fail("mixture", "a mixture of mixtures; list its parts here");
    }
    source.weights.push_back(part.number("weight"));
    source.parts.push_back(read_lengths(part, scenario));
    if (has_own_count(source.parts.back()) && source.parts.back().kind != SourceKind::Histogram) {
      part.fail("a file has its own number of lengths; mix distributions and histograms");
    }
  }
}

/// Lengths of their own, or { ratio = 0.9, sigma = 0.1 } of the first.
TargetSource read_targets(const TomlReader& table, const Scenario& scenario) {
  TargetSource targets;
  if (!table.has("ratio")) {
    if (table.has("sigma")) {
      table.fail("sigma", "applies to ratio only");
    }
    targets.source = read_lengths(table, scenario);
    return targets;
  }
  for (const SourceKey& source : source_keys()) {
    if (table.has(source.key)) {
      table.fail(source.key,
                 fmt::format("two sources of target lengths, ratio and {}; give one", source.key));
    }
  }
  for (const char* option : {"outlier_probability", "label_classes", "field"}) {
    if (table.has(option)) {
      table.fail(option, "does not apply to a ratio");
    }
  }
  targets.ratio = table.number("ratio");
  targets.sigma = table.number_or("sigma", 0);
  targets.seed = static_cast<std::uint64_t>(
      table.integer_or("seed", static_cast<std::int64_t>(scenario.seed), 0));
  targets.cap = table.integer_or("cap", 0, 1, kMaxSampleLength);
  try {
    check_targets(targets);
  } catch (const InputError& error) {
    table.fail(error);
  }
  return targets;
}

void read_delays(const TomlReader& data, Scenario& scenario) {
  scenario.loader.delays.assign(static_cast<std::size_t>(scenario.ranks), Duration::zero());
  read_by_rank(data,
               "delays",
               "{ rank = 1, delay = \"5 ms\" }",
               scenario.ranks,
               [&](const TomlReader& one, int rank) {
                 scenario.loader.delays[static_cast<std::size_t>(rank)] =
                     one.parsed("delay", parse_scenario_duration);
               });
}

/// What loading costs.
void read_loading(const TomlReader& data, Scenario& scenario) {
  const TomlReader loading = data.table("loading");
  read_keys(loading, scenario);
  require_other(loading, "plan", "plan_every", "how many batches are planned at a time");
  require_other(loading, "plan_every", "plan", "what planning them takes");
}

/// Read after the lengths, some of which have a number of their own.
void read_samples(const TomlReader& data, Scenario& scenario) {
  if (!data.has("samples") && has_own_count(scenario.lengths)) {
    return;
  }
  scenario.samples = data.integer("samples", 1, kMaxSampleCount);
  if (scenario.samples < scenario.ranks) {
    data.fail("samples",
              fmt::format("{} samples for {} ranks: every rank needs at least one",
                          scenario.samples,
                          scenario.ranks));
  }
}

}  // namespace

LengthSource read_lengths(const TomlReader& table, const Scenario& scenario) {
  const SourceKey& key = find_source(table);
  check_options(table, key);
  LengthSource source;
  source.kind = key.kind;
  source.seed = static_cast<std::uint64_t>(
      table.integer_or("seed", static_cast<std::int64_t>(scenario.seed), 0));
  source.cap = table.integer_or("cap", 0, 1, kMaxSampleLength);
  source.label_classes = table.integer_or("label_classes", 0, 0, kMaxSampleLength);
  source.outlier_probability = table.number_or("outlier_probability", 0);
  if (source.outlier_probability < 0 || source.outlier_probability > 1) {
    table.fail("outlier_probability",
               fmt::format("{} is no probability; expected 0 .. 1", source.outlier_probability));
  }
  key.read(table, key.key, source);
  if (key.kind == SourceKind::Mixture) {
    read_mixture(table, scenario, source);
  }
  try {
    check_lengths(source);
  } catch (const InputError& error) {
    table.fail(key.key, error);
  }
  return source;
}

void check_longest(const TomlReader& table, const LengthSource& source, const Scenario& scenario) {
  const std::int64_t longest = longest_length(source);
  if (scenario.model.max_length > 0 && longest > scenario.model.max_length &&
      !has_own_count(source)) {
    table.fail(find_source(table).key,
               fmt::format("samples of up to {} tokens, but the model takes {} (model.max_length)",
                           longest,
                           scenario.model.max_length));
  }
}

std::vector<Key> data_keys() {
  const auto loader = [](auto member) { return field(&Scenario::loader, member); };
  return {
      described("samples",
                "size of the data set, at least `ranks`",
                "all of a `file` or `histogram`; else required"),
      required(custom(
          "lengths",
          [](const TomlReader& data, Scenario& s) {
            s.lengths = read_lengths(data.table("lengths"), s);
          },
          "where the lengths come from, see below",
          "")),
      custom(
          "targets",
          [](const TomlReader& data, Scenario& s) {
            s.targets = read_targets(data.table("targets"), s);
          },
          "a second length of each sample (a translation, the tokens of an utterance), see below",
          "none"),
      custom(
          "sampler",
          [](const TomlReader& data, Scenario& s) { read_keys(data.table("sampler"), s); },
          "`{ kind, shuffle, seed, drop_last, set_epoch }`, see below",
          "torch's DistributedSampler"),
      integer("workers",
              loader(&LoaderOptions::workers),
              {0, kMaxWorkers},
              "processes a rank that load ahead, at most 1024; 0: the training process loads"),
      integer("prefetch",
              loader(&LoaderOptions::prefetch),
              {1, kMaxWorkers},
              "batches that each worker is ahead"),
      custom(
          "delays",
          read_delays,
          "`[{ rank = 3, delay = \"5 ms\" }]`: each batch of rank 3 takes so much longer to load",
          "none"),
      custom("loading",
             read_loading,
             "`{ batch = \"2 ms\", per_token = \"3 us\", plan_every = 64, plan = \"20 ms\" }`: "
             "to load a batch, and each padded token of it; every `plan_every` batches `plan` "
             "more",
             "no time"),
  };
}

std::vector<Key> sampler_keys() {
  const auto sampler = [](auto member) { return field(&Scenario::sampler, member); };
  return {
      choice(
          "kind",
          sampler(&SamplerSpec::kind),
          {{"distributed", SamplerSpec::Kind::Distributed}, {"python", SamplerSpec::Kind::Python}},
          "`\"distributed\"` (torch: `randperm(seed + epoch)`, padded with its own head) or "
          "`\"python\"` (`random.Random(seed).shuffle`); rank r takes every ranks-th sample"),
      flag("shuffle",
           sampler(&SamplerSpec::shuffle),
           "false: samples in their own order, buckets in ascending length"),
      integer("seed", sampler(&SamplerSpec::seed), {0}, "integer, 0 or more", "the scenario's"),
      flag("drop_last",
           sampler(&SamplerSpec::drop_last),
           "leave out what does not divide over the ranks, and a rank's last batch when it is "
           "short"),
      flag("set_epoch",
           sampler(&SamplerSpec::set_epoch),
           "after its epoch a rank goes on with the next one's batches, as with "
           "`DistributedSampler.set_epoch`; false: the same ones again"),
  };
}

std::vector<Key> loading_keys() {
  const auto loader = [](auto member) { return field(&Scenario::loader, member); };
  return {
      duration("batch", loader(&LoaderOptions::batch), ""),
      duration("per_token", loader(&LoaderOptions::token_seconds), ""),
      integer("plan_every", loader(&LoaderOptions::plan_every), {1, kMaxSteps}, ""),
      duration("plan", loader(&LoaderOptions::plan), ""),
  };
}

std::vector<Key> length_keys() {
  std::vector<std::string> names = mapped(source_keys(), &SourceKey::key);
  names.emplace_back("cap");
  std::ranges::copy(source_options(), std::back_inserter(names));
  return mapped(names, [](const std::string& name) { return described(name, "", ""); });
}

void read_data(const TomlReader& root, Scenario& scenario) {
  const TomlReader table = required_table(root, "data");
  scenario.sampler.seed = scenario.seed;
  read_keys(table, scenario);
  read_samples(table, scenario);
  if (scenario.loader.workers > 0 && !table.has("loading")) {
    table.fail("workers", "say what loading costs: loading = { batch = \"2 ms\" }");
  }
}

}  // namespace stepsim
