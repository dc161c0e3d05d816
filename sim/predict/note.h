#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "costmodel/base/units.h"
#include "costmodel/network/collective_pricer.h"
#include "costmodel/network/interference.h"

namespace stepsim {

/// What the memory of one device allows.
struct TokenBudget {
  std::int64_t tokens = 0;  ///< Most padded tokens of a micro-batch; 0: not even one sample fits.
  std::int64_t length = 0;  ///< The longest batch of the epoch and the simulated steps.
};

/// The step and rank whose micro-batches need most memory, which is more than the device has: of
/// the simulated steps and of the whole first epoch.
struct OutOfMemory {
  int step = 0;
  int rank = 0;
  Bytes needed;
  Bytes capacity;
  std::optional<TokenBudget> budget;  ///< What would fit.
  bool behind_steps = false;  ///< A step of the first epoch that comes after the simulated ones.
};

/// Where the prices of a kind of collective come from.
struct CollectiveOrigin {
  std::string text;  ///< "all_reduce: measured table, 8 ranks"
  CollectiveSource source = CollectiveSource::MeasuredTable;
};

/// Ops of this kind ("gemm forward") or collectives that are up to `factor` times larger than all
/// that the profile measured, or smaller.
struct SizesBeyondMeasured {
  std::string op;
  double factor = 1;
  bool smaller = false;
};
/// Classes of ops with sizes that the profile did not measure but prices by the class's form.
struct SizesNotMeasured {
  std::vector<std::string> op_classes;
};
/// Varlen attention has empty blocks, and nothing says what one takes.
struct EmptyBlocksFree {};
/// The scenario says what an empty block takes, but the profile prices them itself.
struct EmptyBlockKeyUnused {};
/// The profile's interference is taken, since the scenario states none.
struct ProfileInterference {
  int measurements = 0;
  Interference value;
};
/// The profile was fitted to whole steps, so that its passes hold the collectives.
struct CollectivesInsidePasses {};
/// What the interval counts the scenario's own times and interference to be off by.
struct StatedErrors {
  std::optional<double> times;         ///< Standard deviations, as fractions.
  std::optional<double> all_reduce;    ///< Mean size.
  std::optional<double> interference;  ///< Of the strength, itself a fraction.
};
/// The kernels of a step are shorter than their launches, so that the host decides its time.
struct HostBound {
  std::size_t kernels = 0;     ///< Of one micro-batch.
  double compute_ms = 0;       ///< Their time on the device.
  double launch_seconds = 0;   ///< One launch,
  bool launch_assumed = true;  ///< where neither the profile nor the scenario says.
};
/// Recorded costs of a GPU come to less than its host usually needs to launch a step of so many
/// parameter tensors, for batches below all that were timed.
struct BelowHostFloor {
  std::size_t tensors = 0;
  double costs_ms = 0;      ///< Of the passes and the optimizer, for the shortest micro-batch,
  double priced_ms = 0;     ///< and what it is priced at.
  double host_low_ms = 0;   ///< 90 % interval of what a host needs,
  double host_high_ms = 0;  ///< as far as the shortest timed step leaves it.
};
/// The profile has no measured table for a kind of collective.
struct CollectiveNotMeasured {
  CollectiveOrigin origin;
};

/// The profile's compute prices were not measured by stepcal; `origin` says whose they are.
struct PricesNotMeasured {
  std::string origin;
};
/// The profile says that it was made with other settings than the scenario's; see other_settings().
struct OtherSettings {
  std::vector<std::string> differences;
};
/// What costs nothing because neither the scenario nor the profile says what it takes.
struct CostsNothing {
  bool launches = false;      ///< The host's launches of kernels.
  bool interference = false;  ///< What compute and transfers do to each other.
};

/// Steps are simulated in which the communication hook has not begun and reduces plainly: all of
/// them, or some of those that the means are made of. Steps count from 0.
struct HookNotStarted {
  std::string hook;
  std::int64_t start = 0;  ///< The first step with the hook.
  int steps = 0;           ///< Simulated ones,
  int warmup_steps = 0;    ///< of which the first ones are left out of the means.
};

/// [times] without the tokens they are of: all batches take the same time, whatever they hold.
struct TimesOfAnyBatch {
  std::int64_t fewest = 0;  ///< Padded tokens (with varlen useful ones) of a micro-batch.
  std::int64_t most = 0;
};

/// DDP's default cap is stated, which with the newest rules limits the first bucket as well, to
/// more than its default.
struct DefaultCapStated {};

/// The optimizer is SGD, and the profile's is AdamW, which moves kAdamwMoves elements a parameter.
struct OptimizerOfAdamw {
  int moved = 0;
};

/// The model is one of blocks or a recorded one, which does not state what a batch keeps in memory:
/// peaks hold parameters, gradients and the optimizer's state alone. Or nothing says how many
/// tokens a sample has.
struct ActivationsNotCounted {
  bool lengths_unknown = false;
};

/// The steps that the profile was made of took longer than their processor time, since other
/// programs ran; see CrowdedMachine.
struct RecordedBesideOthers {
  double slowed = 1;
};

/// What the host takes for the units of sharded training is assumed, as far as nothing says it.
struct UnitHostAssumed {
  double forward_ms = 0;  ///< Of one micro-batch.
  double backward_ms = 0;
  double optimizer_ms = 0;
};

/// What a kind of parallelism says of how it is simulated; see Parallelism::assumptions().
struct AssumedOfKind {
  std::string text;
};

/// Keys of [ddp] that were chosen, and mean nothing to the kind of parallelism.
struct KeysOfBuckets {
  std::string kind;
  std::vector<std::string> keys;
};

/// A fact that the user of a prediction should know. Reports put it into words
/// (sim/report/notes.h).
using Note = std::variant<KeysOfBuckets,
                          SizesBeyondMeasured,
                          SizesNotMeasured,
                          EmptyBlocksFree,
                          EmptyBlockKeyUnused,
                          ProfileInterference,
                          CollectivesInsidePasses,
                          OutOfMemory,
                          StatedErrors,
                          HostBound,
                          BelowHostFloor,
                          CollectiveNotMeasured,
                          PricesNotMeasured,
                          CostsNothing,
                          OtherSettings,
                          HookNotStarted,
                          TimesOfAnyBatch,
                          DefaultCapStated,
                          OptimizerOfAdamw,
                          ActivationsNotCounted,
                          RecordedBesideOthers,
                          UnitHostAssumed,
                          AssumedOfKind>;

}  // namespace stepsim
