#include "sim/replay/pipeline_replay.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"

namespace stepsim {

namespace {

bool is_receive(PipelineOp op) {
  return op == PipelineOp::ForwardRecv || op == PipelineOp::BackwardRecv;
}

/// The mean length of each stage's forward and backward rows, over replicas and micro-batches.
class StageMeans {
 public:
  StageMeans(const PipelineStep& step, std::int32_t stages)
      : stages_(at(stages)), forward_(stages_), backward_(stages_) {
    for (std::size_t w = 0; w < step.workers.size(); ++w) {
      for (const PipelineRow& row : step.workers[w]) {
        if (Mean* mean = find(row.op, w)) {
          mean->sum += row.length;
          ++mean->count;
        }
      }
    }
  }

  /// Returns the mean length for a compute row, and the row's own length for any other.
  Duration length(const PipelineRow& row, std::size_t worker) {
    const Mean* mean = find(row.op, worker);
    return mean == nullptr ? row.length : mean->sum / mean->count;
  }

 private:
  struct Mean {
    Duration sum{0};
    std::int64_t count = 0;
  };

  Mean* find(PipelineOp op, std::size_t worker) {
    switch (op) {
      case PipelineOp::ForwardCompute:
        return &forward_[worker % stages_];
      case PipelineOp::BackwardCompute:
        return &backward_[worker % stages_];
      default:
        return nullptr;
    }
  }

  std::size_t stages_;
  std::vector<Mean> forward_;
  std::vector<Mean> backward_;
};

/// What the hosts do between the rows of a step.
class HostGaps {
 public:
  HostGaps(const PipelineStep& step, std::int32_t stages) : step_(step), stages_(at(stages)) {
    for (std::size_t w = 0; w < step.workers.size(); ++w) {
      Duration end{0};
      std::vector<Duration>& own = recorded_.emplace_back();
      for (const PipelineRow& row : step.workers[w]) {
        own.push_back(std::max(row.start - end, Duration::zero()));
        of_place_[place_of(row, w)].push_back(own.back());
        end = std::max(end, row.start + row.length);
      }
    }
    for (auto& [place, gaps] : of_place_) {
      std::ranges::sort(gaps);
    }
  }

  /// Returns the gap before row `i` of a worker.
  [[nodiscard]] Duration before(std::size_t worker, std::size_t i) const {
    constexpr int kMost = 4;  // Medians.
    const PipelineRow& row = step_.workers[worker][i];
    if (is_transfer(row.op)) {
      return Duration::zero();
    }
    const std::vector<Duration>& gaps = of_place_.at(place_of(row, worker));
    if (is_communication(row.op)) {
      return gaps.front();
    }
    return std::min(recorded_[worker][i], kMost * gaps[gaps.size() / 2]);
  }

 private:
  [[nodiscard]] static bool is_communication(PipelineOp op) {
    return is_group_op(op) || op == PipelineOp::LayernormGrads;
  }

  /// Rows that play the same part in their replicas; of communications, which one stage may begin
  /// by waiting for another, in all stages.
  using Place = std::tuple<PipelineOp, std::int32_t, std::size_t>;

  [[nodiscard]] Place place_of(const PipelineRow& row, std::size_t worker) const {
    return {row.op, row.number, is_communication(row.op) ? 0 : worker % stages_};
  }

  const PipelineStep& step_;
  std::size_t stages_;
  std::vector<std::vector<Duration>> recorded_;      ///< [worker][row]
  std::map<Place, std::vector<Duration>> of_place_;  ///< Over the replicas, ascending.
};

/// Builds the program of one step: first communicators and collectives, then the workers' parts.
class StepLowering {
 public:
  StepLowering(const PipelineTrace& recording,
               const PipelineStep& step,
               const PipelineReplayOptions& options)
      : recording_(recording),
        step_(step),
        options_(options),
        means_(step, recording.stages),
        gaps_(step, recording.stages),
        boundaries_(recording.replicas * (recording.stages - 1)) {
    const std::int32_t communicators = 2 * boundaries_ + recording.replicas + recording.stages + 1;
    result_.communicators.resize(at(communicators));
    collectives_.resize(at(communicators));
    result_.program.ranks.resize(step.workers.size());
  }

  PipelineProgram lower() {
    for (std::size_t w = 0; w < step_.workers.size(); ++w) {
      for (const PipelineRow& row : step_.workers[w]) {
        if (is_transfer(row.op) || is_group_op(row.op)) {
          join(row, w);
        }
      }
    }
    for (std::size_t w = 0; w < step_.workers.size(); ++w) {
      lower_worker(w);
    }
    return std::move(result_);
  }

 private:
  [[nodiscard]] std::int32_t communicator_of(PipelineOp op, std::size_t worker) const {
    const auto index = static_cast<std::int32_t>(worker);
    const std::int32_t replica = index / recording_.stages;
    const std::int32_t stage = index % recording_.stages;
    // This is the boundary after this stage; the one before it is one less.
    const std::int32_t boundary = replica * (recording_.stages - 1) + stage;
    const std::int32_t groups = 2 * boundaries_;
    switch (op) {
      case PipelineOp::ForwardSend:
        return boundary;
      case PipelineOp::ForwardRecv:
        return boundary - 1;
      case PipelineOp::BackwardRecv:
        return boundaries_ + boundary;
      case PipelineOp::BackwardSend:
        return boundaries_ + boundary - 1;
      case PipelineOp::EmbeddingGrads:
        return groups + replica;
      case PipelineOp::ReduceScatter:
        return groups + recording_.replicas + stage;
      default:
        return groups + recording_.replicas + recording_.stages;
    }
  }

