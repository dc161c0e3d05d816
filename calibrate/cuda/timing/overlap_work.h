#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "calibrate/cuda/device/device.h"
#include "costmodel/model/transformer.h"

namespace stepsim::cuda {

/// A piece of compute that can be put into a stream again and again.
class OverlapWork {
 public:
  virtual ~OverlapWork() = default;
  [[nodiscard]] virtual std::string name()
      const = 0;  ///< The name that OverlapSample::compute takes.
  virtual void put(const Stream& stream) = 0;
};

/// Makes the kinds of compute that a model runs beside collectives, on random data: the largest
/// GEMM of a block over `tokens` rows, the forward of its attention where that is fused, and a copy
/// of `copy_elements`.
[[nodiscard]] std::vector<std::unique_ptr<OverlapWork>> overlap_works(
    const TransformerConfig& model,
    const Stream& stream,
    std::int64_t tokens,
    std::int64_t copy_elements);

}  // namespace stepsim::cuda
