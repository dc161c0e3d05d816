#pragma once

#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "costmodel/compute/cost_model.h"
#include "costmodel/network/collective_pricer.h"
#include "costmodel/records/profile.h"

namespace stepsim {

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

/// Prices of collectives from the profile's tables, and from `topology` where there are none.
[[nodiscard]] CollectivePricer collective_pricer(const Profile& profile,
                                                 std::optional<Topology> topology = std::nullopt,
                                                 PricerLimits limits = {});

}  // namespace stepsim
