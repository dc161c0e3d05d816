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
  [[nodiscard]] virtual std::string name() const = 0;  ///< As OverlapSample::compute.
  virtual void put(const Stream& stream) = 0;
};

/// The model's largest GEMM of a block over `tokens` rows, a copy of `copy_elements`, and a forward
/// of its attention where that is fused, on random data.
[[nodiscard]] std::vector<std::unique_ptr<OverlapWork>> overlap_works(
    const TransformerConfig& model,
    const Stream& stream,
    std::int64_t tokens,
    std::int64_t copy_elements);

}  // namespace stepsim::cuda
