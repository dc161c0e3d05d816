#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "costmodel/base/units.h"
#include "costmodel/io/csv_table.h"

namespace stepsim {

/// The operations of a pipeline-parallel training step, as the recording names them.
enum class PipelineOp : std::uint8_t {
  ParamsAllGather,
  ForwardCompute,
  BackwardCompute,
  ForwardSend,     ///< SendMode activations to the next stage.
  ForwardRecv,     ///< Receives activations from the previous stage.
  BackwardSend,    ///< SendMode gradients to the previous stage.
  BackwardRecv,    ///< Receives gradients from the next stage.
  LayernormGrads,  ///< All-reduces inside the worker (tensor parallelism).
  EmbeddingGrads,  ///< All-reduces over the stages of a replica that hold embeddings.
  ReduceScatter,   ///< Reduce-scatters the gradients of a stage over the replicas.
  ClipGrads,       ///< Reduces the gradients' norm over all workers.
  Optimizer,
  GarbageCollection
};

/// True for a transfer between two stages of a replica.
[[nodiscard]] constexpr bool is_transfer(PipelineOp op) {
  return op >= PipelineOp::ForwardSend && op <= PipelineOp::BackwardRecv;
}
/// True for an operation that several workers do together and complete together.
[[nodiscard]] constexpr bool is_group_op(PipelineOp op) {
  return op >= PipelineOp::EmbeddingGrads && op <= PipelineOp::ClipGrads;
}

/// One operation of one worker.
struct PipelineRow {
  PipelineOp op = PipelineOp::GarbageCollection;
  std::int32_t number = 0;  ///< Counts the worker's rows of this op from 0.
  Duration start{0};        ///< The start, measured from that of the step's first row.
  Duration length{0};       ///< The duration; a communication's is the transfer without waiting.
};

/// A worker's rows of one step, sorted by start.
using PipelineWorker = std::vector<PipelineRow>;

/// One step of all workers.
struct PipelineStep {
  std::int32_t number = 0;
  std::vector<PipelineWorker> workers;  ///< [replica * stages + stage]
  Duration measured{0};                 ///< The length of the step, up to the latest end of a row.
};

/// A step that the recording does not hold whole, and what shows it.
struct CutStep {
  std::int32_t number = 0;
  std::string why;
};

/// The recorded steps of a job with data-parallel replicas of a pipeline.
///
/// Every worker has rows in every step, every send has its receive, and all members of a group do
/// its operations equally often.
struct PipelineTrace {
  std::string path;
  std::int32_t replicas = 0;
  std::int32_t stages = 0;
  std::int64_t rows = 0;
  std::vector<PipelineStep> steps;  ///< Whole steps in the order of the file.
  std::vector<CutStep> cut;         ///< The others, in that order.
};

/// Reads a recording from a table. scenarios/README.md, "Programs to replay", lists the columns.
///
/// A step is cut where its rows do not fit together (a send without its receive, numbers that do
/// not count from 0), where a worker's first row starts later than in most steps, by more than a
/// tenth of the step, and where it lacks more than a quarter of the rows that other steps have of
/// an op that occurs once a step.
///
/// Raises InputError that names file, line and column, or the step and the worker where no step is
/// whole.
[[nodiscard]] PipelineTrace read_pipeline_trace(const CsvTable& table);

}  // namespace stepsim
