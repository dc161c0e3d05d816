#pragma once

#include <optional>
#include <vector>

#include "costmodel/compute/host_floor.h"
#include "costmodel/compute/pass_cost.h"
#include "sim/predict/run/run.h"

namespace stepsim {

/// What other fits to a recorded model's steps make of a run's passes, as factors, and other hosts
/// where the fits come to less than a host usually needs.
class PassDraws {
 public:
  /// No draws where the run's passes are not those of a recorded model.
  explicit PassDraws(const Run& run);

  /// Whether there is anything to draw for the passes.
  [[nodiscard]] bool any() const { return !forward_.ratios.empty() || floor_; }
  /// Whether some batch is priced, or may have to be, by what the host takes at least.
  [[nodiscard]] bool by_host() const { return floor_.has_value(); }
  /// The factor on the forward. `place`: which draw, from 0 to 1; `host`: the factor on what the
  /// host takes at least.
  [[nodiscard]] double forward(double place, double host) const;
  [[nodiscard]] double backward(double place, double host) const;

 private:
  /// One pass of all batches.
  struct Part {
    std::vector<double> ratios;  ///< [draw] Without a floor.
    PassCost cost;
    std::vector<std::vector<double>> rows;  ///< [kind of batch][feature]
    std::vector<double> smallest;           ///< [feature] Of the smallest batch that was timed.
  };
  /// What the host takes at least, by the pass's seconds for the smallest batch that was timed.
  using Least = double (HostFloor::*)(double factor, double timed) const;

  void set_rows(const Run& run, const HostFloor& floor, bool varlen, Part& part) const;
  [[nodiscard]] bool is_short(const Part& part, Least least, const HostFloor& floor) const;
  [[nodiscard]] double factor(const Part& part, Least least, double place, double host) const;
  [[nodiscard]] double total(const Part& part,
                             Least least,
                             const std::vector<double>& coefficients,
                             double host) const;

  Part forward_;
  Part backward_;
  std::vector<double> counts_;  ///< [kind of batch]
  std::optional<HostFloor> floor_;
};

}  // namespace stepsim
