#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "calibrate/cuda/attention/sdpa.h"

/// The operation graphs of fused attention as plain data: what cuDNN is asked to recognise as one
/// kernel. cudnn_plan.h makes cuDNN's descriptors of them, a test evaluates them on the host.
namespace stepsim::cuda {

enum class GraphType { F32, Bf16, F16, Int32, Int64, Boolean };

/// What a caller binds to a tensor; Inner ones live inside the fused kernel.
enum class GraphRole {
  Inner,
  Q,
  K,
  V,
  O,
  Statistics,
  DO,
  DQ,
  DK,
  DV,
  DQSum,       ///< Scratch: dq in fp32, [sample][head][query][head_dim].
  SoftmaxSum,  ///< Scratch: sum of do * o, [sample][head][query], fp32.
  Lengths,     ///< [samples] int32
  QOffsets,    ///< [samples + 1] int64, first *element* of each sequence in q and dq; likewise
  KvOffsets,   ///< in k, v, dk, dv,
  OOffsets,    ///< in o and do,
  StatisticsOffsets,  ///< and in the statistics.
  Mask,               ///< [sample][1][query][key], of the type of q, added to the scores.
  Scale,              ///< By value, here and below: 1 / sqrt(head_dim).
  One,                ///< 1.0F
  MaskFill,           ///< -infinity
  WindowLeft,         ///< int32: window.
  WindowRight         ///< int32: window - 1.
};

/// Dimensions [sample][head][row][column]; strides in elements.
using GraphDims = std::array<std::int64_t, 4>;

struct GraphTensor {
  GraphRole role = GraphRole::Inner;
  GraphType type = GraphType::F32;
  GraphDims dims{};
  GraphDims strides{};
  const GraphTensor* offsets = nullptr;  ///< Packed: replaces the stride of the samples.
  std::int64_t id = 0;                   ///< Its key in cuDNN's variant pack.
};

enum class GraphMode {
  MatMul,  ///< y = x b over rows and columns; head h of y reads head h * heads(b) / heads of b.
  Add,     ///< y = x + b, broadcasting b; likewise below.
  Subtract,
  Multiply,
  Divide,
  Exp,
  Log,
  Identity,
  RowIndex,     ///< y = the row of the element; x gives the shape only.
  ColumnIndex,  ///< y = its column.
  Less,
  Greater,
  GreaterEqual,
  And,
  Select,  ///< y = mask ? x : b.
  Max,     ///< y = largest of x over the dimensions where y is smaller.
  Sum,     ///< y = sum, likewise; over grouped heads when y has fewer of them.
  Transpose
};

struct GraphOperation {
  GraphMode mode = GraphMode::MatMul;
  const GraphTensor* x = nullptr;
  const GraphTensor* b = nullptr;
  const GraphTensor* mask = nullptr;
  const GraphTensor* y = nullptr;
  /// MatMul: the useful rows, columns and inner size of each sample; null = all.
  const GraphTensor* m = nullptr;
  const GraphTensor* n = nullptr;
  const GraphTensor* k = nullptr;
};

struct SdpaGraph {
  std::deque<GraphTensor> tensors;  ///< A deque: operations point into it.
  std::vector<GraphOperation> operations;

  SdpaGraph() = default;
  SdpaGraph(SdpaGraph&&) = default;  ///< Moving a deque moves no element.
  SdpaGraph& operator=(SdpaGraph&&) = delete;
  SdpaGraph(const SdpaGraph&) = delete;
  SdpaGraph& operator=(const SdpaGraph&) = delete;
  ~SdpaGraph() = default;
};

/// o = softmax(mask(scale q k^T)) v, and the log-sum-exp of each row.
[[nodiscard]] SdpaGraph sdpa_forward_graph(const SdpaShape& shape);
/// dq, dk, dv from do, with the probabilities rebuilt from q, k and the statistics.
[[nodiscard]] SdpaGraph sdpa_backward_graph(const SdpaShape& shape);

/// "bf16, 8 x 512 tokens, 16 heads (4 kv) of 64, causal": for messages.
[[nodiscard]] std::string describe(const SdpaShape& shape);

}  // namespace stepsim::cuda
