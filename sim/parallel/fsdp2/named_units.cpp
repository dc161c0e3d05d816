#include "sim/parallel/fsdp2/named_units.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/trimmed.h"

namespace stepsim {
namespace {

bool is_inside(std::string_view name, std::string_view module) {
  return name.size() > module.size() && name[module.size()] == '.' && name.starts_with(module);
}

std::string with_slashes(std::string_view name) {
  std::string path(name);
  std::ranges::replace(path, '.', '/');
  return path;
}

/// A name without what stands before it in the model is near as well: "layers.*" and
/// "model.layers.*".
[[noreturn]] void fail_unknown(const std::string& pattern, std::span<const std::string> modules) {
  const std::vector<std::string> known = without_numbers(modules);
  const std::string part = without_numbers(std::vector<std::string>{pattern}).front();
  const auto longer = std::ranges::find_if(
      known, [&](const std::string& name) { return name.ends_with("." + part); });
  if (longer == known.end()) {
    std::vector<std::string> all = {"blocks", "ends", "model"};
    all.insert(all.end(), known.begin(), known.end());
    throw InputError(unknown_name("module", pattern, all));
  }
  throw InputError("unknown module '{}'; did you mean '{}'? known: {}",
                   printable(pattern),
                   *longer,
                   fmt::join(known, ", "));
}

/// The modules that a pattern means. Raises InputError: none.
std::vector<std::string> matches_of(const std::string& pattern,
                                    std::span<const std::string> modules) {
  std::vector<std::string> matches;
  for (const std::string& module : modules) {
    if (matches_module(pattern, module)) {
      matches.push_back(module);
    }
  }
  if (matches.empty()) {
    fail_unknown(pattern, modules);
  }
  return matches;
}

/// One call of all modules that an entry means.
NamedUnit joined_unit(const std::vector<std::string>& patterns,
                      std::span<const std::string> modules) {
  std::vector<std::string> all;
  for (const std::string& pattern : patterns) {
    for (std::string& match : matches_of(pattern, modules)) {
      if (std::ranges::find(all, match) == all.end()) {
        all.push_back(std::move(match));
      }
    }
  }
  NamedUnit unit;
  std::ranges::copy_if(all, std::back_inserter(unit.modules), [&](const std::string& module) {
    return std::ranges::none_of(all,
                                [&](const std::string& other) { return is_inside(module, other); });
  });
  unit.name = fmt::format("{}", fmt::join(unit.modules, " + "));
  return unit;
}

void check_once(std::span<const NamedUnit> units) {
  std::map<std::string, const NamedUnit*> unit_of;
  for (const NamedUnit& unit : units) {
    for (const std::string& module : unit.modules) {
      const auto [found, is_new] = unit_of.emplace(module, &unit);
      if (!is_new) {
        throw InputError(
            "the parameters of '{}' are in two units, '{}' and '{}'; fully_shard takes a module "
            "once, so name it in one of them",
            printable(module),
            printable(found->second->entry),
            printable(unit.entry));
      }
    }
  }
}

}  // namespace

std::vector<std::string> module_names(std::span<const std::string> tensors) {
  std::vector<std::string> names;
  std::set<std::string, std::less<>> known;
  for (const std::string& tensor : tensors) {
    for (std::size_t dot = tensor.find('.'); dot != std::string::npos;
         dot = tensor.find('.', dot + 1)) {
      const std::string module = tensor.substr(0, dot);
      if (known.insert(module).second) {
        names.push_back(module);
      }
    }
  }
  return names;
}

bool matches_module(const std::string& pattern, std::string_view name) {
  return fnmatch(with_slashes(pattern).c_str(), with_slashes(name).c_str(), FNM_PATHNAME) == 0;
}

std::vector<std::string> parts_of_list(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    const std::string_view all = text;
    parts.emplace_back(trimmed(all.substr(begin, end - begin)));
    if (parts.back().empty()) {
      throw InputError(
          "an empty entry in '{}'; ';' stands between units and '+' between modules of one unit, "
          "as in \"layers.*; norm + lm_head\"",
          printable(text));
    }
    begin = end + 1;
  }
  return parts;
}

std::vector<std::string> without_numbers(std::span<const std::string> names) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  std::vector<std::string> result;
  for (const std::string& name : names) {
    std::string shown;
    for (std::size_t i = 0; i < name.size(); ++i) {
      const std::size_t end = std::min(name.find('.', i), name.size());
      const bool starts_part = i == 0 || name[i - 1] == '.';
      if (starts_part && end > i && std::all_of(&name[i], &name[0] + end, is_digit)) {
        shown += '*';
        i = end - 1;
      } else {
        shown += name[i];
      }
    }
    if (std::ranges::find(result, shown) == result.end()) {
      result.push_back(std::move(shown));
    }
  }
  return result;
}

std::vector<NamedUnit> named_units(const std::string& text, std::span<const std::string> modules) {
  std::vector<NamedUnit> units;
  for (const std::string& entry : parts_of_list(text, ';')) {
    const std::vector<std::string> patterns = parts_of_list(entry, '+');
    if (patterns.size() > 1) {
      units.push_back(joined_unit(patterns, modules));
      units.back().entry = entry;
      continue;
    }
    for (std::string& module : matches_of(entry, modules)) {
      units.push_back({module, {module}, entry});
    }
  }
  check_once(units);
  return units;
}

int unit_around(std::span<const NamedUnit> units, std::string_view name) {
  int innermost = -1;
  std::size_t length = 0;
  for (std::size_t i = 0; i < units.size(); ++i) {
    for (const std::string& module : units[i].modules) {
      if ((name == module || is_inside(name, module)) && module.size() >= length) {
        innermost = static_cast<int>(i);
        length = module.size();
      }
    }
  }
  return innermost;
}

}  // namespace stepsim
