#pragma once

#include <cstdint>
#include <vector>

#include "calibrate/cuda/collectives/nccl_group.h"
#include "calibrate/cuda/device/device.h"
#include "calibrate/samples/overlap_sample.h"
#include "costmodel/model/transformer.h"

namespace stepsim::cuda {

/// What runs beside what.
struct OverlapSetting {
  std::vector<int> channels = {4, 8, 16, 32};
  std::int64_t collective_bytes = std::int64_t{25} << 20U;
  std::int64_t tokens = 8192;  ///< Rows of the GEMM, and of attention in samples of 1024.
  std::int64_t copy_elements = std::int64_t{1}
                               << 26U;  ///< Elements that the memory-bound work copies.
  int repetitions = 5;
  /// Bytes that a stand-in moves through memory for each byte of its collective.
  double traffic = 2.5;
};

/// Repetitions that last at least 1.5 times as long as `seconds`, `each` seconds one; 2 to 200.
[[nodiscard]] int repetitions_to_cover(double seconds, double each);

/// Times a model's largest GEMM, a memory-bound copy and, where the model's attention is fused,
/// attention, alone and beside all-reduces of each number of channels; and the all-reduces alone
/// and beside them. What is timed begins when the other runs already and ends before it does;
/// where that could not be had, there is no sample. Times are medians over repetitions and means
/// over ranks, so that all ranks have the same.
///
/// With one rank a stand-in kernel takes the collective's place, at 20 GB/s a channel (a figure
/// of NVLink 3), and collective_beside is unknown. cuBLASLt does not say how many thread blocks it
/// launches: compute_blocks is unknown.
///
/// All ranks at once. `compute` and `communication` are the streams of both; `dtype` is
/// the gradients'.
[[nodiscard]] std::vector<OverlapSample> probe_overlaps(const TransformerConfig& model,
                                                        NcclGroup& group,
                                                        const Stream& compute,
                                                        const Stream& communication,
                                                        Dtype dtype,
                                                        const OverlapSetting& setting);

}  // namespace stepsim::cuda
