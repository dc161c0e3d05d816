#include "calibrate/import/kineto/kineto_report.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "calibrate/import/kineto/kineto_parts.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/io/json_optional.h"
#include "costmodel/terminal/table.h"

namespace stepsim {
namespace {

constexpr double kMicrosecond = 1e-3;  // Microseconds in a nanosecond.
constexpr double kMillisecond = 1e-6;

double median_of(std::vector<std::int64_t> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return static_cast<double>(*middle);
}

std::string size_text(const std::optional<std::int64_t>& bytes) {
  return bytes ? format_bytes(Bytes(*bytes)) : "?";
}

/// How many steps a trace has, and their numbers.
std::string steps_text(const KinetoTrace& trace) {
  if (trace.steps.empty()) {
    return "-";
  }
  const std::int64_t first = trace.steps.front().number;
  const std::int64_t last = trace.steps.back().number;
  return first == last ? fmt::format("1 ({})", first)
                       : fmt::format("{} ({} .. {})", trace.steps.size(), first, last);
}

std::string step_time_text(const KinetoTrace& trace) {
  const std::vector<std::int64_t> lengths =
      mapped(trace.steps, [](const KinetoStep& step) { return step.span.duration_ns; });
  return lengths.empty() ? "-" : fmt::format("{:.3f}", median_of(lengths) * kMillisecond);
}

Table ranks_table(std::span<const KinetoTrace> traces, const KinetoMatches& matches) {
  Table table({"rank", "steps", "step ms", "collectives", "GPU ops", "left out", "trace"});
  for (std::size_t t = 0; t < traces.size(); ++t) {
    const KinetoTrace& trace = traces[t];
    table.add({std::to_string(matches.ranks[t]),
               steps_text(trace),
               step_time_text(trace),
               std::to_string(trace.collectives.size()),
               std::to_string(trace.ops.size()),
               std::to_string(trace.without_launch),
               printable(trace.file)});
  }
  return table;
}

/// One line for all collectives of a kind, size and element type.
struct Kin {
  std::vector<std::int64_t> transfers;
  std::int64_t shortest = INT64_MAX;
  std::int64_t longest = 0;
  bool complete = true;
};

void append_collectives(const KinetoMatches& matches, const Screen& screen, std::string* text) {
  using Key = std::tuple<std::string, std::optional<std::int64_t>, std::string, bool>;
  std::map<Key, Kin> lines;
  for (const KinetoMatch& match : matches.matches) {
    Kin& kin = lines[{match.kind, match.bytes, match.dtype, match.bucket}];
    kin.transfers.push_back(match.transfer_ns);
    kin.shortest = std::min(kin.shortest, match.shortest_ns);
    kin.longest = std::max(kin.longest, match.longest_ns);
    kin.complete = kin.complete && match.complete;
  }
  Table table({"collective", "size", "type", "DDP", "count", "recorded us", "transfer us"});
  for (const auto& [key, kin] : lines) {
    const auto& [kind, bytes, dtype, bucket] = key;
    table.add(
        {printable(kind),
         size_text(bytes),
         dtype.empty() ? "?" : printable(dtype),
         bucket ? "bucket" : "",
         std::to_string(kin.transfers.size()),
         fmt::format("{:.1f} .. {:.1f}",
                     static_cast<double>(kin.shortest) * kMicrosecond,
                     static_cast<double>(kin.longest) * kMicrosecond),
         fmt::format(
             "{}{:.1f}", kin.complete ? "" : "<= ", median_of(kin.transfers) * kMicrosecond)});
  }
  *text += "\n" + table.text(screen) +
           "recorded: kernel times of all ranks, waiting included; transfer: earliest end - latest "
           "start over the ranks, the median\n";
}

/// Bytes of the buckets of one step, in the order of launches; unknown ones are left out.
std::vector<std::int64_t> buckets_of(const KinetoTrace& trace, int step) {
  std::vector<std::int64_t> sizes;
  for (const KinetoCollective& one : trace.collectives) {
    if (one.bucket && one.step == step && one.bytes) {
      sizes.push_back(*one.bytes);
    }
  }
  return sizes;
}

void append_buckets(const KinetoTrace& trace, std::string* text) {
  std::vector<std::int64_t> shown;
  for (std::size_t s = 0; s < trace.steps.size(); ++s) {
    const auto sizes = buckets_of(trace, static_cast<int>(s));
    if (!sizes.empty() && sizes != shown) {
      fmt::format_to(std::back_inserter(*text),
                     "DDP buckets from step {} on, bytes in order: {}\n",
                     trace.steps[s].number,
                     fmt::join(sizes, ", "));
      shown = sizes;
    }
  }
}

struct ClassTotal {
  std::int64_t count = 0;
  std::int64_t total_ns = 0;
};

enum class Counted { All, InSteps };

std::array<ClassTotal, kKinetoClasses> totals_of(const KinetoTrace& trace, Counted counted) {
  std::array<ClassTotal, kKinetoClasses> totals{};
  for (const KinetoOp& op : trace.ops) {
    if (counted == Counted::InSteps && op.step < 0) {
      continue;
    }
    ClassTotal& total = totals[static_cast<std::size_t>(op.kind)];
    ++total.count;
    total.total_ns += op.span.duration_ns;
  }
  return totals;
}

/// Compute by class: of a step where traces have steps, else of a whole trace, which nobody
/// divided.
void append_compute(std::span<const KinetoTrace> traces, const Screen& screen, std::string* text) {
  const bool stepped =
      std::ranges::any_of(traces, [](const KinetoTrace& trace) { return !trace.steps.empty(); });
  std::array<ClassTotal, kKinetoClasses> sums{};
  double parts = 0;  // Steps, or whole traces.
  double all = 0;
  for (const KinetoTrace& trace : traces) {
    if (stepped && trace.steps.empty()) {
      continue;
    }
    parts += stepped ? static_cast<double>(trace.steps.size()) : 1;
    const auto totals = totals_of(trace, stepped ? Counted::InSteps : Counted::All);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i].count += totals[i].count;
      sums[i].total_ns += totals[i].total_ns;
      all += static_cast<double>(totals[i].total_ns);
    }
  }
  if (all <= 0) {
    return;
  }
  Table table(
      {"compute", stepped ? "ops per step" : "ops", stepped ? "ms per step" : "ms", "share"});
  std::vector<double> shares;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const auto total = static_cast<double>(sums[i].total_ns);
    if (sums[i].count > 0) {
      table.add({std::string(name_of(static_cast<KinetoClass>(i))),
                 fmt::format("{:.1f}", static_cast<double>(sums[i].count) / parts),
                 fmt::format("{:.3f}", total * kMillisecond / parts),
                 fmt::format("{:.1f} %", 100 * total / all)});
      shares.push_back(total / all);
    }
  }
  table.add_bars("", std::move(shares), {});
  *text += fmt::format("\n{}{}; classes by the names of kernels\n",
                       table.text(screen),
                       stepped ? "per step and rank" : "of the whole trace, a rank");
}

