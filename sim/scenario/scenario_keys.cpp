#include "sim/scenario/scenario_keys.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "sim/batching/policy.h"

namespace stepsim {
namespace {

/// A table of the file format and the keys it may hold.
struct TableKeys {
  std::string path;
  std::vector<std::string> keys;
};

const std::vector<std::string>& length_keys() {
  static const std::vector<std::string> kKeys = {"constant",
                                                 "uniform",
                                                 "log_uniform",
                                                 "log_normal",
                                                 "histogram",
                                                 "file",
                                                 "jsonl",
                                                 "field",
                                                 "plan",
                                                 "mixture",
                                                 "seed",
                                                 "cap",
                                                 "outlier_probability",
                                                 "label_classes"};
  return kKeys;
}

std::vector<std::string> target_keys() {
  std::vector<std::string> keys = length_keys();
  keys.insert(keys.end(), {"ratio", "sigma"});
  return keys;
}

std::vector<std::string> varlen_keys() {
  return {"max_num_docs", "max_seq_len", "overflow", "block_rows", "empty_block"};
}

std::vector<std::string> policy_keys() {
  std::vector<std::string> keys = {"name", "kind"};
  const auto parameters = policy_parameter_names();
  keys.insert(keys.end(), parameters.begin(), parameters.end());
  keys.insert(keys.end(),
              {"weighting", "pad_to_multiple_of", "lengths", "attention", "varlen", "row_length"});
  return keys;
}

const std::vector<std::string>& mixture_keys() {
  static const std::vector<std::string> kKeys = [] {
    std::vector<std::string> keys = length_keys();
    keys.emplace_back("weight");
    return keys;
  }();
  return kKeys;
}

/// The whole file format. scenarios/README.md describes every key.
// clang-format off
const std::vector<TableKeys>& all_tables() {
  static const std::vector<TableKeys> kTables = {
      {"", {"scenario", "cluster", "model", "ddp", "optimizer", "data", "policy", "published", "interference",
           "host", "noise", "times"}},
      {"scenario", {"name", "question", "seed", "steps", "warmup_steps"}},
      {"cluster", {"ranks", "ranks_per_node", "cores", "profile", "slow_ranks", "skew", "jitter",
                   "communicator", "topology", "all_reduce"}},
      {"cluster.slow_ranks", {"rank", "factor"}},
      {"cluster.topology", {"algorithm", "intra_latency", "intra_bandwidth", "inter_latency",
                            "inter_bandwidth", "node_bandwidth", "slow_links", "channels", "gpu"}},
      {"cluster.topology.slow_links", {"rank", "node", "factor"}},
      {"cluster.all_reduce", {"sizes", "times"}},
      {"model", {"preset", "kind", "name", "layers", "hidden", "heads", "kv_heads", "ffn", "vocab",
                 "max_length", "classes", "tied_embeddings", "causal", "window", "dtype",
                 "parameter_dtype", "attention", "checkpointing", "parameters", "buffers", "block_elements",
                 "sparse_embeddings", "tensors", "varlen"}},
      {"model.varlen", varlen_keys()},
      {"ddp", {"bucket_cap", "first_bucket_cap", "bucket_caps", "last_bucket_cap", "bucket_rule",
               "overlap", "torch", "gradient_as_bucket_view", "set_to_none",
               "find_unused_parameters", "unused_parameters", "static_graph", "broadcast_buffers",
               "batched_grad_copy", "optimizer_in_backward", "accumulation_steps", "no_sync",
               "join", "divide_by_initial_world_size", "mixed_precision", "communication_hook",
               "zero_stage", "zero_broadcast_by_rank"}},
      {"ddp.mixed_precision", {"param_dtype", "reduce_dtype"}},
      {"ddp.communication_hook", {"kind", "rank", "start_iteration", "min_compression_rate",
                                  "topk_fraction", "subgroup_ranks", "period"}},
      {"interference", {"strength", "compute", "transfer", "multiprocessors", "max_channels",
                        "memory_share",
                        "limit", "while_waiting"}},
      {"host", {"launch", "queue_depth", "enqueue", "hook", "python_hook", "traversal_per_op",
                "sync", "step_sync", "copy_bandwidth"}},
      {"noise", {"op_jitter", "rank_speed", "step_quantiles", "rank_correlation", "stall_probability", "stall",
                 "loader_stall_probability", "loader_stall"}},
      {"times", {"forward", "backward", "optimizer", "tokens", "copy_bandwidth"}},
      {"optimizer", {"kind", "state_bytes_per_parameter"}},
      {"data", {"samples", "lengths", "targets", "sampler", "workers", "prefetch", "loading"}},
      {"data.loading", {"batch", "per_token", "plan_every", "plan"}},
      {"data.lengths", length_keys()},
      {"data.lengths.log_normal", {"mu", "sigma", "min", "max"}},
      {"data.lengths.mixture", mixture_keys()},
      {"data.lengths.mixture.log_normal", {"mu", "sigma", "min", "max"}},
      {"data.targets", target_keys()},
      {"data.targets.log_normal", {"mu", "sigma", "min", "max"}},
      {"data.targets.mixture", mixture_keys()},
      {"data.targets.mixture.log_normal", {"mu", "sigma", "min", "max"}},
      {"data.sampler", {"kind", "shuffle", "seed", "drop_last", "set_epoch"}},
      {"policy", policy_keys()},
      {"policy.varlen", varlen_keys()},
      {"policy.lengths", length_keys()},
      {"policy.lengths.log_normal", {"mu", "sigma", "min", "max"}},
      {"policy.lengths.mixture", mixture_keys()},
      {"policy.lengths.mixture.log_normal", {"mu", "sigma", "min", "max"}},
      {"published", {"figure", "value", "source", "note", "ranks", "parameters", "bandwidth",
                     "zero_stage", "optimizer_bytes", "hook", "powersgd_rank", "topk_fraction",
                     "bucket_cap", "samples", "length", "row_length", "accumulation_steps", "speed"}},
  };
  return kTables;
}
// clang-format on

const TableKeys* find_table(const std::string& path) {
  const auto& tables = all_tables();
  const auto found = std::find_if(
      tables.begin(), tables.end(), [&](const TableKeys& table) { return table.path == path; });
  return found == tables.end() ? nullptr : &*found;
}

void check_table(const TomlDocument& document, const TomlValue& value, const std::string& path) {
  const TableKeys* table = find_table(path);
  if (table == nullptr) {
    return;  // A table where a plain value belongs: a wrong type, reported by the reader.
  }
  for (const auto& item : value.children) {
    if (value.kind == TomlValue::Kind::List) {
      check_table(document, item, path);
      continue;
    }
    if (std::find(table->keys.begin(), table->keys.end(), item.key) == table->keys.end()) {
      const bool is_table = path.empty() && (item.kind == TomlValue::Kind::Table ||
                                             item.kind == TomlValue::Kind::List);
      fail_at(document,
              item,
              TomlAt::Key,
              path,
              unknown_name(is_table ? "table" : "key", item.key, table->keys));
    }
    check_table(document, item, path.empty() ? item.key : fmt::format("{}.{}", path, item.key));
  }
}

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t");
  return first == std::string::npos ? ""
                                    : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

void mark_override(TomlValue& value, const std::string& key, const std::string& text) {
  value.override_key = key;
  value.override_text = text;
  for (auto& child : value.children) {
    mark_override(child, key, text);
  }
}

[[noreturn]] void fail_override(const std::string& text, const std::string& message) {
  throw InputError(SourcePlace{fmt::format("--set {}", printable(text)), 0, 0, ""}, message);
}

/// The policy that "policy.NAME.…" means, and the length of that part of the text.
std::pair<TomlValue*, std::size_t> find_policy_table(TomlDocument& document,
                                                     const std::string& text) {
  static const std::string kPrefix = "policy.";
  TomlValue* best = nullptr;
  std::size_t best_length = 0;
  std::vector<std::string> names;
  TomlValue* policies = document.root.find("policy");
  for (std::size_t i = 0; policies != nullptr && i < policies->children.size(); ++i) {
    TomlValue& policy = policies->children[i];
    const TomlValue* name = policy.find("name");
    if (name == nullptr || name->kind != TomlValue::Kind::Text) {
      continue;
    }
    names.push_back(name->text);
    const std::size_t length = kPrefix.size() + name->text.size() + 1;
    if (length > best_length && text.starts_with(kPrefix + name->text + ".")) {
      best = &policy;
      best_length = length;
    }
  }
  if (best == nullptr) {
    const std::string rest = text.substr(kPrefix.size());
    fail_override(text, unknown_name("policy", rest.substr(0, rest.find_first_of(".=")), names));
  }
  return {best, best_length};
}

/// The member of a table, made if it is missing.
TomlValue& member(TomlValue& table, const std::string& key) {
  if (TomlValue* found = table.find(key)) {
    return *found;
  }
  table.children.emplace_back();
  table.children.back().key = key;
  return table.children.back();
}

struct Override {
  std::string key;   ///< As written, blanks around it removed.
  std::string text;  ///< The value as written.
};

void set_value(TomlValue& target, const Override& setting) {
  const std::string key = target.key;
  const TomlPlace key_place = target.key_place;
  auto value = parse_toml_value(setting.text);
  if (!value) {
    value.emplace();
    value->kind = TomlValue::Kind::Text;
    value->text = setting.text;
  }
  target = *std::move(value);
  target.key = key;
  target.key_place = key_place;
  mark_override(target, setting.key, setting.text);
}

void apply_override(TomlDocument& document, const std::string& text) {
  TomlValue* table = &document.root;
  std::size_t begin = 0;
  if (text.starts_with("policy.")) {
    std::tie(table, begin) = find_policy_table(document, text);
  }
  const std::size_t equals = text.find('=', begin);
  if (equals == std::string::npos) {
    fail_override(text, "expected key=value, as in ddp.bucket_cap=50 MiB");
  }
  const Override setting{trimmed(text.substr(0, equals)), trimmed(text.substr(equals + 1))};
  std::string rest = trimmed(text.substr(begin, equals - begin));
  for (;;) {
    const std::size_t dot = rest.find('.');
    const std::string key = rest.substr(0, dot);
    if (key.empty()) {
      fail_override(text, "a part of the key is empty; expected key=value");
    }
    const bool is_new = table->find(key) == nullptr;
    TomlValue& next = member(*table, key);
    if (dot == std::string::npos) {
      set_value(next, setting);
      return;
    }
    if (next.kind != TomlValue::Kind::Table) {
      fail_override(text, fmt::format("'{}' is no table: it has no keys below it", printable(key)));
    }
    if (is_new) {
      mark_override(next, setting.key, setting.text);
    }
    table = &next;
    rest = rest.substr(dot + 1);
  }
}

}  // namespace

void check_keys(const TomlDocument& document) {
  check_table(document, document.root, "");
}

void apply_overrides(TomlDocument& document, std::span<const std::string> overrides) {
  for (const auto& text : overrides) {
    apply_override(document, text);
  }
}

}  // namespace stepsim
