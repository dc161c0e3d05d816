#include "calibrate/samples/samples.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include <nlohmann/json.hpp>

#include "calibrate/samples/sample_log.h"
#include "calibrate/samples/statistics.h"
#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

/// Share of the repetitions of a step or a collective left out as hiccups of the machine.
constexpr double kSlowestLeftOut = 0.01;

/// Every measured step over the median of its batch shape.
std::vector<double> step_ratios(const SampleLog& log) {
  std::vector<double> ratios;
  for (const PointLog& point : log.points()) {
    const double center = point.step_seconds.empty() ? 0 : median(point.step_seconds);
    for (const double seconds : point.step_seconds) {
      if (center > 0) {
        ratios.push_back(seconds / center);
      }
    }
  }
  return ratios;
}

/// What the medians of a step's ops must be multiplied with to add up to the median step.
double to_median_step(const PointLog& point) {
  double sum = 0;
  for (const auto& [op, seconds] : point.op_seconds) {
    sum += median(seconds) * point.op_runs.at(op) / static_cast<double>(point.step_seconds.size());
  }
  return sum > 0 ? median(point.step_seconds) / sum : 1;
}

/// How much longer a step is on average than at its median, all batch shapes together: what holds
/// single steps up is in the mean of a training, too. 1 where nothing was measured.
double mean_over_median(const SampleLog& log) {
  const std::vector<double> ratios = step_ratios(log);
  return ratios.empty() ? 1 : trimmed_mean(ratios, kSlowestLeftOut);
}

OpSample op_sample(const SampleLog& log, std::size_t op, const PointLog& point, double factor) {
  const std::vector<double>& seconds = point.op_seconds.at(op);
  OpSample sample;
  sample.op = log.ops()[op];
  sample.batch = point.batch;
  sample.seconds = factor * median(seconds);
  sample.p20 = factor * quantile(seconds, 0.2);
  sample.p80 = factor * quantile(seconds, 0.8);
  sample.repetitions = static_cast<int>(seconds.size());
  sample.per_step = point.op_runs.at(op) / static_cast<double>(seconds.size());
  return sample;
}

CollectiveSample imported_sample(const ImportedSize& size, const std::vector<ImportedTime>& times) {
  std::vector<double> fastest;
  std::vector<double> differences;
  for (const ImportedTime& time : times) {
    fastest.push_back(
        std::min(time.out_of_place_us.value_or(HUGE_VAL), time.in_place_us.value_or(HUGE_VAL)));
    if (time.out_of_place_us && time.in_place_us) {
      differences.push_back(std::abs(*time.out_of_place_us - *time.in_place_us) / fastest.back());
    }
  }
  const auto& [kind, ranks, nodes, bytes] = size;
  const double middle = median(fastest);
  const double spread = (quantile(fastest, 0.8) - quantile(fastest, 0.2)) / 2 / middle;
  return {kind,
          ranks,
          nodes,
          bytes,
          middle * 1e-6,
          differences.empty() ? spread : median(differences),
          static_cast<int>(times.size()),
          {},
          false};
}

/// Text up to and with its last newline.
std::string_view whole_lines(std::string_view text) {
  const std::size_t end = text.rfind('\n');
  return text.substr(0, end == std::string_view::npos ? 0 : end + 1);
}

}  // namespace

SampleFile read_sample_file(const std::string& path, std::vector<std::string>* warnings) {
  const std::string text = read_text(path);
  std::string_view rest = whole_lines(text);
  if (text.find_first_not_of(" \t\r\n") != std::string::npos && text.starts_with("{") &&
      rest.substr(0, rest.find('\n')).find('}') == std::string_view::npos) {
    throw InputError(
        SourcePlace{path, 1},
        "is JSON over several lines, and not a samples file of stepcal measure or import");
  }
  SampleFile file;
  file.whole_bytes = rest.size();
  if (rest.size() < text.size() && warnings != nullptr) {
    warnings->push_back(path + ": the last line is cut off; it is left out");
  }
  int number = 0;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const Json line = parse_json(std::string(rest.substr(0, end)), path, ++number);
    rest.remove_prefix(end + 1);
    if (number > 1) {
      file.log.add(line, path, number);
      continue;
    }
    JsonReader reader(line, path, number, "");
    reader.require_format("stepsim-samples/1");
    if (reader.has("plan")) {
      file.plan = measure_plan_from_json(reader.get("plan"), path, number);
    }
    file.header = line;
  }
  if (number == 0) {
    throw InputError({path, 1, 0, ""},
                     "no whole line: not a samples file of stepcal measure or import");
  }
  return file;
}

SampleSet combine_samples(const SampleLog& log) {
  SampleSet set;
  const double to_mean = mean_over_median(log);
  std::vector<double> factors;
  for (const PointLog& point : log.points()) {
    factors.push_back(to_mean * to_median_step(point));
    set.jitter.push_back({point.batch, point.step_seconds});
  }
  for (std::size_t op = 0; op < log.ops().size(); ++op) {
    for (std::size_t i = 0; i < log.points().size(); ++i) {
      const PointLog& point = log.points()[i];
      if (point.op_seconds.count(op) > 0) {
        set.ops.push_back(op_sample(log, op, point, factors[i]));
      }
    }
  }
  for (const auto& [measured, seconds] : log.measured()) {
    const auto& [kind, ranks, nodes, bytes] = measured.first;
    const double mean = trimmed_mean(seconds, kSlowestLeftOut);
    const double spread = quantile(seconds, 0.8) - quantile(seconds, 0.2);
    set.collectives.push_back({kind,
                               ranks,
                               nodes,
                               bytes,
                               mean,
                               mean > 0 ? spread / 2 / mean : 0,
                               static_cast<int>(seconds.size()),
                               seconds,
                               measured.second});
  }
  for (const auto& [size, times] : log.imported()) {
    set.collectives.push_back(imported_sample(size, times));
  }
  set.imports = log.imports();
  set.overlaps = log.overlaps();
  set.sentinels = log.sentinels();
  set.refused = log.refused();
  set.hosts = log.hosts();
  set.meetings = log.meetings();
  set.unit_hosts = log.unit_hosts();
  set.disturbed = log.disturbed();
  return set;
}

SampleSet read_samples(const std::string& path, std::vector<std::string>* warnings) {
  const SampleFile file = read_sample_file(path, warnings);
  SampleSet set = combine_samples(file.log);
  set.header = file.header;
  set.plan = file.plan;
  return set;
}

}  // namespace stepsim
