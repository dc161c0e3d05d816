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

/// The mean relative error of a shape that was never measured. It is that of roofline sums on A100
/// with one model left out of the fit (NeuSight's labels).
inline constexpr double kUnseenShapeError = 0.065;

/// Prices ops by the fitted costs of a profile.
///
/// For an op it takes the first of: the entry with the op's exact sizes, class, pass and dtype; for
/// attention classes, the entry with its head_dim and any heads; the entry with any sizes. When
/// there is none it raises InputError and names what to measure. Prices from the last two are
/// marked unseen_shape and have an error of at least kUnseenShapeError, except for ops over
/// Elements, whose cost is a function of their size. An op over tokens or samples costs nothing for
/// an empty batch.
class ProfileCostModel : public CostModel {
 public:
  /// Batches beyond `max_extrapolation` times the measured range are refused.
  explicit ProfileCostModel(Profile profile, double max_extrapolation = 4.0);

  [[nodiscard]] Cost op(const Op& op, const BatchShape& batch) const override;
  [[nodiscard]] double launch_seconds() const override { return profile_.launch_seconds; }
  [[nodiscard]] double launch_error() const override { return profile_.launch_error; }
  [[nodiscard]] double launched_copies() const override { return profile_.launched_copies; }
  [[nodiscard]] bool host_is_device() const override { return profile_.host_is_device; }
  [[nodiscard]] const Profile& profile() const { return profile_; }

 private:
  /// An entry's class, pass, dtype, n, k, heads and head_dim.
  using Key =
      std::tuple<OpClass, Pass, Dtype, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
  struct Found {
    const OpCost* cost = nullptr;
    bool exact = false;
  };
  [[nodiscard]] Found find(const Op& op) const;
  [[nodiscard]] std::string other_types(const Op& op) const;
  [[nodiscard]] std::string priced_attention(Dtype dtype) const;
  [[nodiscard]] std::string in_place_of(const Op& op) const;
  [[nodiscard]] std::string larger_advice(const OpCost& cost, const Op& op) const;
  [[nodiscard]] const OpCost* at(const Key& key) const;

  Profile profile_;
  double max_extrapolation_;
  std::vector<std::pair<Key, std::size_t>> index_;  ///< Positions in profile_.ops, sorted by key.
};

/// Returns a pricer of collectives that uses the profile's tables, and `topology` where no table
/// applies.
[[nodiscard]] CollectivePricer collective_pricer(const Profile& profile,
                                                 std::optional<Topology> topology = std::nullopt,
                                                 PricerLimits limits = {});

}  // namespace stepsim
