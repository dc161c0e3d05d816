#pragma once

#include <string>
#include <vector>

#include "costmodel/io/json_file.h"
#include "costmodel/terminal/screen.h"
#include "sim/scenario/scenario.h"
#include "sim/study/sweep.h"

namespace stepsim {

/// A sweep and what it shows: the best point, and the scenario as it stands beside it.
struct SweepReport {
  std::vector<SweepPoint> points;
  std::size_t best = 0;  ///< Largest useful tokens per second (for bucket caps: shortest step).
  SweepPoint reference;  ///< DDP's 25 MiB when bucket_cap is swept, else the scenario as it stands.
  std::string reference_name;
  double gap = 0;  ///< How much slower the reference is than the best, as a fraction.
};

[[nodiscard]] SweepReport sweep_report(const Scenario& scenario,
                                       const std::vector<SweepAxis>& axes,
                                       const SweepOptions& options);

/// The best point and what the reference costs more: a sentence.
[[nodiscard]] std::string sweep_headline(const std::vector<SweepAxis>& axes,
                                         const SweepReport& report);
[[nodiscard]] std::string sweep_text(const Scenario& scenario,
                                     const std::vector<SweepAxis>& axes,
                                     const SweepReport& report,
                                     const Screen& screen = {});
[[nodiscard]] Json sweep_json(const std::vector<SweepAxis>& axes, const SweepReport& report);
[[nodiscard]] std::string sweep_csv(const std::vector<SweepAxis>& axes, const SweepReport& report);

}  // namespace stepsim
