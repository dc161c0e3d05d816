#include <algorithm>
#include <functional>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "sim/scenario/tables.h"

namespace stepsim {
namespace {

/// A condition that the figure does not depend on is a mistake; one it cannot do without is
/// missing.
void check_conditions(const TomlReader& table, const TomlValue& value, const FigureInfo& info) {
  static const std::vector<std::string> kAlways = {"figure", "value", "source", "note"};
  const auto holds = [](const std::vector<std::string>& list, const std::string& key) {
    return std::ranges::find(list, key) != list.end();
  };
  for (const TomlValue& item : value.children) {
    if (!holds(kAlways, item.key) && !holds(info.keys, item.key)) {
      table.fail(item.key,
                 fmt::format("does not apply to figure '{}', which takes {}",
                             info.name,
                             fmt::join(info.keys, ", ")));
    }
  }
  for (const std::string& key : info.required) {
    (void)table.value(key);
  }
}

Quantity read_quantity(const TomlReader& table, const char* key, Dimension dimension) {
  return table.parsed(key,
                      [&](const std::string& text) { return parse_quantity(text, dimension); });
}

HookOptions read_hook_options(const TomlReader& table) {
  HookOptions options;
  options.start_iteration = 0;
  options.rank = static_cast<int>(table.integer_or("powersgd_rank", options.rank, 1, 1 << 20));
  options.topk_fraction = table.number_or("topk_fraction", options.topk_fraction);
  if (options.topk_fraction <= 0 || options.topk_fraction > 1) {
    table.fail("topk_fraction", "expected a share above 0 and up to 1");
  }
  return options;
}

PublishedFigure read_figure(const TomlReader& table, const TomlValue& value, const Scenario& s) {
  const FigureInfo& info =
      table.parsed("figure", [](const std::string& name) { return std::cref(figure_info(name)); });
  check_conditions(table, value, info);
  PublishedFigure figure;
  figure.kind = info.kind;
  figure.value = read_quantity(table, "value", info.dimension);
  figure.source = table.text_or("source", s.published.empty() ? "" : s.published.back().source);
  figure.note = table.text_or("note", "");
  figure.ranks = static_cast<int>(table.integer_or("ranks", s.ranks, 1, kMaxRanks));
  const std::int64_t counted =
      s.stated_parameters > 0 ? s.stated_parameters : parameter_count(s.model);
  figure.parameters = table.integer_or("parameters", counted, 1, kMaxParameters);
  if (table.has("bandwidth")) {
    figure.bytes_per_s = table.bandwidth("bandwidth");
    if (figure.bytes_per_s <= 0) {
      table.fail("bandwidth", "expected a bandwidth above 0");
    }
  }
  figure.zero_stage = static_cast<int>(table.integer_or("zero_stage", s.ddp.zero_stage, 0, 3));
  figure.optimizer_bytes = table.number_or("optimizer_bytes", s.optimizer_bytes_per_parameter);
  if (figure.optimizer_bytes < 0) {
    table.fail("optimizer_bytes", "a negative size; expected 0 or more bytes");
  }
  if (table.has("hook")) {
    figure.hook = table.parsed(
        "hook", [](const std::string& name) { return parse_communication_hook(name); });
  }
  figure.hook_options = read_hook_options(table);
  figure.bucket_cap = table.bytes_or("bucket_cap", s.ddp.bucket_cap);
  figure.samples = table.integer_or("samples", 0, 1, kMaxSampleLength);
  figure.length = table.integer_or("length", 0, 1, kMaxSampleLength);
  figure.row_length = table.integer_or("row_length", 0, 1, kMaxSampleLength);
  figure.accumulation_steps = static_cast<int>(
      table.integer_or("accumulation_steps", s.ddp.accumulation_steps, 1, kMaxSteps));
  if (table.has("speed")) {
    figure.speed = read_quantity(table, "speed", Dimension::Speed);
  }
  return figure;
}

}  // namespace

std::vector<Key> published_keys() {
  std::vector<Key> keys = {
      required(described("figure", "one of the table below", "")),
      required(described(
          "value",
          "as printed: `\"548 GB\"`, `\"0.31 s\"`, `\"28000\"`. It may be off by half of its last "
          "digit; with `~` in front by half of its second digit. Units are those of print (GB = "
          "1e9 bytes) or binary (GiB)",
          "")),
      described("source", "where it stands", "that of the entry before"),
      described("note", "why it is wrong", "none"),
  };
  for (const char* condition : {"ranks",
                                "parameters",
                                "bandwidth",
                                "zero_stage",
                                "optimizer_bytes",
                                "hook",
                                "powersgd_rank",
                                "topk_fraction",
                                "bucket_cap",
                                "samples",
                                "length",
                                "row_length",
                                "accumulation_steps",
                                "speed"}) {
    keys.push_back(described(condition, "", ""));
  }
  return keys;
}

void read_published(const TomlReader& root, Scenario& scenario) {
  if (!root.has("published")) {
    return;
  }
  for (const TomlValue& value : root.list("published")) {
    const TomlReader table(root.document(), value, "published");
    if (value.kind != TomlValue::Kind::Table) {
      table.fail("expected a table: [[published]]");
    }
    scenario.published.push_back(read_figure(table, value, scenario));
  }
}

}  // namespace stepsim
