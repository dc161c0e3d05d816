#include "sim/replay/launch_trace.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "sim/engine/program.h"

namespace stepsim {

namespace {

constexpr double kMicrosecond = 1e-6;
constexpr std::int64_t kMaxRanks = 100'000;

constexpr std::array<std::pair<std::string_view, CallType>, 6> kTypes = {{
    {"cpu", CallType::Cpu},
    {"gpu", CallType::Gpu},
    {"d2h", CallType::BlockingCopy},
    {"sync", CallType::Sync},
    {"nccl", CallType::Collective},
    {"end", CallType::End},
}};

CallType type_of(const CsvTable& table, std::size_t row, CsvTable::Column column) {
  std::vector<std::string> known;
  for (const auto& [name, type] : kTypes) {
    if (table.text(row, column) == name) {
      return type;
    }
    known.emplace_back(name);
  }
  table.fail(row, column, unknown_name("type", table.text(row, column), known));
}

/// Numbers the recording's streams for the engine, in the order in which they appear.
class StreamNumbers {
 public:
  std::uint8_t number(const CsvTable& table, std::size_t row, CsvTable::Column column) {
    if (table.text(row, column).empty()) {
      table.fail(row, column, "a row that uses the GPU must name its stream");
    }
    const std::string name(table.text(row, column));
    const auto found = std::ranges::find(names_, name);
    if (found == names_.end() && names_.size() == kStreams) {
      table.fail(row, column, fmt::format("more than {} streams are in use", kStreams));
    }
    const auto index = static_cast<std::uint8_t>(found - names_.begin());
    if (found == names_.end()) {
      names_.push_back(name);
    }
    return index;
  }

 private:
  std::vector<std::string> names_;
};

void read_ranks(const std::string& path, LaunchTrace& recording) {
  const CsvTable table(path);
  const auto rank = table.column("rank");
  const auto start = table.column("step_start_us");
  const auto measured = table.find("step_dur_us");
  const auto cut = table.find("cut");
  for (std::size_t row = 0; row < table.rows(); ++row) {
    if (table.integer(row, rank, 0, kMaxRanks) != static_cast<std::int64_t>(row)) {
      table.fail(row, rank, fmt::format("expected {}: ranks count from 0", row));
    }
    recording.start.push_back(table.time(row, start, kMicrosecond));
    recording.measured.emplace_back();
    recording.cut.push_back(cut && !table.text(row, *cut).empty() &&
                            table.integer(row, *cut, 0, 1) == 1);
    if (measured && !table.text(row, *measured).empty()) {
      const Duration step = table.duration(row, *measured, kMicrosecond);
      if (step == Duration::zero()) {
        table.fail(row, *measured, "must be above 0");
      }
      recording.measured.back() = step;
    }
  }
  if (recording.start.empty()) {
    throw InputError(SourcePlace{path}, "no ranks");
  }
  recording.rows.resize(recording.start.size());
}

void read_collectives(const std::string& path, StreamNumbers& streams, LaunchTrace& recording) {
  const CsvTable table(path);
  const auto number = table.column("collective");
  const auto producer = table.column("producer_stream");
  const auto transfer = table.column("fitted_D_us");
  const auto op = table.find("op");
  const auto bytes = table.find("bytes");
  for (std::size_t row = 0; row < table.rows(); ++row) {
    if (table.integer(row, number, 0, INT32_MAX) != static_cast<std::int64_t>(row)) {
      table.fail(row, number, fmt::format("expected {}: collectives count from 0", row));
    }
    LaunchCollective collective;
    if (!table.text(row, producer).empty()) {
      collective.producer = streams.number(table, row, producer);
    }
    if (!table.text(row, transfer).empty()) {
      collective.transfer = table.duration(row, transfer, kMicrosecond);
    }
    collective.op = op ? std::string(table.text(row, *op)) : "";
    if (bytes && !table.text(row, *bytes).empty()) {
      collective.bytes = table.integer(row, *bytes, 0, INT64_MAX);
    }
    recording.collectives.push_back(std::move(collective));
  }
}

/// Reads the rows of all ranks and makes the checks that a replay relies on.
class RowReader {
 public:
  RowReader(const CsvTable& table, StreamNumbers& streams, LaunchTrace& recording)
      : table_(table),
        streams_(streams),
        recording_(recording),
        rank_(table_.column("rank")),
        gap_(table_.column("gap_us")),
        host_(table_.column("cpu_dur_us")),
        type_(table_.column("type")),
        stream_(table_.column("stream")),
        work_(table_.column("gpu_dur_us")),
        waits_(table_.column("waits_collective")),
        waits_row_(table_.find("waits_row")),
        held_(table_.find("held_us")),
        collective_(table_.column("collective")),
        launched_(recording.rows.size()) {}

