#pragma once

#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "costmodel/compute/cost_model.h"
#include "costmodel/compute/fit_errors.h"
#include "costmodel/compute/op_cost.h"
#include "costmodel/compute/pass_cost.h"
#include "costmodel/compute/shape_cost.h"
#include "costmodel/io/json_value.h"
#include "costmodel/network/collective_table.h"
#include "costmodel/network/fitted_links.h"
#include "costmodel/network/interference.h"

namespace stepsim {

/// Rare moments that hold up a whole step, whatever its batches: checkpoints, evaluations, garbage
/// collections.
struct StallNoise {
  double per_step = 0;               ///< How many a step, 0 .. 1.
  std::vector<double> seconds = {};  ///< How long they are, ascending, all as frequent.
  /// The mean step that they were recorded in, without them, where other programs share the
  /// processor: those of less than two steps then come by the clock. 0: each step has as many.
  double step_seconds = 0;
  int steps = 0;  ///< In so many of which they were counted; 0: not told.

  /// The share of those by the clock that predictions count: as if 100 more steps had been recorded
  /// without any.
  [[nodiscard]] double counted_share() const { return steps / (steps + 100.0); }
  /// What they add to the mean step.
  [[nodiscard]] double seconds_per_step() const {
    return seconds.empty() ? 0
                           : per_step * std::accumulate(seconds.begin(), seconds.end(), 0.0) /
                                 static_cast<double>(seconds.size());
  }

  bool operator==(const StallNoise&) const = default;
};

/// What other programs took of the processors while steps were recorded.
struct CrowdedMachine {
  /// Wall over processor time of the recorded forwards, beyond what sharing cores with other ranks
  /// makes of it; 1: the ranks had the machine for themselves, or it is not known.
  double slowed = 1;
  /// Standard deviation of the logarithm of `slowed` among runs as long as the recorded one.
  double run_spread = 0;

  /// So much that it should be said.
  [[nodiscard]] bool is_crowded() const { return slowed > 1; }

  bool operator==(const CrowdedMachine&) const = default;
};

/// Machine noise seen while calibrating, as fractions of a step.
struct NoiseProfile {
  double step_jitter = 0;       ///< Standard deviation of single steps around their median.
  double drift = 0;             ///< Standard deviation of the sentinel during the calibration.
  double sentinel_seconds = 0;  ///< Median time of the sentinel measurement; 0: not measured.
  /// Evenly spaced quantiles of a rank's step time over its mean. They replace `step_jitter` unless
  /// empty.
  std::vector<double> step_quantiles = {};
  /// The correlation, 0 .. 1, of the normal draws that make the jitter of a step's ranks: how much
  /// of the jitter the ranks have in common.
  double rank_correlation = 0;
  /// Standard deviation of a step's error where its ops have the prices of other models and no run
  /// has confirmed them. It widens the interval of the step time and leaves gains as they are.
  double other_models = 0;
  StallNoise stalls = {};
  CrowdedMachine crowded = {};

  bool operator==(const NoiseProfile&) const = default;
};

/// Interference as measured while compute and collectives overlapped.
struct InterferenceProfile {
  using Interval = std::pair<double, double>;

  Interference value;
  /// 90 % intervals of the members of `value`; absent when at most one sample determines a member.
  std::optional<Interval> compute;
  std::optional<Interval> transfer;
  std::optional<Interval> memory_share;
  /// [draw] `value.compute` in other fits that are as good, in the order of the recorded model's
  /// draws; empty where it was fitted by itself.
  std::vector<double> compute_draws = {};
  int samples = 0;
  FitErrors errors;  ///< Errors of the overlapped times; `random` leaves one sample out at a time.

