#include "costmodel/records/step_time_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>
#include <tuple>

#include <fmt/format.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/quantile.h"
#include "costmodel/io/csv_table.h"

namespace stepsim {
namespace {

constexpr std::int64_t kMostSamples = std::int64_t{1} << 40;
constexpr double kMillisecond = 1e-3;

constexpr std::array<std::string_view, 23> kColumns = {
    "placement", "nodes",     "ranks",         "gpus",         "batch",        "local_batch",
    "length",    "length_sd", "tokens",        "repeats",      "step_s",       "step_ms",
    "sync_s",    "sync_ms",   "backward_s",    "backward_ms",  "data_s",       "data_ms",
    "sd_s",      "sd_ms",     "samples_per_s", "tokens_per_s", "micro_batches"};

using Column = std::optional<CsvTable::Column>;

/// A column of times and its unit in seconds.
struct TimeColumn {
  Column column;
  double unit = 1;
};

class StepTimeReader {
 public:
  explicit StepTimeReader(const std::string& path)
      : table_(path),
        placement_(table_.find("placement")),
        nodes_(table_.find("nodes")),
        ranks_(either("ranks", "gpus")),
        batch_(either("batch", "local_batch")),
        micro_batches_(table_.find("micro_batches")),
        length_(table_.find("length")),
        length_sd_(table_.find("length_sd")),
        tokens_(table_.find("tokens")),
        repeats_(table_.find("repeats")),
        step_(times("step")),
        sync_(times("sync")),
        backward_(times("backward")),
        data_(times("data")),
        sd_(times("sd")),
        samples_per_s_(table_.find("samples_per_s")),
        tokens_per_s_(table_.find("tokens_per_s")) {
    const bool placed = placement_ || (nodes_ && ranks_);
    require(placed, "placement", "where the step ran: \"4\" is one node, \"1+2\" two");
    require(batch_.has_value(), "batch", "the samples of one rank's batch");
    require(step_.column || samples_per_s_ || tokens_per_s_,
            "step_s",
            "the mean step in seconds, or step_ms, or samples_per_s or tokens_per_s of all ranks "
            "together");
    require(!tokens_per_s_ || length_ || tokens_,
            "length",
            "with tokens_per_s, what samples are padded to, or tokens of a rank's batch");
  }

  [[nodiscard]] StepTimeTable read() const {
    StepTimeTable result;
    result.path = table_.path();
    result.has_lengths = length_ || tokens_;
    result.has_micro_batches = micro_batches_.has_value();
    for (std::size_t row = 0; row < table_.rows(); ++row) {
      result.rows.push_back(read_row(row));
    }
    for (const std::string_view name : table_.columns()) {
      if (std::ranges::find(kColumns, name) == kColumns.end()) {
        result.ignored.emplace_back(name);
      }
    }
    if (result.rows.empty()) {
      throw InputError(SourcePlace{table_.path()}, "holds no rows");
    }
    check_unit(result);
    check_contradictions(result);
    return result;
  }

 private:
  /// The column of either name; both may not be there, since one of them would not be read.
  [[nodiscard]] Column either(std::string_view name, std::string_view other) const {
    const Column found = table_.find(name);
    const Column second = table_.find(other);
    if (found && second) {
      throw InputError(
          SourcePlace{table_.path(), 1},
          fmt::format(
              "has the columns '{}' and '{}', which say the same; leave one out", name, other));
    }
    return found ? found : second;
  }

  /// The column of these times, in seconds or milliseconds.
  [[nodiscard]] TimeColumn times(const std::string& name) const {
    const Column found = either(name + "_s", name + "_ms");
    return {found, table_.find(name + "_s") ? 1 : kMillisecond};
  }

  void require(bool found, std::string_view name, std::string_view what) const {
    if (!found) {
      throw InputError(
          SourcePlace{table_.path(), 1},
          fmt::format(
              "no column '{}': {}; known columns: {}", name, what, fmt::join(kColumns, ", ")));
    }
  }

  [[nodiscard]] bool has(std::size_t row, Column column) const {
    return column && !table_.text(row, *column).empty();
  }

  [[nodiscard]] double seconds(std::size_t row, const TimeColumn& times) const {
    return to_seconds(table_.duration(row, *times.column, times.unit));
  }

  [[nodiscard]] std::optional<double> optional_seconds(std::size_t row,
                                                       const TimeColumn& times) const {
    return has(row, times.column) ? std::optional(seconds(row, times)) : std::nullopt;
  }