  /// Adds the worker to the row's communicator, and the row's transfer to its collectives.
  void join(const PipelineRow& row, std::size_t worker) {
    const std::int32_t number = communicator_of(row.op, worker);
    Communicator& communicator = result_.communicators[at(number)];
    const auto rank = static_cast<std::int32_t>(worker);
    if (row.number == 0) {
      communicator.ranks.push_back(rank);
    }
    std::vector<std::int32_t>& numbers = collectives_[at(number)];
    if (at(row.number) == numbers.size()) {
      numbers.push_back(static_cast<std::int32_t>(result_.program.collectives.size()));
      result_.program.collectives.push_back({.communicator = number, .transfer = Duration::max()});
      // A worker for each collective makes sure that transfers do not wait for each other.
      communicator.workers = row.number + 1;
    }
    // A transfer between stages takes what the receiver recorded. A group's operation takes the
    // shortest time recorded, and the other workers end later by the difference.
    if (!is_transfer(row.op) || is_receive(row.op)) {
      Duration& transfer = result_.program.collectives[at(numbers[at(row.number)])].transfer;
      transfer = std::min(transfer, row.length);
    }
  }

  void lower_worker(std::size_t worker) {
    const PipelineWorker& rows = step_.workers[worker];
    if (options_.sends == SendMode::Buffered) {
      for (const PipelineRow& row : rows) {
        if (is_receive(row.op)) {
          launch(row, worker);
        }
      }
    }
    for (std::size_t i = 0; i < rows.size();) {
      std::size_t end = i;
      while (end < rows.size() && is_transfer(rows[end].op)) {
        ++end;
      }
      if (end > i) {
        transfer({rows.data() + i, end - i}, worker);
        i = end;
      } else {
        busy(options_.host_gaps ? gaps_.before(worker, i) : Duration::zero(), worker);
        lower_row(rows[i++], worker);
      }
    }
  }

  /// Launches all transfers of these rows before it waits for any of them.
  void transfer(std::span<const PipelineRow> rows, std::size_t worker) {
    const bool blocking = options_.sends == SendMode::Blocking;
    for (const PipelineRow& row : rows) {
      if (blocking || !is_receive(row.op)) {
        launch(row, worker);
      }
    }
    for (const PipelineRow& row : rows) {
      if (blocking || is_receive(row.op)) {
        wait(row, worker, Duration::zero());
      }
    }
  }

  void lower_row(const PipelineRow& row, std::size_t worker) {
    if (is_group_op(row.op)) {
      launch(row, worker);
      wait(row, worker, row.length - result_.program.collectives[at(id_of(row, worker))].transfer);
      return;
    }
    const Duration length = options_.balanced ? means_.length(row, worker) : row.length;
    busy(length, worker);
  }

  void busy(Duration length, std::size_t worker) {
    if (length > Duration::zero()) {
      result_.program.ranks[worker].push_back({.kind = Opcode::Host, .host = length});
    }
  }

  [[nodiscard]] std::int32_t id_of(const PipelineRow& row, std::size_t worker) const {
    return collectives_[at(communicator_of(row.op, worker))][at(row.number)];
  }

  void launch(const PipelineRow& row, std::size_t worker) {
    result_.program.ranks[worker].push_back(
        {.kind = Opcode::Collective, .stream = kNoStream, .index = id_of(row, worker)});
  }

  void wait(const PipelineRow& row, std::size_t worker, Duration latency) {
    result_.program.ranks[worker].push_back(
        {.kind = Opcode::HostWait, .index = id_of(row, worker), .latency = latency});
  }

  const PipelineTrace& recording_;
  const PipelineStep& step_;
  const PipelineReplayOptions& options_;
  StageMeans means_;
  HostGaps gaps_;
  std::int32_t boundaries_;  ///< How many pairs of neighbouring stages all replicas have.
  std::vector<std::vector<std::int32_t>> collectives_;  ///< [communicator][number of the row]
  PipelineProgram result_;
};

}  // namespace

PipelineProgram lower(const PipelineTrace& recording,
                      const PipelineStep& step,
                      const PipelineReplayOptions& options) {
  return StepLowering(recording, step, options).lower();
}

std::vector<Duration> replay(const PipelineTrace& recording, const PipelineReplayOptions& options) {
  std::vector<Duration> steps;
  for (const PipelineStep& step : recording.steps) {
    PipelineProgram lowered = lower(recording, step, options);
    const std::vector<RankClock> clocks(step.workers.size());
    EngineRules rules;
    rules.communicators = std::move(lowered.communicators);
    Engine engine(std::move(rules), clocks);
    try {
      const ExecutionTrace played = engine.play(lowered.program);
      steps.push_back(max_of(played.ranks, &RankTrace::host_end, SimTime()) - SimTime());
    } catch (const std::runtime_error& error) {
      throw InputError(SourcePlace{recording.path},
                       "step {}: workers wait for each other for ever in this order "
                       "of rows ({})",
                       step.number,
                       error.what());
    }
  }
  return steps;
}

}  // namespace stepsim