  bool operator==(const InterferenceProfile&) const = default;
};

/// What a host spends on the units of sharded training (fully_shard), in seconds of its own thread,
/// which waits for nothing in them.
struct UnitHostTimes {
  double forward = 0;         ///< The hooks of a unit in its forward,
  double forward_tensor = 0;  ///< and more of it for each of its tensors.
  double backward = 0;        ///< Likewise in its backward.
  double backward_tensor = 0;
  double optimizer_tensor = 0;  ///< What the optimizer takes more for a tensor that is sharded.
  /// On a CPU: for each byte that copies around gathers and reductions read or write. 0: not
  /// measured.
  double byte = 0;

  bool operator==(const UnitHostTimes&) const = default;
};

/// What PyTorch 2.15 takes on an AMD EPYC, by its hooks alone (a process group that does nothing,
/// 10 and 30 units of 1 to 40 tensors) and by its optimizers: AdamW with foreach on a GPU, one
/// tensor after another on a CPU, each by its default.
[[nodiscard]] UnitHostTimes usual_unit_times(bool on_cpu);

/// The content_id() of the file that a profile was read from; empty for one that was made in
/// memory. Profiles are equal whatever file they come from.
struct ProfileId {
  std::string text;

  bool operator==(const ProfileId& /*other*/) const { return true; }
};

/// The calibration of one machine: what `stepcal fit` writes and `stepsim` reads.
struct Profile {
  std::string name;
  ProfileId id;
  std::string device;
  std::string backend;    ///< "cpu" or "cuda"
  JsonValue provenance;   ///< Driver, versions, clocks, date, command, sources.
  Bytes memory_capacity;  ///< Device memory of one rank; 0: unknown.
  std::vector<OpCost> ops;
  std::vector<CollectiveCost> collectives;
  std::optional<FittedLinks> links;  ///< For collectives without a table; absent: not fitted.
  double launch_seconds = 0;
  double launch_error = 0;  ///< Relative standard deviation of that from run to run.
  /// The share of DDP's copies of gradients in the ops by which the host's time in a step was
  /// divided.
  double launched_copies = 0;
  bool host_is_device = true;
  std::optional<UnitHostTimes> unit_host;  ///< Absent: not measured.
  /// Processor cores that the ranks of a node share; the costs are then those of a rank that has a
  /// core of its own. 0: ranks do not slow each other.
  double cores = 0;
  /// [rank] A rank's time over that of the costs, where ranks are steadily unequal; empty: alike.
  std::vector<double> rank_factors;
  NoiseProfile noise;
  std::optional<InterferenceProfile> interference;  ///< Absent: not measured.
  std::vector<ShapeCost> new_shapes;      ///< What a shape costs when a rank meets it first.
  std::optional<RecordedModel> recorded;  ///< Replaces `ops` for the model it holds.

  bool operator==(const Profile&) const = default;
};

/// Reads a profile, a file or a shipped one by its name (profile_path()). Its "format" is
/// "stepsim-profile/1", or /2 when an entry holds a ratio, or /3 with a recorded model, or /4 with
/// costs of new shapes, or /5 with fitted links, or /6 with unequal ranks, or /12 with the host's
/// times for sharded units, or /13 with launched copies, or /14 with a compiler's graphs. All times
/// in the file are seconds, so that every double reads back unchanged. Raises InputError that names
/// place and key, unless knots ascend and are not negative, ranges and each form's members are
/// valid and no entry occurs twice.
[[nodiscard]] Profile read_profile(const std::string& named);
/// Writes a profile as AtomicFile does. Raises EnvironmentFault.
void write_profile(const std::string& path, const Profile& profile);

/// Says whose compute prices a profile has that were not measured by stepcal: "composed from
/// published figures; …", of the profile itself or of the one that it was made on. Empty: measured,
/// or the profile does not say.
[[nodiscard]] std::string compute_prices_origin(const Profile& profile);

/// Tells whether attention's cost counts the empty blocks of a varlen grid.
[[nodiscard]] bool prices_empty_blocks(const Profile& profile);

/// Adds a table to the profile and removes those of the same kind, ranks and nodes.
void replace_table(Profile& profile, CollectiveCost table);

}  // namespace stepsim