  /// A part of the step; it cannot be longer than the step.
  [[nodiscard]] std::optional<double> part(std::size_t row,
                                           const TimeColumn& times,
                                           double step_s) const {
    const std::optional<double> value = optional_seconds(row, times);
    if (value && *value > step_s) {
      table_.fail(row, *times.column, fmt::format("longer than the step, {:g} s", step_s));
    }
    return value;
  }

  [[nodiscard]] Placement stated_placement(std::size_t row) const {
    try {
      return parse_placement(table_.text(row, *placement_));
    } catch (const InputError& error) {
      table_.fail(row, *placement_, error.what());
    }
  }

  /// The row's placement; its nodes and ranks, where they are stated too, are the same.
  [[nodiscard]] Placement placement(std::size_t row) const {
    if (has(row, placement_)) {
      Placement placement = stated_placement(row);
      const auto agree = [&](Column column, int count, const char* what) {
        if (has(row, column) && table_.integer(row, *column, 1, kMaxPlacedRanks) != count) {
          table_.fail(
              row, *column, fmt::format("placement {} has {} {}", text_of(placement), count, what));
        }
      };
      agree(nodes_, placement.nodes(), "nodes");
      agree(ranks_, placement.ranks(), "ranks");
      return placement;
    }
    if (!nodes_ || !ranks_) {
      table_.fail(row, *placement_, "empty; expected the ranks of each node, as 1+2");
    }
    const auto nodes = static_cast<int>(table_.integer(row, *nodes_, 1, kMaxPlacedRanks));
    const auto ranks = static_cast<int>(table_.integer(row, *ranks_, 1, kMaxPlacedRanks));
    if (ranks < nodes) {
      table_.fail(row, *ranks_, fmt::format("{} ranks do not fill {} nodes", ranks, nodes));
    }
    std::vector<int> dealt(static_cast<std::size_t>(nodes), ranks / nodes);
    for (int node = 0; node < ranks % nodes; ++node) {
      ++dealt[static_cast<std::size_t>(node)];
    }
    return Placement(std::move(dealt));
  }

  [[nodiscard]] std::int64_t length(std::size_t row, std::int64_t batch) const {
    if (length_) {
      const std::int64_t length = table_.integer(row, *length_, 1, kMostSamples);
      const auto tokens =
          has(row, tokens_) ? table_.integer(row, *tokens_, 1, kMostSamples) : std::int64_t{0};
      if (tokens > 0 && (tokens % length != 0 || tokens / length != batch)) {
        table_.fail(row,
                    *tokens_,
                    fmt::format("{} samples padded to {} have other tokens; expected the padded "
                                "tokens of one rank's batch",
                                batch,
                                length));
      }
      return length;
    }
    if (!tokens_) {
      return 1;
    }
    const std::int64_t tokens = table_.integer(row, *tokens_, 1, kMostSamples);
    if (tokens % batch != 0) {
      table_.fail(row,
                  *tokens_,
                  fmt::format("no multiple of the batch, {}; expected padded tokens", batch));
    }
    return tokens / batch;
  }

  /// What a step takes by a throughput of all ranks together; absent where the cell is empty.
  [[nodiscard]] std::optional<double> by_throughput(std::size_t row,
                                                    Column column,
                                                    double of_step) const {
    constexpr double kMost = 1e15;
    if (!has(row, column)) {
      return std::nullopt;
    }
    const double per_second = table_.real(row, *column, 0, kMost);
    if (!(per_second > 0)) {
      table_.fail(row, *column, "a throughput is more than 0");
    }
    return of_step / per_second;
  }

  /// The step, stated or by throughputs. Where a row has several of them, they agree.
  [[nodiscard]] double step_seconds(std::size_t row, const StepTimeRow& read) const {
    constexpr double kApart = 1.05;  // Throughputs are often rounded, and counted without pauses.
    const double samples = static_cast<double>(read.batch * read.micro_batches) *
                           static_cast<double>(read.placement.ranks());
    std::optional<double> step = optional_seconds(row, step_);
    if (step && !(*step > 0)) {
      table_.fail(row, *step_.column, "a step takes more than 0");
    }
    for (const auto& [column, of_step] :
         {std::pair(samples_per_s_, samples),
          std::pair(tokens_per_s_, samples * static_cast<double>(read.length))}) {
      const std::optional<double> by = by_throughput(row, column, of_step);
      if (step && by && (*by > kApart * *step || *step > kApart * *by)) {
        table_.fail(row,
                    *column,
                    fmt::format("of {:g} a step that is {:g} s, and the row says {:g} s elsewhere; "
                                "expected that of all ranks together, tokens with padding",
                                of_step,
                                *by,
                                *step));
      }
      step = step ? step : by;
    }
    if (!step) {
      const Column missing = step_.column     ? step_.column
                             : samples_per_s_ ? samples_per_s_
                                              : tokens_per_s_;
      table_.fail(row, *missing, "empty; expected the step's time or a throughput");
    }
    return *step;
  }

