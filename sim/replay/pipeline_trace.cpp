#include "sim/replay/pipeline_trace.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/quantile.h"

namespace stepsim {

namespace {

constexpr double kMillisecond = 1e-3;
constexpr std::int64_t kMaxReplicas = 1'000'000;
constexpr std::int64_t kMaxStages = 10'000;

constexpr std::array<std::pair<std::string_view, PipelineOp>, 13> kOps = {{
    {"params-all-gather", PipelineOp::ParamsAllGather},
    {"forward-compute", PipelineOp::ForwardCompute},
    {"backward-compute", PipelineOp::BackwardCompute},
    {"forward-send", PipelineOp::ForwardSend},
    {"forward-recv", PipelineOp::ForwardRecv},
    {"backward-send", PipelineOp::BackwardSend},
    {"backward-recv", PipelineOp::BackwardRecv},
    {"layernorm-grads-all-reduce", PipelineOp::LayernormGrads},
    {"embedding-grads-all-reduce", PipelineOp::EmbeddingGrads},
    {"grads-reduce-scatter", PipelineOp::ReduceScatter},
    {"optimizer-clip-main-grad", PipelineOp::ClipGrads},
    {"optimizer", PipelineOp::Optimizer},
    {"gc", PipelineOp::GarbageCollection},
}};

PipelineOp op_of(const CsvTable& table, std::size_t row, CsvTable::Column column) {
  std::vector<std::string> known;
  for (const auto& [name, op] : kOps) {
    if (table.text(row, column) == name) {
      return op;
    }
    known.emplace_back(name);
  }
  table.fail(row, column, unknown_name("op", table.text(row, column), known));
}

std::string_view name_of(PipelineOp op) {
  return kOps[static_cast<std::size_t>(op)].first;
}

std::int64_t count_of(const PipelineWorker& worker, PipelineOp op) {
  return std::ranges::count_if(worker, [op](const PipelineRow& row) { return row.op == op; });
}

double count_of(const PipelineStep& step, PipelineOp op) {
  std::int64_t count = 0;
  for (const PipelineWorker& worker : step.workers) {
    count += count_of(worker, op);
  }
  return static_cast<double>(count);
}

/// When a worker's first row starts, as a share of the step; 0 where it has none.
double start_of(const PipelineStep& step, std::size_t worker) {
  const PipelineWorker& rows = step.workers[worker];
  if (rows.empty() || step.measured == Duration::zero()) {
    return 0;
  }
  return to_ms(std::ranges::min_element(rows, {}, &PipelineRow::start)->start) /
         to_ms(step.measured);
}

class PipelineReader {
 public:
  explicit PipelineReader(const CsvTable& table)
      : table_(table),
        step_(table_.column("step")),
        replica_(table_.column("dp_rank")),
        stage_(table_.column("pp_stage")),
        op_(table_.column("op")),
        number_(table_.column("seq")),
        start_(table_.column("start_ms")),
        length_(table_.column("dur_ms")) {
    recording_.path = table.path();
  }

  PipelineTrace read() {
    measure();
    for (std::size_t row = 0; row < table_.rows(); ++row) {
      add(row);
    }
    leave_out_cut_steps();
    return std::move(recording_);
  }

 private:
  void leave_out_cut_steps() {
    const Usual usual = usual_step();
    std::vector<PipelineStep> whole;
    std::optional<InputError> first_error;
    for (PipelineStep& step : recording_.steps) {
      std::string why;
      try {
        check(step);
        why = missing_part(step, usual);
      } catch (const InputError& error) {
        first_error = first_error ? first_error : std::optional(error);
        const std::string_view text = error.what();
        constexpr std::string_view kMark = "error: ";
        const std::size_t mark = text.find(kMark);
        why = text.substr(mark == std::string_view::npos ? 0 : mark + kMark.size());
      }
      if (why.empty()) {
        whole.push_back(std::move(step));
      } else {
        recording_.cut.push_back({step.number, std::move(why)});
      }
    }
    if (whole.empty() && first_error) {
      throw InputError(*first_error);
    }
    if (whole.empty()) {
      fail("no step is whole: step " + std::to_string(recording_.cut.front().number) + " " +
           recording_.cut.front().why);
    }
    recording_.steps = std::move(whole);
  }

