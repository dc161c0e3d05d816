#pragma once

#include <cstddef>
#include <optional>

#include "costmodel/model/batch_shape.h"

namespace stepsim {

struct RecordedModel;

/// What the host of a GPU needs at least to launch the passes of a micro-batch, where nobody
/// measured it: PyTorch's eager mode takes a time for each parameter tensor, whatever the batch
/// holds. It is never longer than the passes of the smallest batch that was timed.
struct HostFloor {
  /// Seconds that a step takes for each parameter tensor, and the standard deviation of their
  /// logarithm. From 12 records of hosts in tests/live (H100.md, H200.md: BERT, two GPT-2s and a
  /// Llama of 148 to 292 tensors on H100 and H200, PyTorch 2.11), 0.13 to 0.63 ms.
  static constexpr double kOfTensor = 0.25e-3;
  static constexpr double kLogDeviation = 0.48;
  /// The ends of a 90 % interval over kOfTensor.
  static constexpr double kLow = 0.454;
  static constexpr double kHigh = 2.202;

  std::size_t tensors = 0;
  double optimizer = 0;  ///< Seconds of the step in which it launches no pass.
  double speed = 1;      ///< Costs of the device are divided by this: what is returned is not.
  BatchShape smallest;   ///< Of those that were timed.

  /// Seconds that the pass takes at least where the host takes `factor` times kOfTensor for each
  /// tensor. `timed`: seconds of the pass for the smallest batch.
  [[nodiscard]] double forward(double factor, double timed) const;
  [[nodiscard]] double backward(double factor, double timed) const;
};

/// The floor of recorded passes; nothing where the host's launches were recorded, where the host
/// computes itself, or where no batch's size is known.
[[nodiscard]] std::optional<HostFloor> host_floor(const RecordedModel& recorded,
                                                  bool host_is_device);

}  // namespace stepsim
