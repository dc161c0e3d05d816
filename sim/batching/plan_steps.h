#pragma once

#include <functional>
#include <vector>

#include "sim/batching/policy.h"

namespace stepsim {

/// [step][rank] The samples, or parts of them, of the first `steps` steps.
///
/// Step t executes batch t modulo the rank's number of batches, as the token-skew lab does: a rank
/// that has used up its epoch starts the same batches again, without a new shuffle and without
/// waiting for the others. With set_epoch it goes on with the batches of the next epoch instead.
///
/// Args:
///     revise: Changes each epoch before its batches are used, in the order of the epochs.
/// Raises:
///     InputError: steps < 1, more ranks than samples, or a rank without a batch (drop_last).
[[nodiscard]] std::vector<std::vector<std::vector<Piece>>> plan_steps(
    const BatchingPolicy& policy,
    PolicyInput input,
    int steps,
    const std::function<void(EpochPlan&)>& revise = {});

}  // namespace stepsim