  [[nodiscard]] StepTimeRow read_row(std::size_t row) const {
    StepTimeRow result;
    result.line = table_.line(row);
    result.placement = placement(row);
    result.batch = table_.integer(row, *batch_, 1, kMostSamples);
    if (has(row, micro_batches_)) {
      constexpr std::int64_t kMost = 1 << 16;
      result.micro_batches = table_.integer(row, *micro_batches_, 1, kMost);
    }
    result.length = length(row, result.batch);
    if (has(row, length_sd_)) {
      // More would make the shortest batches vanish.
      const auto most = static_cast<double>(result.length) / 2;
      result.length_sd = table_.real(row, *length_sd_, 0, most);
    }
    result.step_s = step_seconds(row, result);
    result.sync_s = part(row, sync_, result.step_s);
    result.backward_s = part(row, backward_, result.step_s);
    result.data_s = part(row, data_, result.step_s);
    result.sd_s = optional_seconds(row, sd_);
    if (has(row, repeats_)) {
      result.repeats = table_.integer(row, *repeats_, 1, kMostSamples);
    }
    return result;
  }

  void check_unit(const StepTimeTable& result) const {
    constexpr double kLongestStep = 100;
    const std::vector<double> steps = mapped(result.rows, &StepTimeRow::step_s);
    const double middle = quantile(steps, 0.5);
    if (middle > kLongestStep && step_.column && step_.unit == 1) {
      throw InputError(SourcePlace{table_.path(), 1},
                       fmt::format("the median step takes {:g} s; if these are "
                                   "milliseconds, call the column step_ms",
                                   middle));
    }
  }

  void check_contradictions(const StepTimeTable& result) const {
    constexpr double kApart = 1.3;
    std::map<std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t>, const StepTimeRow*>
        first;
    for (const StepTimeRow& row : result.rows) {
      const auto [known, is_new] = first.try_emplace(
          {text_of(row.placement), row.batch, row.micro_batches, row.length}, &row);
      const double ratio = row.step_s / known->second->step_s;
      if (!is_new && (ratio > kApart || ratio < 1 / kApart)) {
        throw InputError(SourcePlace{table_.path(), row.line},
                         fmt::format("{} takes {:g} s here and {:g} s in line {}: they contradict "
                                     "each other; time it again, or leave one out",
                                     configuration_of(row, result.has_lengths),
                                     row.step_s,
                                     known->second->step_s,
                                     known->second->line));
      }
    }
  }

  CsvTable table_;
  Column placement_;
  Column nodes_;
  Column ranks_;
  Column batch_;
  Column micro_batches_;
  Column length_;
  Column length_sd_;
  Column tokens_;
  Column repeats_;
  TimeColumn step_;
  TimeColumn sync_;
  TimeColumn backward_;
  TimeColumn data_;
  TimeColumn sd_;
  Column samples_per_s_;
  Column tokens_per_s_;
};

}  // namespace

std::int64_t common_micro_batches(const StepTimeTable& table) {
  const std::int64_t first = table.rows.front().micro_batches;
  const bool common = std::ranges::all_of(
      table.rows, [&](const StepTimeRow& row) { return row.micro_batches == first; });
  return common ? first : 1;
}

StepTimeTable read_step_times(const std::string& path) {
  return StepTimeReader(path).read();
}

std::string configuration_of(const StepTimeRow& row, bool with_length) {
  const std::string batch =
      with_length ? fmt::format("{} x {}", row.batch, row.length) : fmt::format("{}", row.batch);
  const std::string micro =
      row.micro_batches > 1 ? fmt::format(", {} micro-batches", row.micro_batches) : "";
  return fmt::format("{}, batch {}{}", text_of(row.placement), batch, micro);
}

}  // namespace stepsim
