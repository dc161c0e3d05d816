#pragma once

#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "costmodel/collective_table.h"
#include "costmodel/cost_model.h"
#include "costmodel/fit_errors.h"
#include "costmodel/gemm_ratio.h"
#include "costmodel/interference.h"
#include "costmodel/pass_cost.h"

namespace stepsim {

/// How a cost depends on the batch.
enum class CostForm {
  Table,  ///< Knots over the op's own variable (tokens, samples or elements), linear between.
  PerSampleTable,  ///< Samples times knots over the padded length (dense attention parts).
  Features,        ///< Sum of coefficient * feature; features named in the file.
  Roofline,        ///< c0 + c1 * flops + c2 * bytes, for shapes never measured.
  FeaturesRatio,   ///< Sum of features times knots of a ratio, linear between, constant outside.
  RooflineRatio    ///< Roofline times gemm_ratio(): GEMM shapes never measured.
};

/// One fitted cost. Zero in n, k, heads or head_dim means "any" (the class's general form).
struct OpCost {
  OpClass op_class = OpClass::Gemm;
  Pass pass = Pass::Forward;
  Dtype dtype = Dtype::F32;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  CostForm form = CostForm::Table;
  std::vector<std::pair<double, double>> knots;  ///< (variable, seconds or ratio), ascending.
  std::vector<std::string> features;             ///< "1", "samples", "tokens", "tokens*length", …
  std::vector<double> coefficients;              ///< Seconds per unit of each feature.
  std::int64_t processors = 0;                   ///< Of the device, for features of waves.
  GemmRatio gemm_ratio;                          ///< Of RooflineRatio.
  double range_lo = 0;  ///< Measured range of the variable (Features: of tokens or elements).
  double range_hi = 0;
  int samples = 0;
  FitErrors errors;

  bool operator==(const OpCost&) const = default;
};

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
// NOLINTNEXTLINE(bugprone-exception-escape): moving an ordered_json is not marked noexcept.
struct Profile {
  std::string name;
  std::string device;
  std::string backend;                ///< "cpu" or "cuda"
  nlohmann::ordered_json provenance;  ///< Driver, versions, clocks, date, command, sources.
  Bytes memory_capacity;              ///< Per rank; 0 = unknown.
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

[[nodiscard]] std::string_view name_of(CostForm form);  ///< "table", "per_sample_table", …
[[nodiscard]] CostForm parse_cost_form(std::string_view name);  ///< Raises InputError.

/// "format": "stepsim-profile/1", /2 when an entry holds a ratio, /3 with a recorded model. All
/// times in the file are in seconds, so that every double reads back as it was. Checked: ascending
/// knots that are not negative, range, form and its members, no entry twice. Raises InputError
/// (place and key named) or EnvironmentFault.
[[nodiscard]] Profile read_profile(const std::string& path);
/// Written to a temporary name and renamed. Raises EnvironmentFault.
void write_profile(const std::string& path, const Profile& profile);

/// Whether attention's cost counts the empty blocks of a varlen grid.
[[nodiscard]] bool prices_empty_blocks(const Profile& profile);

/// Mean error of a shape that was never measured: roofline sums on A100, one model left out of the
/// fit (NeuSight's labels).
inline constexpr double kUnseenShapeError = 0.065;

/// Costs from a profile.
///
/// Lookup order for an op: the entry with its exact sizes, class, pass and dtype; for attention
/// classes the one with its head_dim and free heads; the entry with all sizes free; else InputError
/// naming what to measure. What the last two price is marked unseen_shape, with an error of at
/// least kUnseenShapeError; ops over Elements are not, as the number of elements is their variable.
/// An op over tokens or samples costs nothing for an empty batch. Collectives: CollectivePricer.
class ProfileCostModel : public CostModel {
 public:
  /// `max_extrapolation`: refuse beyond this factor of the measured range.
  explicit ProfileCostModel(Profile profile, double max_extrapolation = 4.0);

  [[nodiscard]] Cost op(const Op& op, const BatchShape& batch) const override;
  [[nodiscard]] double launch_seconds() const override { return profile_.launch_seconds; }
  [[nodiscard]] bool host_is_device() const override { return profile_.host_is_device; }
  [[nodiscard]] const Profile& profile() const { return profile_; }

 private:
  /// Class, pass, dtype, n, k, heads, head_dim.
  using Key =
      std::tuple<OpClass, Pass, Dtype, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
  struct Found {
    const OpCost* cost = nullptr;
    bool exact = false;
  };
  [[nodiscard]] Found find(const Op& op) const;
  [[nodiscard]] const OpCost* at(const Key& key) const;

  Profile profile_;
  double max_extrapolation_;
  std::vector<std::pair<Key, std::size_t>> index_;  ///< Sorted; positions in profile_.ops.
};

}  // namespace stepsim
