#include "calibrate/import/recorded/recorded_compiles.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "calibrate/fit/nnls.h"
#include "calibrate/import/recorded/recorded_meetings.h"
#include "calibrate/import/recorded/recorded_stalls.h"
#include "calibrate/samples/statistics.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"

namespace stepsim {
namespace {

/// A step of all ranks: its run, repeat and number.
using StepKey = std::tuple<std::size_t, int, int>;

/// A row beside what others of its size take.
struct SizedRow {
  const StepRecord* record = nullptr;
  StepKey step;
  double forward_excess = 0;   ///< Milliseconds.
  double backward_excess = 0;  ///< The optimizer's, which may be compiled, is in it.
  double longest = 0;          ///< Times that a pass took what others of its size take.
};

/// What a record says of torch.compile.
struct CompiledHeader {
  bool wrapped = false;            ///< The model was in its wrapper.
  bool by_older_recorder = false;  ///< Which did not find DDP in it.
  std::optional<CompileMode> mode;
};

CompiledHeader compiled_header(const RunRecord& record) {
  const Json& training = *record.training;
  CompiledHeader header;
  if (!training.is_object()) {
    return header;
  }
  for (const Json& one : training.value("wrappers", Json::array())) {
    const std::string name = one.is_string() ? one.get<std::string>() : "";
    if (name.starts_with("OptimizedModule")) {
      header.wrapped = true;
      if (name.find("dynamic=") != std::string::npos) {
        header.mode = name.find("dynamic=True") != std::string::npos ? CompileMode::Dynamic
                                                                     : CompileMode::Static;
      }
    }
  }
  const Json model = training.value("model", Json::object());
  const Json name = model.is_object() ? model.value("name", Json()) : Json();
  header.by_older_recorder = name == "OptimizedModule";
  header.wrapped = header.wrapped || header.by_older_recorder;
  return header;
}

/// The rows that have a batch, by all runs.
std::vector<SizedRow> sized_rows_of(const RecordedRun& run, std::size_t number) {
  std::vector<SizedRow> rows;
  for (const StepRecord& record : run.record.steps) {
    if (record.samples > 0) {
      rows.push_back({&record, {number, record.repeat, record.step}});
    }
  }
  return rows;
}

/// [row] when the last rank of its step ended its forward, on the record's clock.
std::map<StepKey, double> last_forwards(std::span<const SizedRow> rows) {
  std::map<StepKey, double> ends;
  for (const SizedRow& row : rows) {
    double& end = ends.try_emplace(row.step, 0.0).first->second;
    const StepRecord& record = *row.record;
    end = std::max(end, record.start_ms + record.data_ms + record.forward_ms);
  }
  return ends;
}

/// Fills in what passes take beyond others of their size.
void add_excess(std::vector<SizedRow>& rows) {
  constexpr double kLeast = 0.25;  // Of the median: what a fit expects of the smallest batches.
  DistinctRows sizes(3, rows.size());
  for (const SizedRow& row : rows) {
    sizes.add(size_features(*row.record));
  }
  const std::map<StepKey, double> ends = last_forwards(rows);
  const auto pass = [&](double StepRecord::*time, double SizedRow::*excess, bool waits) {
    const auto times = mapped(rows, [&](const SizedRow& row) { return row.record->*time; });
    const std::vector<double> left = robust_excess(sizes, times);
    const double usual = median(times);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const StepRecord& record = *rows[i].record;
      const double expected = std::max(times[i] - left[i], kLeast * usual);
      const double waited =
          waits ? ends.at(rows[i].step) - record.start_ms - record.data_ms - record.forward_ms : 0;
      const double own = std::max(0.0, times[i] - expected - std::max(0.0, waited));
      rows[i].*excess += own;
      if (expected > 0) {
        rows[i].longest = std::max(rows[i].longest, (own + expected) / expected);
      }
    }
  };
  pass(&StepRecord::forward_ms, &SizedRow::forward_excess, false);
  pass(&StepRecord::backward_ms, &SizedRow::backward_excess, true);
  pass(&StepRecord::optimizer_ms, &SizedRow::backward_excess, false);
}

/// The rows in which a rank compiled.
std::vector<SizedRow> compiling_rows(const RecordedRun& run, std::size_t number) {
  constexpr double kTimes = 20;
  // Where nothing says that the model was compiled. Libraries loaded on an H200 (2 s beside 80 ms)
  // are below, a transformer compiled on a CPU (70 s beside 150 ms) is above.
  constexpr double kUnnamedTimes = 100;
  constexpr std::size_t kFewest = 8;
  std::vector<SizedRow> rows = sized_rows_of(run, number);
  if (rows.size() < kFewest) {
    return {};
  }
  add_excess(rows);
  const CompiledHeader header = compiled_header(run.record);
  const bool marked = std::ranges::any_of(
      rows, [](const SizedRow& row) { return row.record->compiled_graphs > 0; });
  std::erase_if(rows, [&](const SizedRow& row) {
    if (marked) {
      return row.record->compiled_graphs == 0;
    }
    const bool warms_up = !header.wrapped && row.record->step < run.record.warmup_steps;
    return warms_up || row.longest < (header.wrapped ? kTimes : kUnnamedTimes);
  });
  return rows;
}

/// torch.compile's modes, the likeliest first; only that of the records where they say it.
std::vector<ShapeCost> possible_modes(std::span<const RecordedRun> runs) {
  std::vector<CompileMode> modes = {
      CompileMode::Automatic, CompileMode::Dynamic, CompileMode::Static};
  for (const RecordedRun& run : runs) {
    if (const auto mode = compiled_header(run.record).mode) {
      modes = {*mode};
    }
  }
  return mapped(modes, [](CompileMode mode) {
    ShapeCost cost;
    cost.mechanism = "compile";
    cost.compile = mode;
    return cost;
  });
}

/// The mode whose graphs are made in most of the recorded steps and in fewest others, and how many
/// rows it does not explain.
std::pair<ShapeCost, int> likeliest_mode(std::span<const RecordedRun> runs,
                                         std::span<const SizedRow> compiling) {
  const std::vector<ShapeCost> modes = possible_modes(runs);
  std::vector<RecordedRun> from_first(runs.begin(), runs.end());
  for (RecordedRun& run : from_first) {
    run.record.warmup_steps = 0;
  }
  std::set<std::pair<StepKey, int>> recorded;
  for (const SizedRow& row : compiling) {
    recorded.emplace(row.step, row.record->rank);
  }
  std::vector<int> wrong(modes.size());
  for (const MetStep& step : met_steps(from_first, modes)) {
    for (const MetRank& rank : step.ranks) {
      const bool compiled =
          recorded.count({{step.run, step.repeat, step.step}, rank.row->rank}) > 0;
      for (std::size_t mode = 0; mode < modes.size(); ++mode) {
        wrong[mode] += (rank.meetings[mode] > 0) != compiled ? 1 : 0;
      }
    }
  }
  const auto best = static_cast<std::size_t>(std::ranges::min_element(wrong) - wrong.begin());
  return {modes[best], wrong[best]};
}

/// The cost of a graph by the rows that made some.
void add_graph_seconds(std::span<const SizedRow> compiling, ShapeCost& cost) {
  constexpr double kLeastError = 0.2;  // Of a mechanism that nobody repeats.
  const double count = static_cast<double>(compiling.size());
  cost.forward_seconds = sum_of(compiling, &SizedRow::forward_excess) * 1e-3 / count;
  cost.backward_seconds = sum_of(compiling, &SizedRow::backward_excess) * 1e-3 / count;
  double squares = 0;
  for (const SizedRow& row : compiling) {
    const double off = (row.forward_excess + row.backward_excess) * 1e-3 - cost.seconds();
    squares += off * off;
  }
  const double of_mean = std::sqrt(squares) / count;
  cost.relative_error =
      cost.seconds() > 0 ? std::max(kLeastError, of_mean / cost.seconds()) : kLeastError;
}

const char* mode_words(CompileMode mode) {
  switch (mode) {
    case CompileMode::Static:
      return "a graph for each shape (dynamic=False)";
    case CompileMode::Dynamic:
      return "one graph for all shapes (dynamic=True)";
    case CompileMode::None:
    case CompileMode::Automatic:
      break;
  }
  return "a graph for the first shape and one when a size changes (automatic)";
}

/// The batches that were compiled for, each once.
std::string shapes_text(std::span<const SizedRow> compiling) {
  constexpr std::size_t kMost = 8;
  std::vector<std::string> shapes;
  for (const SizedRow& row : compiling) {
    const std::string shape = fmt::format("{} x {}", row.record->samples, row.record->max_length);
    if (std::ranges::find(shapes, shape) == shapes.end()) {
      shapes.push_back(shape);
    }
  }
  const std::size_t others = shapes.size() - std::min(shapes.size(), kMost);
  shapes.resize(shapes.size() - others);
  return fmt::format("{}{}",
                     fmt::join(shapes, ", "),
                     others > 0 ? fmt::format(" and {} others", others) : std::string());
}

std::string compiles_text(std::span<const RecordedRun> runs,
                          std::span<const SizedRow> compiling,
                          const ShapeCost& cost,
                          int unexplained) {
  std::map<StepKey, double> steps;  // The longest row of each.
  for (const SizedRow& row : compiling) {
    double& ms = steps.try_emplace(row.step, 0.0).first->second;
    ms = std::max(ms, row.record->step_ms);
  }
  std::set<StepKey> all;
  std::vector<double> others;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const StepRecord& row : runs[i].record.steps) {
      all.emplace(i, row.repeat, row.step);
      if (steps.count({i, row.repeat, row.step}) == 0) {
        others.push_back(row.step_ms);
      }
    }
  }
  const bool marked = compiling.front().record->compiled_graphs > 0;
  const auto [shortest, longest] =
      std::ranges::minmax(mapped(steps, [](const auto& step) { return step.second; }));
  return fmt::format(
      "compilation: {} of {} steps took {} (others {} in the median) {}, for batches of {} "
      "(samples "
      "x padded length): left out of the fit and priced as new shapes, {} a graph (forward {}, "
      "backward {}), {}{}. What lies in torch.compile's cache on disk takes less the next time",
      steps.size(),
      all.size(),
      steps.size() == 1
          ? format_duration(longest * 1e-3)
          : fmt::format(
                "{} to {}", format_duration(shortest * 1e-3), format_duration(longest * 1e-3)),
      others.empty() ? "-" : format_duration(median(others) * 1e-3),
      marked ? "while torch.compile made graphs"
             : "and are taken for those in which torch.compile made graphs",
      shapes_text(compiling),
      format_duration(cost.seconds()),
      format_duration(cost.forward_seconds),
      format_duration(cost.backward_seconds),
      mode_words(cost.compile),
      unexplained == 0
          ? ""
          : fmt::format("; shapes alone do not explain {} of the ranks' steps", unexplained));
}

}  // namespace

