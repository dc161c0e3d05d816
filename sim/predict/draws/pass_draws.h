#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "costmodel/compute/host_floor.h"
#include "costmodel/compute/pass_cost.h"
#include "sim/predict/run/run.h"

namespace stepsim {

/// What other fits to a recorded model's steps make of a run's passes, as factors, and other hosts
/// where the fits come to less than a host usually needs. The factors are those of the slowest rank
/// of each step, whichever that is under a fit, since the others wait for it.
class PassDraws {
 public:
  /// Factors on the two passes.
  struct Factors {
    double forward = 1;
    double backward = 1;
  };

  /// No draws where the run's passes are not those of a recorded model.
  explicit PassDraws(const Run& run);

  /// Whether there is anything to draw for the passes.
  [[nodiscard]] bool any() const { return !ratios_.empty() || floor_; }
  /// Whether some batch is priced, or may have to be, by what the host takes at least.
  [[nodiscard]] bool by_host() const { return floor_.has_value(); }
  /// `place`: which draw, from 0 to 1; `host`: the factor on what the host takes at least.
  [[nodiscard]] Factors factors(double place, double host) const;

 private:
  /// A pass of all kinds of batches.
  struct Part {
    PassCost cost;
    std::vector<std::vector<double>> rows;  ///< [kind][feature]
    std::vector<double> smallest;           ///< [feature] Of the smallest batch that was timed.
  };
  /// What the host takes at least, by the pass's seconds for the smallest batch that was timed.
  using Least = double (HostFloor::*)(double factor, double timed) const;

  [[nodiscard]] Part part_of(const PassCost& cost, const Run& run, bool varlen) const;
  [[nodiscard]] bool is_short(const Part& part, Least least, const HostFloor& floor) const;
  /// [kind] seconds of a pass.
  [[nodiscard]] std::vector<double> seconds(const Part& part,
                                            Least least,
                                            const std::vector<double>& coefficients,
                                            double host) const;
  /// Seconds of the slowest rank's passes, over all steps.
  [[nodiscard]] Factors of_slowest(const std::vector<double>& forward,
                                   const std::vector<double>& backward) const;
  [[nodiscard]] Factors priced(double host) const;
  [[nodiscard]] Factors drawn(std::size_t draw, double host) const;

  Part forward_;
  Part backward_;
  std::vector<std::uint32_t> kinds_;  ///< By step, then rank, then micro-batch.
  std::vector<bool> empty_;           ///< [kind] Whether it has no samples.
  std::size_t ranks_ = 1;
  std::size_t micro_batches_ = 1;
  std::vector<Factors> ratios_;  ///< [draw] Without a floor.
  std::optional<HostFloor> floor_;
};

}  // namespace stepsim