  /// Raises InputError where the rows of a step do not fit together.
  void check(PipelineStep& step) const {
    for (std::size_t w = 0; w < step.workers.size(); ++w) {
      sort(step, w);
    }
    check_partners(step);
    if (step.measured == Duration::zero()) {
      fail(fmt::format("step {}: takes no time", step.number));
    }
  }

  /// What most steps have, medians over the steps.
  struct Usual {
    std::array<double, kOps.size()> counts{};  ///< [op] Rows of all workers.
    std::vector<double> starts;  ///< [worker] Start of its first row, as a share of the step.
  };

  [[nodiscard]] Usual usual_step() const {
    Usual usual;
    for (const auto& [name, op] : kOps) {
      std::vector<double> counts = mapped(
          recording_.steps, [op = op](const PipelineStep& step) { return count_of(step, op); });
      usual.counts[static_cast<std::size_t>(op)] = quantile(std::move(counts), 0.5);
    }
    const std::size_t workers = recording_.steps.front().workers.size();
    for (std::size_t w = 0; w < workers; ++w) {
      usual.starts.push_back(quantile(
          mapped(recording_.steps, [w](const PipelineStep& step) { return start_of(step, w); }),
          0.5));
    }
    return usual;
  }

  /// What of the step was not recorded; empty where all of it was.
  [[nodiscard]] std::string missing_part(const PipelineStep& step, const Usual& usual) const {
    constexpr double kLate = 0.1;
    constexpr double kEnough = 0.75;
    for (std::size_t w = 0; w < step.workers.size(); ++w) {
      if (start_of(step, w) > usual.starts[w] + kLate) {
        return fmt::format(
            "begins inside: the first row of dp_rank {}, pp_stage {} starts {:.0f} "
            "ms after the step",
            w / at(recording_.stages),
            w % at(recording_.stages),
            to_ms(step.workers[w].front().start));
      }
    }
    for (const PipelineOp op : {PipelineOp::ParamsAllGather,
                                PipelineOp::ReduceScatter,
                                PipelineOp::ClipGrads,
                                PipelineOp::Optimizer}) {
      const double count = count_of(step, op);
      const double others = usual.counts[static_cast<std::size_t>(op)];
      if (count < kEnough * others) {
        return fmt::format(
            "has {} rows of {}, where other steps have {}", count, name_of(op), others);
      }
    }
    return "";
  }

  /// Counts replicas and stages: one more than the highest number.
  void measure() {
    for (std::size_t row = 0; row < table_.rows(); ++row) {
      const auto replica = table_.integer(row, replica_, 0, kMaxReplicas - 1);
      const auto stage = table_.integer(row, stage_, 0, kMaxStages - 1);
      recording_.replicas = std::max(recording_.replicas, static_cast<std::int32_t>(replica) + 1);
      recording_.stages = std::max(recording_.stages, static_cast<std::int32_t>(stage) + 1);
    }
    recording_.rows = static_cast<std::int64_t>(table_.rows());
    if (recording_.rows == 0) {
      fail("holds no rows");
    }
    // Every worker must have a row, so this check bounds the memory as well.
    if (std::int64_t{recording_.replicas} * recording_.stages > recording_.rows) {
      fail(fmt::format("{} rows are too few for {} replicas with {} stages",
                       recording_.rows,
                       recording_.replicas,
                       recording_.stages));
    }
  }