  void read() {
    for (std::size_t row = 0; row < table_.rows(); ++row) {
      add(row);
    }
    for (std::size_t r = 0; r < recording_.rows.size(); ++r) {
      if (recording_.rows[r].empty()) {
        throw InputError(SourcePlace{recording_.path}, "rank {} has no rows", r);
      }
      if (launched_[r].size() != recording_.order.size()) {
        throw InputError(SourcePlace{recording_.path},
                         "rank {} launches {} collectives where another rank launches "
                         "{}; that one would wait for ever",
                         r,
                         launched_[r].size(),
                         recording_.order.size());
      }
    }
  }

 private:
  void add(std::size_t row) {
    const auto ranks = static_cast<std::int64_t>(recording_.rows.size());
    const std::int64_t rank = table_.integer(row, rank_, 0, ranks - 1);
    std::vector<LaunchRow>& rows = recording_.rows[at(rank)];
    LaunchRow entry;
    entry.type = type_of(table_, row, type_);
    entry.gap = table_.signed_duration(row, gap_, kMicrosecond);
    entry.host = duration_or_zero(row, host_);
    if (!rows.empty() && rows.back().type == CallType::End) {
      table_.fail(row, type_, fmt::format("rank {} has already ended its step", rank));
    }
    check_gap(row, entry, rows);
    if (entry.type != CallType::Cpu && entry.type != CallType::End) {
      entry.stream = streams_.number(table_, row, stream_);
      entry.work = duration_or_zero(row, work_);
    }
    if (entry.type == CallType::Gpu || entry.type == CallType::BlockingCopy) {
      entry.waits_collective = awaited(row, launched_[at(rank)]);
      entry.waits_row = awaited_row(row, rows);
      entry.held = held_ ? duration_or_zero(row, *held_) : Duration::zero();
    }
    if (entry.type == CallType::Collective) {
      entry.collective = launch(row, launched_[at(rank)], rank);
    }
    rows.push_back(entry);
  }

  [[nodiscard]] Duration duration_or_zero(std::size_t row, CsvTable::Column column) const {
    return table_.text(row, column).empty() ? Duration::zero()
                                            : table_.duration(row, column, kMicrosecond);
  }

  /// Checks a gap: calls of two threads may overlap a little, but time does not run backwards.
  void check_gap(std::size_t row,
                 const LaunchRow& entry,
                 const std::vector<LaunchRow>& rows) const {
    const bool counts = !rows.empty() && rows.back().type != CallType::Sync &&
                        rows.back().type != CallType::BlockingCopy;
    const Duration before = counts ? rows.back().host : Duration::zero();
    if (entry.gap < -before) {
      table_.fail(row, gap_, "overlaps the previous call by more than that call took");
    }
  }

  [[nodiscard]] std::int32_t number_at(std::size_t row, CsvTable::Column column) const {
    const auto count = static_cast<std::int64_t>(recording_.collectives.size());
    const std::int64_t number = table_.integer(row, column, 0, INT32_MAX);
    if (number >= count) {
      table_.fail(row,
                  column,
                  fmt::format("unknown collective {}; collective_defs.csv has {}", number, count));
    }
    return static_cast<std::int32_t>(number);
  }

  [[nodiscard]] std::int32_t awaited(std::size_t row,
                                     const std::vector<std::int32_t>& launched) const {
    if (table_.text(row, waits_).empty()) {
      return -1;
    }
    const std::int32_t number = number_at(row, waits_);
    if (std::ranges::find(launched, number) == launched.end()) {
      table_.fail(row, waits_, fmt::format("this rank has not launched collective {} yet", number));
    }
    return number;
  }