/// A step that had work for the GPU.
struct StepLine {
  int rank = 0;
  std::int64_t number = 0;
  KinetoStepTime time;
};

std::vector<StepLine> gpu_steps(std::span<const KinetoTrace> traces, const KinetoMatches& matches) {
  std::vector<StepLine> lines;
  for (std::size_t t = 0; t < traces.size(); ++t) {
    auto times = kineto_step_times(traces[t]);
    for (std::size_t s = 0; s < times.size(); ++s) {
      if (times[s].window_ns > 0) {
        lines.push_back({matches.ranks[t], traces[t].steps[s].number, std::move(times[s])});
      }
    }
  }
  return lines;
}

/// Whether any step has operations in this part.
bool is_marked(const std::vector<StepLine>& steps, std::size_t part) {
  return std::ranges::any_of(
      steps, [part](const StepLine& step) { return step.time.parts[part].ops > 0; });
}

void append_parts(const std::vector<StepLine>& steps, const Screen& screen, std::string* text) {
  constexpr std::size_t kMaxLines = 12;
  const auto ms = [](std::int64_t ns) {
    return fmt::format("{:.3f}", static_cast<double>(ns) * kMillisecond);
  };
  const auto part = [&](const KinetoStepTime& time, std::size_t number) {
    return is_marked(steps, number) ? ms(time.parts[number].busy_ns) : std::string("?");
  };
  Table table({"rank",
               "step",
               "forward",
               "backward",
               "optimizer",
               "rest",
               "collectives",
               "at once",
               "idle"});
  for (std::size_t i = 0; i < std::min(steps.size(), kMaxLines); ++i) {
    const KinetoStepTime& time = steps[i].time;
    const double idle = static_cast<double>(time.idle_ns()) / static_cast<double>(time.window_ns);
    table.add({std::to_string(steps[i].rank),
               std::to_string(steps[i].number),
               part(time, 0),
               part(time, 1),
               part(time, 2),
               part(time, 3),
               ms(time.collective_ns),
               ms(time.both_ns),
               fmt::format("{:.1f} %", 100 * idle)});
  }
  *text += "\nGPU busy, ms, with what each part of a step launched\n" + table.text(screen);
  if (steps.size() > kMaxLines) {
    *text += fmt::format("{} more: --json\n", steps.size() - kMaxLines);
  }
  *text +=
      "collectives with the wait; at once: compute and collectives; idle: neither, between the "
      "step's first and last GPU work\n";
}

