#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "costmodel/base/units.h"
#include "costmodel/io/csv_table.h"

namespace stepsim {

/// Operations of a pipeline-parallel training step, as its recording names them.
enum class PipelineOp : std::uint8_t {
  ParamsAllGather,
  ForwardCompute,
  BackwardCompute,
  ForwardSend,     ///< Activations to the next stage.
  ForwardRecv,     ///< Activations from the stage before.
  BackwardSend,    ///< Gradients to the stage before.
  BackwardRecv,    ///< Gradients from the next stage.
  LayernormGrads,  ///< All-reduce inside the worker (tensor parallelism).
  EmbeddingGrads,  ///< All-reduce of the stages of a replica that hold embeddings.
  ReduceScatter,   ///< Of the gradients of a stage, over the replicas.
  ClipGrads,       ///< Over all workers.
  Optimizer,
  GarbageCollection
};

/// True for a transfer between two stages of a replica.
[[nodiscard]] constexpr bool is_transfer(PipelineOp op) {
  return op >= PipelineOp::ForwardSend && op <= PipelineOp::BackwardRecv;
}
/// True for an operation that several workers do together and end together.
[[nodiscard]] constexpr bool is_group_op(PipelineOp op) {
  return op >= PipelineOp::EmbeddingGrads && op <= PipelineOp::ClipGrads;
}

struct PipelineRow {
  PipelineOp op = PipelineOp::GarbageCollection;
  std::int32_t number = 0;  ///< Counts the rows of one op of the worker from 0.
  Duration start{0};        ///< From the step's first row.
  Duration length{0};       ///< Of a communication: the transfer without waiting.
};

/// A worker's rows of one step in order of start.
using PipelineWorker = std::vector<PipelineRow>;

struct PipelineStep {
  std::int32_t number = 0;
  std::vector<PipelineWorker> workers;  ///< [replica * stages + stage]
  Duration measured{0};                 ///< Latest end of a row.
};

/// Steps of a job with data-parallel replicas of a pipeline.
///
/// Every worker has rows in every step; each send has its receive, and the members of a group do
/// its operations equally often.
struct PipelineTrace {
  std::string path;
  std::int32_t replicas = 0;
  std::int32_t stages = 0;
  std::int64_t rows = 0;
  std::vector<PipelineStep> steps;  ///< In the order of the file.
};

/// Takes the rows of a file. Columns: scenarios/README.md, "Programs to replay".
///
/// Raises InputError with file, line and column, or with the step and the worker.
[[nodiscard]] PipelineTrace read_pipeline_trace(const CsvTable& table);

}  // namespace stepsim
