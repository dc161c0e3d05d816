#include "sim/scenario/overrides.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/trimmed.h"
#include "sim/parallel/parallelism.h"
#include "sim/parallel/shardings.h"

namespace stepsim {
namespace {

constexpr std::string_view kPolicyPrefix = "policy.";
constexpr const char* kParallel = "parallel";

void mark_override(TomlValue& value, const std::string& option, const Setting& setting) {
  value.override_option = option;
  value.override_key = setting.key();
  value.override_text = setting.value_text();
  for (auto& child : value.children) {
    mark_override(child, option, setting);
  }
}

/// "key=value" as written, behind its option.
struct WrittenOverride {
  std::string option;
  std::string text;

  [[noreturn]] void fail(const std::string& message) const {
    throw InputError(SourcePlace{option + " " + text}, message);
  }
};

/// The policy that "policy.NAME.…" means, and the length of that part of the text.
std::pair<TomlValue*, std::size_t> find_policy_table(TomlDocument& document,
                                                     const WrittenOverride& written) {
  const std::string& text = written.text;
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
    const std::size_t length = kPolicyPrefix.size() + name->text.size() + 1;
    if (length > best_length && text.starts_with(std::string(kPolicyPrefix) + name->text + ".")) {
      best = &policy;
      best_length = length;
    }
  }
  if (best == nullptr) {
    const std::string rest = text.substr(kPolicyPrefix.size());
    const std::string named(trimmed(rest.substr(0, rest.find_first_of(".="))));
    if (std::ranges::find(names, named) != names.end()) {
      written.fail(fmt::format("name a key of the policy: policy.{}.KEY=VALUE", named));
    }
    written.fail(unknown_name("policy", named, names));
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

void set_value(TomlValue& target, const std::string& option, const Setting& setting) {
  const std::string key = target.key;
  const TomlPlace key_place = target.key_place;
  target = setting.value();
  target.key = key;
  target.key_place = key_place;
  mark_override(target, option, setting);
}

Setting read_setting(TomlDocument& document, const WrittenOverride& written) {
  const std::string& text = written.text;
  if (!is_utf8(text)) {
    WrittenOverride{written.option, printable(text)}.fail("not UTF-8");
  }
  // Names of policies may hold '='.
  const std::size_t begin =
      text.starts_with(kPolicyPrefix) ? find_policy_table(document, written).second : 0;
  const std::size_t equals = text.find('=', begin);
  if (equals == std::string::npos) {
    written.fail("expected key=value, as in ddp.bucket_cap=50 MiB");
  }
  return {std::string(trimmed(text.substr(0, equals))),
          std::string(trimmed(text.substr(equals + 1)))};
}

void apply(TomlDocument& document, const std::string& option, const Setting& setting);

/// "parallel=hsdp" stands for several keys.
void apply_sharding(TomlDocument& document, const std::string& option, const Setting& setting) {
  std::vector<std::pair<std::string, std::string>> keys;
  try {
    keys = sharding_settings(setting.value().text);
  } catch (const InputError& error) {
    WrittenOverride{option, setting.text()}.fail(error.what());
  }
  for (const auto& [key, text] : keys) {
    apply(document, option, Setting(key, text));
  }
}

void apply(TomlDocument& document, const std::string& option, const Setting& setting) {
  if (setting.key() == kParallel && setting.value().kind == TomlValue::Kind::Text) {
    apply_sharding(document, option, setting);
    return;
  }
  const WrittenOverride written{option, setting.text()};
  TomlValue* table = &document.root;
  std::size_t begin = 0;
  if (setting.key().starts_with(kPolicyPrefix)) {
    std::tie(table, begin) = find_policy_table(document, written);
  }
  std::string rest(trimmed(setting.key().substr(std::min(begin, setting.key().size()))));
  constexpr std::ptrdiff_t kMostDots = 100;
  if (std::ranges::count(rest, '.') > kMostDots) {
    written.fail(fmt::format("more than {} dots in the key", kMostDots));
  }
  for (;;) {
    const std::size_t dot = rest.find('.');
    const std::string key = rest.substr(0, dot);
    if (key.empty()) {
      written.fail("a part of the key is empty; expected key=value");
    }
    const bool is_new = table->find(key) == nullptr;
    TomlValue& next = member(*table, key);
    if (dot == std::string::npos) {
      set_value(next, option, setting);
      return;
    }
    if (next.kind != TomlValue::Kind::Table) {
      written.fail(fmt::format("'{}' is no table: it has no keys below it", printable(key)));
    }
    if (is_new) {
      mark_override(next, option, setting);
    }
    table = &next;
    rest = rest.substr(dot + 1);
  }
}

/// A placement that is set replaces the counts in the file, unless these are set as well.
void drop_replaced_counts(TomlValue& root) {
  TomlValue* const cluster = root.find("cluster");
  const auto is_set = [&](const char* key) {
    const TomlValue* const value = cluster->find(key);
    return value != nullptr && !value->override_key.empty();
  };
  if (cluster != nullptr && is_set("placement") && !is_set("ranks") && !is_set("ranks_per_node")) {
    std::erase_if(cluster->children, [](const TomlValue& value) {
      return value.key == "ranks" || value.key == "ranks_per_node";
    });
  }
}

/// A rule of the buckets that is set replaces the caps in the file that mean nothing to it.
void drop_replaced_caps(TomlValue& root) {
  TomlValue* const ddp = root.find("ddp");
  const TomlValue* const rule = ddp != nullptr ? ddp->find("bucket_rule") : nullptr;
  if (rule == nullptr || rule->override_key.empty() || rule->text == "pytorch") {
    return;
  }
  const bool has_cap = rule->text == "before_cap";
  std::erase_if(ddp->children, [&](const TomlValue& value) {
    return value.override_key.empty() &&
           (value.key == "first_bucket_cap" || value.key == "bucket_caps" ||
            (value.key == "bucket_cap" && !has_cap));
  });
}

/// A kind of parallelism that is set replaces the keys in the file that mean nothing to it: those
/// of other kinds, and DDP's shards.
void drop_replaced_shards(TomlValue& root) {
  TomlValue* const parallel = root.find(kParallel);
  const TomlValue* const kind = parallel != nullptr ? parallel->find("kind") : nullptr;
  const auto known = std::ranges::find_if(parallelisms(), [&](const Parallelism* one) {
    return kind != nullptr && one->name() == kind->text;
  });
  if (known == parallelisms().end() || kind->override_key.empty()) {
    return;
  }
  const std::vector<OwnKey> keys = (*known)->keys();
  std::erase_if(parallel->children, [&](const TomlValue& value) {
    return value.override_key.empty() && value.key != "kind" &&
           std::ranges::find(keys, value.key, &OwnKey::name) == keys.end();
  });
  TomlValue* const ddp = root.find("ddp");
  if (ddp != nullptr && (*known)->name() != "ddp") {
    std::erase_if(ddp->children, [](const TomlValue& value) {
      return value.override_key.empty() && value.key == "zero_stage";
    });
  }
}

}  // namespace

std::vector<Setting> apply_texts(TomlDocument& document,
                                 std::span<const std::string> texts,
                                 const std::string& option) {
  std::vector<Setting> settings;
  for (const std::string& text : texts) {
    settings.push_back(read_setting(document, {option, text}));
    apply(document, option, settings.back());
  }
  return settings;
}

void apply_settings(TomlDocument& document, const StudySettings& study) {
  for (const Setting& setting : study.set) {
    apply(document, study.option, setting);
  }
}

void drop_replaced_keys(TomlDocument& document) {
  drop_replaced_counts(document.root);
  drop_replaced_caps(document.root);
  drop_replaced_shards(document.root);
}

}  // namespace stepsim
