#include "sim/scenario/key_table.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/model/model_presets.h"
#include "sim/scenario/tables.h"

namespace stepsim {
namespace {

/// Keys that the documentation shows in an example rather than in a table.
std::vector<Key> keys_of(const std::vector<std::string>& names) {
  return mapped(names, [&](const std::string& name) { return described(name, "", ""); });
}

std::vector<Key> operator+(std::vector<Key> keys, const std::vector<Key>& more) {
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

/// A table of lengths and the tables below it.
void add_lengths(const std::string& path,
                 const std::vector<Key>& keys,
                 std::vector<KeyTable>& tables) {
  const std::vector<Key> log_normal = keys_of({"mu", "sigma", "min", "max"});
  tables.push_back({path, keys});
  tables.push_back({path + ".log_normal", log_normal});
  tables.push_back({path + ".mixture", length_keys() + keys_of({"weight"})});
  tables.push_back({path + ".mixture.log_normal", log_normal});
}

std::vector<KeyTable> all_tables() {
  std::vector<KeyTable> tables = {
      {"",
       keys_of({"scenario",
                "cluster",
                "model",
                "ddp",
                "parallel",
                "optimizer",
                "data",
                "policy",
                "interference",
                "new_shapes",
                "host",
                "noise",
                "times"})},
      {"scenario", scenario_keys()},
      {"cluster", cluster_keys()},
      {"cluster.slow_ranks", touching(Stage::Played, keys_of({"rank", "factor"}))},
      {"cluster.topology", touching(Stage::Reduced, topology_keys())},
      {"cluster.topology.slow_links",
       touching(Stage::Reduced, keys_of({"rank", "node", "factor"}))},
      {"cluster.all_reduce", touching(Stage::Reduced, keys_of({"sizes", "times", "error"}))},
      {"model", model_keys()},
      {"model.varlen", varlen_keys()},
      {"ddp", touching(Stage::Priced, ddp_keys())},
      {"ddp.mixed_precision", touching(Stage::Priced, keys_of({"param_dtype", "reduce_dtype"}))},
      {"ddp.communication_hook", touching(Stage::Priced, communication_hook_keys())},
      {"parallel", touching(Stage::Priced, parallel_keys())},
      {"interference", touching(Stage::Played, interference_keys())},
      {"host", touching(Stage::Played, host_keys())},
      {"noise", touching(Stage::Played, noise_keys())},
      {"times", times_keys()},
      {"new_shapes", new_shapes_keys()},
      {"new_shapes.mechanisms", mechanism_keys()},
      {"optimizer", touching(Stage::Priced, optimizer_keys())},
      {"data", data_keys()},
      {"data.loading", touching(Stage::Played, loading_keys())},
      {"data.delays", touching(Stage::Played, keys_of({"rank", "delay"}))},
      {"data.sampler", sampler_keys()},
      {"policy", policy_keys()},
      {"policy.varlen",
       keys_of({"max_num_docs", "max_seq_len", "overflow", "block_rows", "empty_block"})},
  };
  add_lengths("data.lengths", length_keys(), tables);
  add_lengths("data.targets", length_keys() + keys_of({"ratio", "sigma"}), tables);
  add_lengths("policy.lengths", length_keys(), tables);
  return tables;
}

const KeyTable* find_table(const std::string& path) {
  const auto& tables = key_tables();
  const auto found =
      std::ranges::find_if(tables, [&](const KeyTable& table) { return table.path == path; });
  return found == tables.end() ? nullptr : &*found;
}

std::vector<std::string> names_of(const std::vector<Key>& keys) {
  return mapped(keys, &Key::name);
}

/// Names of config.json and others for what no family of models has.
bool is_head_width(const std::string& key) {
  constexpr std::array kNames = {"head_dim", "head_size", "head_width", "kv_channels", "d_head"};
  return std::ranges::find(kNames, key) != kNames.end();
}

std::string unknown_model_key(const std::string& key, const std::vector<std::string>& known) {
  if (is_head_width(key)) {
    return fmt::format(
        "'{}': heads are hidden / heads wide in every kind of model, and no other "
        "width is known{}",
        key,
        other_models_hint());
  }
  return unknown_name("key", key, known) +
         (nearest_name(key, known).empty() ? other_models_hint() : "");
}

/// Where a key stands that is not a table of the file: "'ddp.bucket_cap'", of a policy's keys
/// "'policy.NAME.max_tokens'", with commas between; empty: no table has it.
std::string places_of(const std::string& key) {
  std::string places;
  for (const KeyTable& table : key_tables()) {
    if (!table.path.empty() && std::ranges::find(table.keys, key, &Key::name) != table.keys.end()) {
      const std::string path =
          table.path.starts_with("policy") ? "policy.NAME" + table.path.substr(6) : table.path;
      places += fmt::format("{}'{}.{}'", places.empty() ? "" : ", ", path, key);
    }
  }
  return places;
}

void check_table(const TomlDocument& document, const TomlValue& value, const std::string& path) {
  const KeyTable* table = find_table(path);
  if (table == nullptr) {
    return;  // A table where a plain value belongs: a wrong type, reported by the reader.
  }
  for (const auto& item : value.children) {
    if (value.kind == TomlValue::Kind::List) {
      check_table(document, item, path);
      continue;
    }
    const std::vector<std::string> known = names_of(table->keys);
    if (std::ranges::find(known, item.key) == known.end()) {
      if (const std::string advice = advice_for_key(path, item.key); !advice.empty()) {
        fail_at(document,
                item,
                TomlAt::Key,
                path,
                fmt::format("unknown key '{}'; {}", printable(item.key), advice));
      }
      if (const std::string places = path.empty() ? places_of(item.key) : ""; !places.empty()) {
        fail_at(document,
                item,
                TomlAt::Key,
                path,
                fmt::format("unknown key '{}'; did you mean {}?", printable(item.key), places));
      }
      const bool is_table = path.empty() && (item.kind == TomlValue::Kind::Table ||
                                             item.kind == TomlValue::Kind::List);
      fail_at(document,
              item,
              TomlAt::Key,
              path,
              path == "model" ? unknown_model_key(item.key, known)
                              : unknown_name(is_table ? "table" : "key", item.key, known));
    }
    check_table(document, item, path.empty() ? item.key : fmt::format("{}.{}", path, item.key));
  }
}

/// The row of a key, "ddp.bucket_cap"; null where no table has it.
const Key* find_row(const std::string& key) {
  const std::size_t dot = key.rfind('.');
  const KeyTable* table = dot == std::string::npos ? nullptr : find_table(key.substr(0, dot));
  if (table == nullptr) {
    return nullptr;
  }
  const auto row = std::ranges::find(table->keys, key.substr(dot + 1), &Key::name);
  return row == table->keys.end() ? nullptr : &*row;
}

}  // namespace

const std::vector<KeyTable>& key_tables() {
  static const std::vector<KeyTable> kTables = all_tables();
  return kTables;
}

Stage first_stage_of(const std::string& key) {
  const Key* row = find_row(key);
  return row == nullptr ? Stage::Formed : row->touches.value_or(Stage::Formed);
}

Quantity quantity_of(const std::string& key) {
  const Key* row = find_row(key);
  return row == nullptr ? Quantity::None : row->quantity;
}

void check_keys(const TomlDocument& document) {
  check_table(document, document.root, "");
}

void read_keys(const TomlReader& table, Scenario& scenario) {
  const KeyTable* rows = find_table(table.path());
  if (rows == nullptr) {
    throw std::logic_error("no table of keys: " + table.path());
  }
  for (const Key& key : rows->keys) {
    if (key.required) {
      (void)table.value(key.name);
    }
    if (key.read && table.has(key.name)) {
      key.read(table, scenario);
    }
  }
}

}  // namespace stepsim