void append_times(const std::vector<StepLine>& steps, std::string* text) {
  // Old traces name no passes: nothing was launched in a part that nobody marked.
  const auto middle = [&steps](std::size_t part) {
    const std::vector<std::int64_t> busy =
        mapped(steps, [&](const StepLine& step) { return step.time.parts[part].busy_ns; });
    return is_marked(steps, part) ? fmt::format("\"{:.3f} ms\"", median_of(busy) * kMillisecond)
                                  : std::string("unknown (not marked in the trace)");
  };
  *text += fmt::format(
      "[times] of a scenario with this batch, medians: forward = {}, backward = {}, optimizer = "
      "{}\n",
      middle(0),
      middle(1),
      middle(2));
}

/// Appends when the buckets of the last step that has any were ready.
void append_ready_times(const KinetoTrace& trace, int rank, std::string* text) {
  const auto times = kineto_step_times(trace);
  const auto last = std::find_if(times.rbegin(), times.rend(), [](const KinetoStepTime& time) {
    return !time.buckets.empty();
  });
  if (last == times.rend()) {
    return;
  }
  const std::vector<std::string> ready =
      mapped(last->buckets, [](const KinetoStepTime::Bucket& bucket) {
        return fmt::format("{:.2f}", static_cast<double>(bucket.ready_ns) * kMillisecond);
      });
  fmt::format_to(
      std::back_inserter(*text),
      "buckets ready after the backward pass began on the GPU, ms (rank {}, step {}): {}\n",
      rank,
      trace.steps[static_cast<std::size_t>(times.rend() - last - 1)].number,
      fmt::join(ready, ", "));
}

Json span_json(const KinetoSpan& span, std::int64_t zero) {
  return {{"start_us", static_cast<double>(span.start_ns - zero) * kMicrosecond},
          {"duration_us", static_cast<double>(span.duration_ns) * kMicrosecond}};
}

Json collective_json(const KinetoTrace& trace, const KinetoCollective& one, std::int64_t zero) {
  Json json = {{"kind", one.kind},
               {"bytes", or_null(one.bytes)},
               {"elements", or_null(one.elements)},
               {"dtype", one.dtype},
               {"group", one.group},
               {"bucket", one.bucket}};
  json["step"] =
      one.step < 0 ? Json(nullptr) : Json(trace.steps[static_cast<std::size_t>(one.step)].number);
  json.update(span_json(one.span, zero));
  json["launch_us"] = static_cast<double>(one.launch.span.start_ns - zero) * kMicrosecond;
  json["ready_us"] =
      one.ready_ns ? Json(static_cast<double>(*one.ready_ns - zero) * kMicrosecond) : Json(nullptr);
  return json;
}

Json gpu_json(const KinetoStepTime& time) {
  const auto us = [](std::int64_t ns) { return static_cast<double>(ns) * kMicrosecond; };
  Json json = Json::object();
  constexpr std::array<const char*, kKinetoParts> kNames = {
      "forward", "backward", "optimizer", "rest"};
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const KinetoPartTime& part = time.parts[i];
    json[kNames[i]] = {
        {"ops", part.ops}, {"busy_us", us(part.busy_ns)}, {"elapsed_us", us(part.elapsed_ns)}};
  }
  json["compute_us"] = us(time.compute_ns);
  json["collectives_us"] = us(time.collective_ns);
  json["at_once_us"] = us(time.both_ns);
  json["idle_us"] = us(time.idle_ns());
  json["buckets"] = mapped(time.buckets, [us](const KinetoStepTime::Bucket& bucket) -> Json {
    return {{"bytes", or_null(bucket.bytes)}, {"ready_us", us(bucket.ready_ns)}};
  });
  return json;
}