  void add(std::size_t row) {
    const auto number = static_cast<std::int32_t>(table_.integer(row, step_, 0, INT32_MAX));
    const auto [known, is_new] = steps_.try_emplace(number, recording_.steps.size());
    if (is_new) {
      const std::size_t workers = at(std::int64_t{recording_.replicas} * recording_.stages);
      if (recording_.steps.size() * workers > table_.rows()) {
        fail(fmt::format("step {}: there are fewer rows than workers in all steps", number));
      }
      recording_.steps.push_back({number, std::vector<PipelineWorker>(workers), {}});
    }
    PipelineStep& step = recording_.steps[known->second];
    const std::int64_t replica = table_.integer(row, replica_, 0, kMaxReplicas - 1);
    const std::int64_t stage = table_.integer(row, stage_, 0, kMaxStages - 1);
    PipelineRow entry;
    entry.op = op_of(table_, row, op_);
    entry.number = static_cast<std::int32_t>(table_.integer(row, number_, 0, INT32_MAX));
    entry.start = table_.duration(row, start_, kMillisecond);
    entry.length = table_.signed_duration(row, length_, kMillisecond);
    if (entry.length < Duration::zero()) {
      if (!is_group_op(entry.op) && !is_transfer(entry.op)) {
        table_.fail(row, length_, "less than 0");
      }
      // Subtracting the wait from a short communication may leave a small negative length.
      entry.length = Duration::zero();
    }
    const bool before = entry.op == PipelineOp::ForwardRecv || entry.op == PipelineOp::BackwardSend;
    const bool after = entry.op == PipelineOp::ForwardSend || entry.op == PipelineOp::BackwardRecv;
    if ((before && stage == 0) || (after && stage == recording_.stages - 1)) {
      table_.fail(row, op_, fmt::format("stage {} has no such neighbour", stage));
    }
    step.workers[at(replica * recording_.stages + stage)].push_back(entry);
    step.measured = std::max(step.measured, entry.start + entry.length);
  }

  /// Sorts the rows by start and checks that the numbers of each op then count from 0.
  void sort(PipelineStep& step, std::size_t worker) const {
    PipelineWorker& rows = step.workers[worker];
    if (rows.empty()) {
      fail(place(step, worker) + "no rows");
    }
    std::ranges::stable_sort(rows, {}, &PipelineRow::start);
    std::array<std::int32_t, kOps.size()> next{};
    for (const PipelineRow& row : rows) {
      std::int32_t& expected = next[static_cast<std::size_t>(row.op)];
      if (row.number != expected) {
        fail(fmt::format("{}{}: seq is {}, but {} is next in order of start",
                         place(step, worker),
                         name_of(row.op),
                         row.number,
                         expected));
      }
      ++expected;
    }
  }

  void check_partners(const PipelineStep& step) const {
    const std::size_t stages = at(recording_.stages);
    for (std::size_t w = 0; w < step.workers.size(); ++w) {
      const std::size_t stage = w % stages;
      if (stage + 1 < stages) {
        check_equal(step, w, PipelineOp::ForwardSend, w + 1, PipelineOp::ForwardRecv);
        check_equal(step, w, PipelineOp::BackwardRecv, w + 1, PipelineOp::BackwardSend);
      }
      check_equal(step, w, PipelineOp::ReduceScatter, stage, PipelineOp::ReduceScatter);
      check_equal(step, w, PipelineOp::ClipGrads, 0, PipelineOp::ClipGrads);
      // Stages between the first and the last hold no embeddings.
      if (count_of(step.workers[w], PipelineOp::EmbeddingGrads) > 0) {
        check_equal(step, w, PipelineOp::EmbeddingGrads, w - stage, PipelineOp::EmbeddingGrads);
      }
    }
  }

  void check_equal(const PipelineStep& step,
                   std::size_t worker,
                   PipelineOp op,
                   std::size_t other,
                   PipelineOp other_op) const {
    const std::int64_t here = count_of(step.workers[worker], op);
    const std::int64_t there = count_of(step.workers[other], other_op);
    if (here != there) {
      fail(fmt::format("{}{} rows of {}, but {} of {} on the other side, {}",
                       place(step, worker),
                       here,
                       name_of(op),
                       there,
                       name_of(other_op),
                       place(step, other)));
    }
  }

  [[nodiscard]] std::string place(const PipelineStep& step, std::size_t worker) const {
    return fmt::format("step {}, dp_rank {}, pp_stage {}: ",
                       step.number,
                       worker / at(recording_.stages),
                       worker % at(recording_.stages));
  }

  [[noreturn]] void fail(const std::string& message) const {
    throw InputError(SourcePlace{table_.path()}, message);
  }

  const CsvTable& table_;
  CsvTable::Column step_;
  CsvTable::Column replica_;
  CsvTable::Column stage_;
  CsvTable::Column op_;
  CsvTable::Column number_;
  CsvTable::Column start_;
  CsvTable::Column length_;
  std::map<std::int32_t, std::size_t> steps_;  ///< Positions in recording_.steps, by step number.
  PipelineTrace recording_;
};

}  // namespace

PipelineTrace read_pipeline_trace(const CsvTable& table) {
  return PipelineReader(table).read();
}

}  // namespace stepsim
