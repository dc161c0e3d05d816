#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <type_traits>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "sim/scenario/key_table.h"
#include "sim/scenario/tables.h"

namespace stepsim {
namespace {

std::vector<std::string> kind_names() {
  return mapped(parallelisms(), [](const Parallelism* kind) { return std::string(kind->name()); });
}

std::string read_kind_name(const TomlReader& table) {
  const std::vector<std::string> known = kind_names();
  const std::string kind = table.text("kind");
  const std::string advice = advice_for_kind(kind);
  if (std::ranges::count(known, kind) == 0 && !advice.empty()) {
    table.fail("kind", fmt::format("unknown value '{}'; {}", printable(kind), advice));
  }
  return read_choice(table, "kind", "", known);
}

/// What the kinds are: "`"ddp"`: ...; `"zero3"`: ...".
std::string kind_meanings() {
  return fmt::format("{}",
                     fmt::join(mapped(parallelisms(),
                                      [](const Parallelism* kind) {
                                        return fmt::format(
                                            "`\"{}\"`: {}", kind->name(), kind->meaning());
                                      }),
                               "; "));
}

/// A choice, or what the key makes of another text. What PyTorch takes as True, False or an integer
/// may be written so.
std::string read_own_text(const TomlReader& table, const OwnKey& key) {
  const TomlValue& value = table.value(key.name);
  const bool has_booleans = std::ranges::count(key.choices, "true") > 0;
  std::string text;
  if (has_booleans && value.kind == TomlValue::Kind::Boolean) {
    text = value.boolean ? "true" : "false";
  } else if (has_booleans && value.kind == TomlValue::Kind::Integer) {
    text = std::to_string(value.integer);
  } else {
    text = table.text(key.name);
  }
  if (std::ranges::count(key.choices, text) > 0) {
    return text;
  }
  if (!key.meant) {
    return read_choice(table, key.name, "", key.choices);
  }
  try {
    return key.meant(text);
  } catch (const InputError& error) {
    table.fail(key.name, error);
  }
}

/// A replica on each node.
std::int64_t replicas_on_nodes(const TomlReader& table, const OwnKey& key, const Placement& ranks) {
  if (ranks.nodes() == 1) {
    table.fail(key.name, "\"nodes\": a replica on each node, and there is one node: that is fsdp2");
  }
  if (!ranks.is_even()) {
    table.fail(key.name, "\"nodes\": replicas must be of one size, and so must be the nodes");
  }
  return ranks.nodes();
}

/// An integer, which may be written as 5e7.
std::int64_t read_own_integer(const TomlReader& table, const OwnKey& key) {
  constexpr double kExact = 1LL << 53;
  const TomlValue& value = table.value(key.name);
  if (value.kind == TomlValue::Kind::Real && std::abs(value.real) > kExact) {
    table.fail(key.name,
               fmt::format("{:g} is too {}; expected {} to {:.0f}",
                           value.real,
                           value.real < 0 ? "small" : "large",
                           key.least,
                           std::min(kExact, static_cast<double>(key.most))));
  }
  if (value.kind != TomlValue::Kind::Real || std::trunc(value.real) != value.real) {
    return table.integer(key.name, key.least, key.most);
  }
  const auto whole = static_cast<std::int64_t>(value.real);
  if (whole < key.least || whole > key.most) {
    table.fail(key.name, fmt::format("{} is too {}", whole, whole < key.least ? "small" : "large"));
  }
  return whole;
}

OwnValue read_own(const TomlReader& table, const OwnKey& key, const Scenario& scenario) {
  return std::visit(
      [&](const auto& fallback) -> OwnValue {
        using Value = std::remove_cvref_t<decltype(fallback)>;
        if constexpr (std::is_same_v<Value, bool>) {
          return table.boolean_or(key.name, fallback);
        } else if constexpr (std::is_same_v<Value, std::int64_t>) {
          const TomlValue& value = table.value(key.name);
          const bool is_text = value.kind == TomlValue::Kind::Text;
          if (is_text && std::ranges::count(key.choices, value.text) > 0) {
            return replicas_on_nodes(table, key, scenario.placement);
          }
          return is_text && key.meant ? std::int64_t{std::stoll(read_own_text(table, key))}
                                      : read_own_integer(table, key);
        } else if constexpr (std::is_same_v<Value, Bytes>) {
          return table.bytes(key.name);
        } else {
          return read_own_text(table, key);
        }
      },
      key.fallback);
}

/// Whether the key says no more than the kind that lacks it does by itself: replicas = 1 beside
/// DDP.
bool is_common_default(const std::string& name, const TomlReader& table, const Scenario& scenario) {
  return std::ranges::any_of(parallelisms(), [&](const Parallelism* kind) {
    const std::vector<OwnKey> keys = kind->keys();
    const auto key = std::ranges::find(keys, name, &OwnKey::name);
    try {
      return key != keys.end() && key->default_is_common &&
             read_own(table, *key, scenario) == key->fallback;
    } catch (const InputError&) {
      return false;  // It is no value of that kind's.
    }
  });
}

/// Kinds may have keys of one name: the one that is chosen reads it.
void read_own_key(const std::string& name, const TomlReader& table, Scenario& scenario) {
  const std::vector<OwnKey> keys = scenario.parallel->keys();
  const auto own = std::ranges::find(keys, name, &OwnKey::name);
  if (own == keys.end()) {
    if (is_common_default(name, table, scenario)) {
      return;
    }
    const std::string advice = advice_for_key("parallel", name);
    table.fail(name,
               fmt::format("does not apply to kind '{}'{}{}",
                           scenario.parallel->name(),
                           advice.empty() ? "" : "; ",
                           advice));
  }
  scenario.parallel_values.set(name, read_own(table, *own, scenario));
}

Key own_row(const OwnKey& own) {
  const std::string name = own.name;
  const auto read = [name](const TomlReader& table, Scenario& scenario) {
    read_own_key(name, table, scenario);
  };
  const std::string fallback =
      std::visit([](const auto& value) { return documented(value); }, own.fallback);
  Key key = touching(own.only_reduces ? Stage::Reduced : Stage::Priced,
                     custom(name, read, own.meaning, fallback));
  key.choices = own.choices;
  return key;
}

}  // namespace

std::vector<Key> parallel_keys() {
  const auto read_kind = [](const TomlReader& table, Scenario& scenario) {
    scenario.parallel = &parallelism_named(read_kind_name(table));
    for (const OwnKey& key : scenario.parallel->keys()) {
      scenario.parallel_values.set(key.name, key.fallback);
    }
  };
  std::vector<Key> keys = {
      custom("kind", read_kind, kind_meanings(), documented(kind_names().front()))};
  keys.front().choices = kind_names();
  std::set<std::string> known;
  for (const Parallelism* kind : parallelisms()) {
    for (const OwnKey& own : kind->keys()) {
      if (known.insert(own.name).second) {
        keys.push_back(own_row(own));
      }
    }
  }
  return keys;
}

void read_parallel(const TomlReader& root, Scenario& scenario) {
  if (!root.has("parallel")) {
    return;
  }
  const TomlReader table = root.table("parallel");
  read_keys(table, scenario);
}

void check_parallel(const TomlReader& root, const Scenario& scenario) {
  const auto refusal = scenario.parallel->refusal(parallel_job(scenario));
  if (!refusal) {
    return;
  }
  const auto stated_in = [&](const char* name) {
    return root.has(name) && root.table(name).has(refusal->key);
  };
  const char* const owner = stated_in("parallel") || !root.has("ddp") ? "parallel" : "ddp";
  root.table(owner).fail(refusal->key, refusal->reason);
}

}  // namespace stepsim
