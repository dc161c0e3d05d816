#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/engine/program.h"
#include "sim/parallel/step_program.h"

namespace stepsim {

/// When the gather of the unit before is issued in the backward.
enum class Fsdp1Prefetch {
  Pre,   ///< BACKWARD_PRE: before the backward of a unit is launched.
  Post,  ///< BACKWARD_POST: after it, and before its reduction.
  None   ///< When its own backward comes.
};

/// The options of FullyShardedDataParallel that decide when things happen.
struct Fsdp1Options {
  int shards = 1;
  int replicas = 1;
  bool keeps_after_forward = false;  ///< SHARD_GRAD_OP: units stay gathered until their backward.
  Fsdp1Prefetch backward_prefetch = Fsdp1Prefetch::Pre;
  bool forward_prefetch = false;
  bool limits_gathers = true;      ///< limit_all_gathers
  bool syncs_each_batch = true;    ///< false: no_sync() around all micro-batches but the last.
  bool aligns_parameters = false;  ///< use_orig_params: each parameter but the last has 16 bytes.
  std::optional<Dtype> param_dtype = {};   ///< MixedPrecision's; none: the parameters' own.
  std::optional<Dtype> reduce_dtype = {};  ///< None: param_dtype.
};

/// Elements of a unit's FlatParameter: its parameters one after another, padded once to a multiple
/// of the shards. With `aligned_to` > 1 each parameter but the last is padded to so many elements
/// first.
[[nodiscard]] std::int64_t flat_elements(const std::vector<std::int64_t>& parameters,
                                         int shards,
                                         std::int64_t aligned_to = 1);

/// [unit] Elements of the FlatParameters of a model that has units.
[[nodiscard]] std::vector<std::int64_t> flat_parameters(const TrainedModel& model,
                                                        const Fsdp1Options& options);

/// The communicators of its programs: all ranks, the shard groups, the replica groups.
[[nodiscard]] std::vector<Communicator> fsdp1_communicators(const Fsdp1Options& options, bool gloo);

/// Writes what every rank's host does in one optimizer step of FSDP1: hooks, gathers, reductions,
/// and a host that waits where more than two units that were freed are still in use. On a CPU each
/// collective holds its host. Throws std::invalid_argument when the work does not fit the model.
[[nodiscard]] StepProgram fsdp1_program(const TrainedModel& model,
                                        const Fsdp1Options& options,
                                        const StepHost& host,
                                        const StepPrices& prices,
                                        const StepWork& step);

}  // namespace stepsim
