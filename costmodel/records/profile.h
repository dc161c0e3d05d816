#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "costmodel/compute/cost_model.h"
#include "costmodel/compute/fit_errors.h"
#include "costmodel/compute/op_cost.h"
#include "costmodel/compute/pass_cost.h"
#include "costmodel/io/json_value.h"
#include "costmodel/network/collective_table.h"
#include "costmodel/network/interference.h"

namespace stepsim {

/// Machine noise seen while calibrating, as fractions of a step.
struct NoiseProfile {
  double step_jitter = 0;       ///< Standard deviation of one step around its median.
  double drift = 0;             ///< Standard deviation of the sentinel over the calibration.
  double sentinel_seconds = 0;  ///< Median time of the sentinel measurement; 0 = none.
  /// Evenly spaced quantiles of a rank's step over its mean, in place of `step_jitter`; may be
  /// empty.
  std::vector<double> step_quantiles = {};
  /// How much of a step's jitter its ranks have in common: the correlation of the normal draws
  /// behind it, 0 .. 1.
  double rank_correlation = 0;

  bool operator==(const NoiseProfile&) const = default;
};

/// What overlapped measurements say about interference.
struct InterferenceProfile {
  using Interval = std::pair<double, double>;

  Interference value;
  /// 90 % intervals of the members of `value`; absent where one sample or none tells.
  std::optional<Interval> compute;
  std::optional<Interval> transfer;
  std::optional<Interval> memory_share;
  int samples = 0;
  FitErrors errors;  ///< Of times beside each other; `random`: each sample left out.

  bool operator==(const InterferenceProfile&) const = default;
};

/// The calibration of one machine: what `stepcal fit` writes and `stepsim` reads.
struct Profile {
  std::string name;
  std::string device;
  std::string backend;    ///< "cpu" or "cuda"
  JsonValue provenance;   ///< Driver, versions, clocks, date, command, sources.
  Bytes memory_capacity;  ///< Per rank; 0 = unknown.
  std::vector<OpCost> ops;
  std::vector<CollectiveCost> collectives;
  double launch_seconds = 0;
  bool host_is_device = true;
  /// Processor cores that the ranks of a node share, where the costs are those of a rank with a
  /// core of its own; 0: ranks do not slow each other.
  int cores = 0;
  NoiseProfile noise;
  std::optional<InterferenceProfile> interference;  ///< Absent: not measured.
  std::optional<RecordedModel> recorded;            ///< Takes the place of `ops` for its own model.

  bool operator==(const Profile&) const = default;
};

/// "format": "stepsim-profile/1", /2 when an entry holds a ratio, /3 with a recorded model. All
/// times in the file are in seconds, so that every double reads back as it was. Checked: ascending
/// knots that are not negative, range, form and its members, no entry twice. Raises InputError
/// (place and key named) or EnvironmentFault.
[[nodiscard]] Profile read_profile(const std::string& path);
/// Written to a temporary name and renamed. Raises EnvironmentFault.
void write_profile(const std::string& path, const Profile& profile);

/// Whether attention's cost counts the empty blocks of a varlen grid.
[[nodiscard]] bool prices_empty_blocks(const Profile& profile);

/// Puts a table into the profile in place of those of the same kind, ranks and nodes.
void replace_table(Profile& profile, CollectiveCost table);

}  // namespace stepsim
