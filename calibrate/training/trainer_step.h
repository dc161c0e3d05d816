#pragma once

namespace stepsim {

/// Times of the parts of one training step on the device that computes it, in seconds, and its
/// loss.
struct TrainerStep {
  double data = 0;     ///< The collate on the host and, for a GPU, the copy to the device.
  double forward = 0;  ///< Includes the zeroing of the gradients.
  double backward = 0;
  double wait = 0;       ///< Exposed communication: the wait for all-reduces after the backward.
  double optimizer = 0;  ///< Copy-out of the gradients and AdamW.
  double loss = 0;       ///< Mean cross entropy, without the loss scale.
};

}  // namespace stepsim
