#include "sim/report/sweep_report.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"
#include "costmodel/terminal/table.h"
#include "sim/report/csv.h"
#include "sim/report/notes.h"
#include "sim/report/number_text.h"

namespace stepsim {

namespace {

constexpr const char* kBucketCap = "ddp.bucket_cap";

bool sweeps_bucket_cap(const std::vector<SweepAxis>& axes) {
  return std::ranges::any_of(axes, [](const SweepAxis& axis) { return axis.key == kBucketCap; });
}

double throughput(const SweepPoint& point) {
  return point.prediction.summary.useful_tokens_per_s();
}

bool fits(const SweepPoint& point) {
  return !point.prediction.out_of_memory;
}

/// Why a point is not the best: the part of the step that takes most more time.
std::string largest_part(const SweepPoint& point, const SweepPoint& best) {
  const PredictionSummary& here = point.prediction.summary;
  const PredictionSummary& there = best.prediction.summary;
  const std::pair<const char*, double> parts[] = {
      {"data", here.data_ms - there.data_ms},
      {"forward", here.forward_ms - there.forward_ms},
      {"backward", here.backward_ms - there.backward_ms},
      {"exposed communication", here.exposed_communication_ms - there.exposed_communication_ms},
      {"optimizer and copies", here.optimizer_ms - there.optimizer_ms}};
  const auto* largest =
      std::max_element(std::begin(parts), std::end(parts), [](const auto& a, const auto& b) {
        return a.second < b.second;
      });
  return largest->second > 0.002 * there.step_time_ms.mean ? largest->first : "";
}

/// Why a bucket size is not the best: what its exposed communication is made of.
std::string bucket_cap_reason(const SweepPoint& point, const SweepPoint& best) {
  const PredictionSummary& here = point.prediction.summary;
  const PredictionSummary& there = best.prediction.summary;
  const double excess = here.exposed_communication_ms + here.optimizer_ms -
                        there.exposed_communication_ms - there.optimizer_ms;
  if (excess <= 0.002 * there.step_time_ms.mean) {
    return "";
  }
  // More time on the wire than at the best point: many messages, each below full bandwidth.
  const double wire = here.communication_ms - there.communication_ms;
  const double tail = point.last_bucket_ms - best.last_bucket_ms;
  if (wire >= tail) {
    return "latency-bound";
  }
  return here.overlap_fraction < 0.05 ? "no overlap" : "less overlap";
}

std::string reason(const SweepPoint& point, const SweepPoint& best, bool over_caps) {
  if (!fits(point)) {
    return "out of memory";
  }
  if (&point == &best) {
    return "best";
  }
  return over_caps ? bucket_cap_reason(point, best) : largest_part(point, best);
}

/// A step time above the shortest, of the largest that is; the shortest one shows as a mark, too.
double bar_share(double value, double low, double high) {
  constexpr double kMark = 1.0 / 21;
  return kMark + (1 - kMark) * (high > low ? (value - low) / (high - low) : 0);
}

/// "ddp.bucket_cap = 128 MiB"
std::string place_of(const std::vector<SweepAxis>& axes, const SweepPoint& point) {
  std::string text;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    text += fmt::format("{}{} = {}", i > 0 ? ", " : "", axes[i].key, point.labels[i]);
  }
  return text;
}

/// "113.803 ms", with the throughput where points do not have the same work in a step.
std::string time_of(const SweepPoint& point, const SweepReport& report) {
  const PredictionSummary& s = point.prediction.summary;
  const double tokens = s.useful_tokens_per_step;
  constexpr double kSame = 1e-6;
  const bool same = std::ranges::all_of(report.points, [&](const SweepPoint& other) {
    const double others = other.prediction.summary.useful_tokens_per_step;
    return std::abs(others - tokens) <= kSame * tokens;
  });
  return same ? fmt::format("{:.3f} ms", s.step_time_ms.mean)
              : fmt::format("{:.3f} ms for {:.0f} useful tokens", s.step_time_ms.mean, tokens);
}

}  // namespace

std::string sweep_headline(const std::vector<SweepAxis>& axes, const SweepReport& report) {
  const SweepPoint& best = report.points[report.best];
  const std::string time = time_of(best, report);
  return fmt::format("Best: {}, {} a step; {} takes {}, {:.1f} % slower{}.",
                     place_of(axes, best),
                     time,
                     report.reference_name,
                     time_of(report.reference, report),
                     report.gap * 100,
                     time.ends_with("tokens") ? " for each token" : "");
}

SweepReport sweep_report(const Scenario& scenario,
                         const std::vector<SweepAxis>& axes,
                         const SweepOptions& options) {
  SweepReport report;
  report.points = sweep(scenario, axes, options);
  for (std::size_t i = 0; i < report.points.size(); ++i) {
    const SweepPoint& best = report.points[report.best];
    const bool faster = throughput(report.points[i]) > throughput(best);
    if (fits(report.points[i]) > fits(best) || (fits(report.points[i]) == fits(best) && faster)) {
      report.best = i;
    }
  }
  const bool cap = axes.size() == 1 && sweeps_bucket_cap(axes);
  report.reference_name = cap ? "DDP's default of 25 MiB" : "the scenario as it stands";
  SweepOptions one = options;
  one.on_progress = {};
  std::vector<SweepAxis> reference_axes;
  if (cap) {
    reference_axes.push_back({kBucketCap, {std::to_string(kDefaultBucketCapBytes)}, {"25 MiB"}});
  }
  report.reference = sweep(scenario, reference_axes, one).front();
  report.gap = throughput(report.points[report.best]) / throughput(report.reference) - 1;
  return report;
}