Json rank_json(const KinetoTrace& trace, int rank, std::int64_t zero) {
  Json json = {{"rank", rank},
               {"file", trace.file},
               {"world_size", or_null(trace.header.world_size)},
               {"backend", trace.header.backend},
               {"device", trace.header.device},
               {"events", trace.events},
               {"without_launch", trace.without_launch},
               {"steps", Json::array()},
               {"collectives", Json::array()},
               {"compute", Json::array()},
               {"warnings", trace.warnings}};
  const auto times = kineto_step_times(trace);
  for (std::size_t s = 0; s < times.size(); ++s) {
    Json row = {{"number", trace.steps[s].number}};
    row.update(span_json(trace.steps[s].span, zero));
    row["gpu"] = gpu_json(times[s]);
    json["steps"].push_back(std::move(row));
  }
  for (const KinetoCollective& one : trace.collectives) {
    json["collectives"].push_back(collective_json(trace, one, zero));
  }
  const auto totals = totals_of(trace, Counted::All);
  for (std::size_t i = 0; i < totals.size(); ++i) {
    if (totals[i].count > 0) {
      json["compute"].push_back(
          {{"class", name_of(static_cast<KinetoClass>(i))},
           {"ops", totals[i].count},
           {"total_us", static_cast<double>(totals[i].total_ns) * kMicrosecond}});
    }
  }
  return json;
}

Json match_json(const KinetoMatch& match) {
  return {{"kind", match.kind},
          {"bytes", or_null(match.bytes)},
          {"group", match.group},
          {"step", match.step < 0 ? Json(nullptr) : Json(match.step)},
          {"index", match.index},
          {"ranks", match.ranks},
          {"complete", match.complete},
          {"bucket", match.bucket},
          {"transfer_us", static_cast<double>(match.transfer_ns) * kMicrosecond},
          {"skew_us", static_cast<double>(match.skew_ns) * kMicrosecond},
          {"end_spread_us", static_cast<double>(match.end_spread_ns) * kMicrosecond},
          {"shortest_us", static_cast<double>(match.shortest_ns) * kMicrosecond},
          {"longest_us", static_cast<double>(match.longest_ns) * kMicrosecond}};
}

/// Start of the first step of all ranks, or of the first event that was kept.
std::int64_t zero_of(std::span<const KinetoTrace> traces) {
  std::optional<std::int64_t> zero;
  const auto take = [&zero](std::int64_t time) { zero = std::min(zero.value_or(time), time); };
  for (const KinetoTrace& trace : traces) {
    if (!trace.steps.empty()) {
      take(trace.steps.front().span.start_ns);
    } else if (!trace.collectives.empty()) {
      take(trace.collectives.front().launch.span.start_ns);
    }
  }
  return zero.value_or(0);
}

}  // namespace

std::string kineto_report(std::span<const KinetoTrace> traces,
                          const KinetoMatches& matches,
                          const Screen& screen) {
  std::string text = ranks_table(traces, matches).text(screen);
  if (!matches.matches.empty()) {
    append_collectives(matches, screen, &text);
    append_buckets(traces.front(), &text);
    append_ready_times(traces.front(), matches.ranks.front(), &text);
  }
  if (const auto steps = gpu_steps(traces, matches); !steps.empty()) {
    append_parts(steps, screen, &text);
    append_times(steps, &text);
  }
  append_compute(traces, screen, &text);
  text += '\n';
  const auto say = [&text](const std::string& what, const std::string& message) {
    text += what + ": " + message + "\n";
  };
  for (std::size_t t = 0; t < traces.size(); ++t) {
    for (const std::string& warning : traces[t].warnings) {
      say("warning", fmt::format("rank {}: {}", matches.ranks[t], warning));
    }
  }
  for (const std::string& warning : matches.warnings) {
    say("warning", warning);
  }
  for (const std::string& one : matches.unmatched) {
    say("unmatched", one);
  }
  say("note", "the profiler slows the host; its steps are longer than those without it");
  return text;
}

Json kineto_json(std::span<const KinetoTrace> traces, const KinetoMatches& matches) {
  const std::int64_t zero = zero_of(traces);
  Json json = {{"format", "stepsim-kineto-import/1"},
               {"ranks", Json::array()},
               {"matches", Json::array()},
               {"unmatched", matches.unmatched},
               {"warnings", matches.warnings}};
  for (std::size_t t = 0; t < traces.size(); ++t) {
    json["ranks"].push_back(rank_json(traces[t], matches.ranks[t], zero));
  }
  for (const KinetoMatch& match : matches.matches) {
    json["matches"].push_back(match_json(match));
  }
  return json;
}

}  // namespace stepsim