SteadyCompiled without_compiles(std::vector<RecordedRun> runs) {
  SteadyCompiled result;
  std::vector<SizedRow> compiling;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::vector<SizedRow> of_run = compiling_rows(runs[i], i);
    compiling.insert(compiling.end(), of_run.begin(), of_run.end());
    if (compiled_header(runs[i].record).by_older_recorder) {
      result.notes.push_back(printable(runs[i].file) +
                             ": an older recorder did not find DDP inside of torch.compile: its "
                             "settings and bucket times are not there, and defaults are assumed; "
                             "record again with this stepsim_recorder.py");
    }
  }
  if (compiling.empty()) {
    result.runs = std::move(runs);
    return result;
  }
  auto [cost, unexplained] = likeliest_mode(runs, compiling);
  add_graph_seconds(compiling, cost);
  std::set<StepKey> steps;
  for (const SizedRow& row : compiling) {
    steps.insert(row.step);
  }
  result.notes.push_back(compiles_text(runs, compiling, cost, unexplained));
  result.cost = std::move(cost);
  const auto compiles = [&](std::size_t run, const StepRecord& row) {
    return steps.count({run, row.repeat, row.step}) > 0;
  };
  bool some_are_left = true;  // Of each run; else the fit says that there are too few.
  for (std::size_t i = 0; i < runs.size(); ++i) {
    some_are_left =
        some_are_left && !std::ranges::all_of(runs[i].record.steps,
                                              [&](const auto& row) { return compiles(i, row); });
  }
  for (std::size_t i = 0; some_are_left && i < runs.size(); ++i) {
    std::erase_if(runs[i].record.steps, [&](const StepRecord& row) { return compiles(i, row); });
  }
  result.runs = std::move(runs);
  return result;
}

}  // namespace stepsim