std::string sweep_text(const Scenario& scenario,
                       const std::vector<SweepAxis>& axes,
                       const SweepReport& report,
                       const Screen& screen) {
  double low = 0;
  double high = 0;
  for (const SweepPoint& point : report.points) {
    const double ms = point.prediction.summary.step_time_ms.mean;
    low = low == 0 ? ms : std::min(low, ms);
    high = std::max(high, ms);
  }
  const SweepPoint& best = report.points[report.best];
  std::vector<std::string> header = mapped(axes, &SweepAxis::key);
  for (const char* name : {"step ms",
                           "vs best",
                           "useful tokens/s",
                           "memory GiB",
                           "buckets",
                           "collectives ms",
                           "exposed ms",
                           "overlap"}) {
    header.emplace_back(name);
  }
  const bool over_caps = axes.size() == 1 && sweeps_bucket_cap(axes);
  if (over_caps) {
    header.emplace_back("last bucket ms");
  }
  header.emplace_back("why");
  Table table(header);
  std::vector<double> shares;
  std::vector<std::string> plain;
  for (const SweepPoint& point : report.points) {
    const PredictionSummary& s = point.prediction.summary;
    std::vector<std::string> row = point.labels;
    row.push_back(fmt::format("{:.3f}", s.step_time_ms.mean));
    row.push_back(signed_percent(throughput(best) / throughput(point) - 1));
    row.push_back(fmt::format("{:.0f}", s.useful_tokens_per_s()));
    row.push_back(fmt::format("{:.1f}", s.peak_memory_mib / 1024));
    row.push_back(std::to_string(point.buckets));
    row.push_back(fmt::format("{:.3f}", s.communication_ms));
    row.push_back(fmt::format("{:.3f}", s.exposed_communication_ms));
    row.push_back(fmt::format("{:.0f} %", s.overlap_fraction * 100));
    if (over_caps) {
      row.push_back(fmt::format("{:.3f}", point.last_bucket_ms));
    }
    row.push_back(reason(point, best, over_caps));
    table.add(row, &point == &best ? Paint::Good : fits(point) ? Paint::Plain : Paint::Bad);
    shares.push_back(bar_share(s.step_time_ms.mean, low, high));
    plain.push_back(bar_text(shares.back(), 21, {}));
  }
  table.add_bars(
      screen.is_terminal() ? "step ms above the shortest" : "", shares, std::move(plain));
  std::string text = fmt::format("{}: policy {}, {} ranks, profile {}\n\n{}\n",
                                 scenario.name,
                                 best.prediction.policy,
                                 scenario.ranks,
                                 best.prediction.profile,
                                 table.text(screen));
  text += fmt::format("best: {} ({} a step)\n", place_of(axes, best), time_of(best, report));
  text += fmt::format("gap:  {} takes {}, {:.1f} % slower{} than the best\n",
                      report.reference_name,
                      time_of(report.reference, report),
                      report.gap * 100,
                      time_of(best, report).ends_with("tokens") ? " for each token" : "");
  for (const std::string& warning : note_texts(best.prediction)) {
    text += "warning: " + warning + "\n";
  }
  return text;
}

Json sweep_json(const std::vector<SweepAxis>& axes, const SweepReport& report) {
  Json points = Json::array();
  for (const SweepPoint& point : report.points) {
    Json values = Json::object();
    for (std::size_t i = 0; i < axes.size(); ++i) {
      values[axes[i].key] = point.labels[i];
    }
    const PredictionSummary& s = point.prediction.summary;
    points.push_back(
        {{"values", values},
         {"step_ms", s.step_time_ms.mean},
         {"useful_tokens_per_s", s.useful_tokens_per_s()},
         {"useful_tokens_per_step", s.useful_tokens_per_step},
         {"buckets", point.buckets},
         {"communication_ms", s.communication_ms},
         {"exposed_communication_ms", s.exposed_communication_ms},
         {"overlap_fraction", s.overlap_fraction},
         {"last_bucket_ms", point.last_bucket_ms},
         {"peak_memory_mib", s.peak_memory_mib},
         {"out_of_memory",
          point.prediction.out_of_memory ? out_of_memory_text(*point.prediction.out_of_memory)
                                         : ""},
         {"warnings", note_texts(point.prediction)}});
  }
  return {{"format", "stepsim-sweep/1"},
          {"points", std::move(points)},
          {"best", report.best},
          {"reference",
           {{"name", report.reference_name},
            {"step_ms", report.reference.prediction.summary.step_time_ms.mean},
            {"useful_tokens_per_step", report.reference.prediction.summary.useful_tokens_per_step},
            {"gap", report.gap}}}};
}

std::string sweep_csv(const std::vector<SweepAxis>& axes, const SweepReport& report) {
  std::string text;
  for (const SweepAxis& axis : axes) {
    text += csv_field(axis.key) + ",";
  }
  text +=
      "step_ms,useful_tokens_per_s,buckets,communication_ms,exposed_communication_ms,"
      "overlap_fraction,last_bucket_ms,peak_memory_mib\n";
  for (const SweepPoint& point : report.points) {
    for (const std::string& label : point.labels) {
      text += csv_field(label) + ",";
    }
    const PredictionSummary& s = point.prediction.summary;
    text += fmt::format("{},{},{},{},{},{},{},{}\n",
                        s.step_time_ms.mean,
                        s.useful_tokens_per_s(),
                        point.buckets,
                        s.communication_ms,
                        s.exposed_communication_ms,
                        s.overlap_fraction,
                        point.last_bucket_ms,
                        s.peak_memory_mib);
  }
  return text;
}

}  // namespace stepsim
