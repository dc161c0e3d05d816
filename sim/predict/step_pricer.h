#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "costmodel/network/collective_pricer.h"
#include "sim/predict/step_lowering.h"

namespace stepsim {

/// The lowering of a scenario's step together with the prices of its collectives: everything that a
/// rank's program needs to know of costs.
class StepPricer : public StepLowering {
 public:
  /// `priced`: with the prices of the ops. `unit_host`: of which the scenario's own times take
  /// precedence. All that these refer to must outlive the pricer.
  StepPricer(const StepLowering& priced,
             const Scenario& scenario,
             const CollectivePricer& pricer,
             const UnitHost& unit_host)
      : StepLowering(priced, scenario), pricer_(pricer), unit_host_(unit_host) {}

  /// What is priced from here on belongs to the step of this number, from 0. The first step of a
  /// run and those of its warm-up may hold collectives that no other has, as the one bucket of
  /// DDP's first iteration: a size too far outside the measured range is refused in the others
  /// alone.
  void begin_step(int number);
  /// Seconds of a collective of so many bytes.
  double collective_seconds(CollectiveKind kind, double bytes, const RankGroup& group = {});
  /// Costs of DDP's own work; they refer to this pricer and must not outlive it. `common`: a factor
  /// on all collectives.
  [[nodiscard]] StepPrices ddp_prices(const CostFactors& factors, double common);
  /// Whether copies around gathers and reductions have a price by the byte, since none of the
  /// profile's says what they take.
  [[nodiscard]] bool copies_by_byte() const { return unit_host_.byte_seconds > 0; }
  /// Returns the same prices, but kernels have the numbers of their work for labels and take no
  /// time.
  [[nodiscard]] StepPrices numbered_prices(const CostFactors& factors, double common);

  /// The shared error of all collectives priced so far, weighted by their times.
  [[nodiscard]] double collective_error() const {
    return priced_seconds_ > 0 ? error_seconds_ / priced_seconds_ : 0;
  }
  /// [draw] What other fits of the links make of all collectives priced so far, as factors weighted
  /// by their times; empty where no links were fitted.
  [[nodiscard]] std::vector<double> collective_draws() const;
  /// Where the prices of the collectives come from: by the words of a report, each once.
  [[nodiscard]] const std::map<std::string, CollectiveSource>& collective_sources() const {
    return sources_;
  }

 private:
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> memory_pass(double bytes) const;

  const CollectivePricer& pricer_;
  UnitHost unit_host_;
  double priced_seconds_ = 0;
  double error_seconds_ = 0;
  std::vector<double> drawn_seconds_;  ///< [draw] Under the draws of fitted links.
  std::map<std::string, CollectiveSource> sources_;
  std::map<std::tuple<CollectiveKind, std::int64_t, int, int>, double> prices_;
  std::set<std::tuple<CollectiveKind, std::int64_t, int, int>>
      beyond_;            ///< Too far outside for others.
  bool refuses_ = true;   ///< Whether sizes too far outside are refused in this step,
  bool is_noted_ = true;  ///< and whether its prices count in the means.
};

}  // namespace stepsim
