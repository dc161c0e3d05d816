#include "calibrate/import/torch_records/flight_report.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "calibrate/samples/statistics.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/io/json_optional.h"
#include "costmodel/terminal/table.h"

namespace stepsim {
namespace {

std::string ranks_text(std::span<const FlightDump> dumps,
                       std::span<const FlightSteps> steps,
                       const Screen& screen) {
  Table table({"rank", "collectives", "a step", "steps", "step ms", "shortest", "longest"});
  for (std::size_t d = 0; d < dumps.size(); ++d) {
    const std::vector<double>& ms = steps[d].step_ms;
    const auto number = [](double value) { return fmt::format("{:.2f}", value); };
    const bool known = !ms.empty();
    table.add({std::to_string(dumps[d].rank),
               std::to_string(dumps[d].entries.size()),
               known ? std::to_string(steps[d].period) : "?",
               known ? std::to_string(ms.size()) : "?",
               known ? number(median(ms)) : "?",
               known ? number(*std::ranges::min_element(ms)) : "?",
               known ? number(*std::ranges::max_element(ms)) : "?"});
  }
  return table.text(screen) +
         "step: from one step's first collective to the next one's, by launches; the median\n";
}

/// The median time from a step's first collective to each of its collectives, in milliseconds.
double launched_after(const FlightDump& dump, const FlightSteps& steps, std::size_t place) {
  std::vector<double> ms;
  for (std::size_t i = steps.first; i + steps.period <= dump.entries.size(); i += steps.period) {
    ms.push_back(
        static_cast<double>(dump.entries[i + place].created_ns - dump.entries[i].created_ns) *
        1e-6);
  }
  return median(ms);
}

std::string step_text(const FlightDump& dump, const FlightSteps& steps, const Screen& screen) {
  Table table({"collective", "group", "kind", "bytes", "after ms"});
  for (std::size_t place = 0; place < steps.period; ++place) {
    const FlightEntry& entry = dump.entries[steps.first + place];
    table.add({std::to_string(place),
               printable(entry.group),
               printable(entry.kind),
               entry.bytes ? std::to_string(*entry.bytes) : "?",
               fmt::format("{:.2f}", launched_after(dump, steps, place))});
  }
  return fmt::format(
      "\na step of rank {}:\n{}after: its launch after the step's first one, in the "
      "median\n",
      dump.rank,
      table.text(screen));
}

std::vector<FlightSteps> all_steps(std::span<const FlightDump> dumps) {
  return mapped(dumps, flight_steps);
}

std::string skew_text(const FlightSkew& skew) {
  std::string text;
  if (skew.matched > 0) {
    std::string last;
    for (const auto& [rank, times] : skew.last) {
      last += fmt::format("{}rank {} in {}", last.empty() ? "" : ", ", rank, times);
    }
    text += fmt::format(
        "\nskew: ranks launched the same collective {:.2f} ms apart in the median, {:.2f} ms at "
        "most ({} collectives; came last: {})\n"
        "note: dumps do not say hosts; between hosts the difference of clocks is in the skew\n",
        skew.median_ms,
        skew.longest_ms,
        skew.matched,
        last);
  }
  if (!skew.parted.empty()) {
    text += "warning: the ranks part at " + skew.parted + "\n";
  }
  return text;
}

}  // namespace

std::string flight_report(std::span<const FlightDump> dumps, const Screen& screen) {
  const std::vector<FlightSteps> steps = all_steps(dumps);
  std::string text = ranks_text(dumps, steps, screen);
  const auto known =
      std::ranges::find_if(steps, [](const FlightSteps& one) { return !one.step_ms.empty(); });
  if (known != steps.end()) {
    text += step_text(dumps[static_cast<std::size_t>(known - steps.begin())], *known, screen);
  } else {
    text += "note: no sequence of collectives repeats three times at the end: steps are not told\n";
  }
  text += skew_text(flight_skew(dumps, steps));
  if (dumps.size() == 1) {
    text += "note: dumps of all ranks tell their skew, too\n";
  }
  return text +
         "\nnext: a dump holds no batch and no compute: record some dozens of steps with "
         "stepsim_recorder.py, then stepsim advise RUN.jsonl\n";
}

Json flight_json(std::span<const FlightDump> dumps) {
  const std::vector<FlightSteps> steps = all_steps(dumps);
  const FlightSkew skew = flight_skew(dumps, steps);
  Json json = {{"format", "stepsim-flight-recorder/1"}, {"ranks", Json::array()}};
  for (std::size_t d = 0; d < dumps.size(); ++d) {
    Json rank = {{"rank", dumps[d].rank},
                 {"file", dumps[d].file},
                 {"version", dumps[d].version},
                 {"collectives", dumps[d].entries.size()},
                 {"step_ms", steps[d].step_ms},
                 {"step", Json::array()}};
    for (std::size_t place = 0; place < steps[d].period; ++place) {
      const FlightEntry& entry = dumps[d].entries[steps[d].first + place];
      rank["step"].push_back({{"group", entry.group},
                              {"kind", entry.kind},
                              {"bytes", or_null(entry.bytes)},
                              {"after_ms", launched_after(dumps[d], steps[d], place)}});
    }
    json["ranks"].push_back(std::move(rank));
  }
  json["skew"] = {{"matched", skew.matched},
                  {"median_ms", skew.median_ms},
                  {"longest_ms", skew.longest_ms},
                  {"last", Json::object()},
                  {"parted", skew.parted}};
  for (const auto& [rank, times] : skew.last) {
    json["skew"]["last"][std::to_string(rank)] = times;
  }
  return json;
}

}  // namespace stepsim