  /// The row of this rank on another stream whose work has to end first.
  [[nodiscard]] std::int32_t awaited_row(std::size_t row,
                                         const std::vector<LaunchRow>& rows) const {
    if (!waits_row_ || table_.text(row, *waits_row_).empty()) {
      return -1;
    }
    const std::int64_t number = table_.integer(row, *waits_row_, 0, INT32_MAX);
    const bool is_work =
        number < std::ssize(rows) &&
        (rows[at(number)].type == CallType::Gpu || rows[at(number)].type == CallType::BlockingCopy);
    if (!is_work) {
      table_.fail(row,
                  *waits_row_,
                  fmt::format("row {} of this rank is no earlier row of type gpu or d2h", number));
    }
    return static_cast<std::int32_t>(number);
  }

  std::int32_t launch(std::size_t row, std::vector<std::int32_t>& launched, std::int64_t rank) {
    const std::int32_t number = number_at(row, collective_);
    if (std::ranges::find(launched, number) != launched.end()) {
      table_.fail(
          row, collective_, fmt::format("rank {} launches collective {} twice", rank, number));
    }
    const std::size_t position = launched.size();
    if (position == recording_.order.size()) {
      recording_.order.push_back(number);
    } else if (recording_.order[position] != number) {
      table_.fail(row,
                  collective_,
                  fmt::format("rank {} launches collective {} where another rank launches {}; they "
                              "would wait for ever",
                              rank,
                              number,
                              recording_.order[position]));
    }
    launched.push_back(number);
    return number;
  }

  const CsvTable& table_;
  StreamNumbers& streams_;
  LaunchTrace& recording_;
  CsvTable::Column rank_;
  CsvTable::Column gap_;
  CsvTable::Column host_;
  CsvTable::Column type_;
  CsvTable::Column stream_;
  CsvTable::Column work_;
  CsvTable::Column waits_;
  std::optional<CsvTable::Column> waits_row_;
  std::optional<CsvTable::Column> held_;
  CsvTable::Column collective_;
  std::vector<std::vector<std::int32_t>> launched_;  ///< [rank] collectives in order.
};

/// Reads when the collectives' kernels ran, if the recording says so.
void read_kernels(const std::string& path, LaunchTrace& recording) {
  const CsvTable table(path);
  const auto rank = table.column("rank");
  const auto number = table.column("idx");
  const auto start = table.column("start_us");
  const auto end = table.column("end_us");
  const std::size_t ranks = recording.rows.size();
  const std::size_t count = recording.collectives.size();
  recording.kernels.assign(count, std::vector<RecordedKernel>(ranks));
  std::vector<bool> seen(count * ranks, false);
  for (std::size_t row = 0; row < table.rows(); ++row) {
    const auto r = at(table.integer(row, rank, 0, static_cast<std::int64_t>(ranks) - 1));
    const auto c = at(table.integer(row, number, 0, static_cast<std::int64_t>(count) - 1));
    recording.kernels[c][r] = {table.time(row, start, kMicrosecond),
                               table.time(row, end, kMicrosecond)};
    if (seen[c * ranks + r]) {
      table.fail(row, number, fmt::format("collective {} of rank {} occurs twice", c, r));
    }
    seen[c * ranks + r] = true;
  }
  if (std::ranges::find(seen, false) != seen.end()) {
    throw InputError(
        SourcePlace{path},
        "must hold every collective of every rank; to replay without it, remove the file");
  }
}

}  // namespace

LaunchTrace read_launch_trace(const CsvTable& program) {
  const std::filesystem::path folder = std::filesystem::path(program.path()).parent_path();
  LaunchTrace recording;
  recording.path = program.path();
  StreamNumbers streams;
  read_ranks((folder / "ranks.csv").string(), recording);
  read_collectives((folder / "collective_defs.csv").string(), streams, recording);
  RowReader(program, streams, recording).read();
  const std::filesystem::path kernels = folder / "collectives.csv";
  if (std::filesystem::exists(kernels)) {
    read_kernels(kernels.string(), recording);
  }
  return recording;
}

}  // namespace stepsim
