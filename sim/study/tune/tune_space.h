#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sim/scenario/scenario.h"
#include "sim/study/sweep.h"

namespace stepsim {

/// One key of a tuning space.
struct TuneAxis {
  SweepAxis axis;
  /// Whether it only changes how gradients are reduced: batches and computing stay as they are.
  bool only_reduces = false;
};

/// One point: a policy, and a value for each of its axes and of those that all policies share.
struct TuneChoice {
  std::size_t policy = 0;           ///< In TuneSpace::policies().
  std::vector<std::size_t> own;     ///< [axis of the policy]
  std::vector<std::size_t> shared;  ///< [shared axis]
};

/// The settings that `stepsim tune` searches: all combinations of the axes' values, policy by
/// policy. A key of one policy multiplies that policy's points alone.
class TuneSpace {
 public:
  struct Policy {
    std::string name;
    std::vector<SweepAxis> axes;
  };

  /// `over`: keys with values as `--over` has them; "policy=a,b" chooses policies, else all that
  /// are no reference cases. Without any, the space is made of the sizes of the
  /// policies and of keys of DDP that leave the result of training as it is.
  /// Raises InputError: a key is given twice, belongs to no policy or cannot be tuned; there are
  /// more than kMostPoints, which the message says with their number.
  TuneSpace(const Scenario& scenario, const std::vector<SweepAxis>& over);

  [[nodiscard]] const std::vector<Policy>& policies() const { return policies_; }
  [[nodiscard]] const std::vector<TuneAxis>& shared() const { return shared_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  /// The number of combinations of the shared axes.
  [[nodiscard]] std::size_t shared_size() const { return shared_size_; }
  /// Points are numbered policy by policy; the last shared axis varies fastest. The scenario's own
  /// values come first where it lists them first.
  [[nodiscard]] TuneChoice choice(std::size_t number) const;
  /// The number of a choice.
  [[nodiscard]] std::size_t number(const TuneChoice& choice) const;
  /// The choices that have the scenario's own value of one axis in place of another; none where the
  /// space does not hold the scenario's own values.
  [[nodiscard]] std::vector<TuneChoice> simpler(const TuneChoice& choice) const;
  /// The settings of a choice; `reduces`: with those axes that only reduce.
  /// Where the space is the default one, only those that differ from the scenario: to state a value
  /// can change more than to leave it out, as of a bucket cap.
  [[nodiscard]] std::vector<Setting> settings(const TuneChoice& choice, bool reduces = true) const;
  /// The shared axes of a choice alone.
  [[nodiscard]] std::vector<Setting> shared_settings(const TuneChoice& choice) const;
  /// Returns the settings of a choice as a reader sees them, "bucket_cap 25 MiB"; where the space
  /// is the default one, only those that differ from the scenario.
  [[nodiscard]] std::string text(const TuneChoice& choice) const;
  /// Returns the same words, each setting by itself.
  [[nodiscard]] std::vector<std::string> words(const TuneChoice& choice) const;

  /// What gave the settings, for messages: "--over", or "--set" of the default space.
  [[nodiscard]] std::string option() const { return first_is_own_ ? "--set" : "--over"; }

  static constexpr std::size_t kMostPoints = 2'000'000;

 private:
  void add_default_axes(const Scenario& scenario);
  void add_setting(const SweepAxis& axis, std::size_t value, std::vector<Setting>& settings) const;

  std::vector<Policy> policies_;
  std::vector<TuneAxis> shared_;
  std::size_t shared_size_ = 1;
  std::size_t size_ = 0;
  std::vector<std::size_t> ends_;  ///< [policy] The number after its last point.
  bool first_is_own_ = false;      ///< The first value of each axis is the scenario's.
};

}  // namespace stepsim
