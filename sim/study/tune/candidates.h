#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/predict/run/jobs.h"
#include "sim/scenario/scenario.h"
#include "sim/study/tune/tune_space.h"
#include "sim/study/tune/work_bound.h"

namespace stepsim {

/// A point that may be priced, with what is known of it before.
struct Candidate {
  std::size_t number = 0;   ///< In the space.
  double bound = 0;         ///< Useful tokens/s: it cannot be faster.
  double memory_mib = 0;    ///< Peak, by the formulas.
  double displacement = 0;  ///< TrainingEffects::displacement.
  double left_out = 0;      ///< WorkBound::left_out.
  double samples = 0;       ///< Per step, over all ranks.
};

/// Points that are not priced, by the reason.
struct LeftOut {
  std::size_t refused = 0;  ///< The scenario or the profile does not allow them.
  std::string first_refusal;
  std::size_t out_of_memory = 0;  ///< By the formulas, before anything is priced.
  std::size_t outside_limits = 0;
  std::size_t same_buckets = 0;  ///< Another point has the same buckets, and is the same.
};

struct CandidateOptions {
  TuneLimits limits;
  bool keeps_same_buckets = false;  ///< Points with the same buckets stay apart.
  int threads = 0;                  ///< 0: one a core.
};

/// Returns what the policies of a space are as the scenario has them.
[[nodiscard]] std::vector<WorkBound> own_works(const TuneSpace& space, Jobs& jobs);

/// The limits, and where they say nothing of samples and tokens: the samples of a step lie within a
/// quarter of those that the scenario's own policies have. Else more accumulation always wins.
[[nodiscard]] TuneLimits completed_limits(TuneLimits limits, const std::vector<WorkBound>& own);

/// Returns the points of a space that may be priced, those with the highest bound first, and counts
/// all others. A bound is the useful tokens of a step over least_step_s().
[[nodiscard]] std::vector<Candidate> find_candidates(const Scenario& scenario,
                                                     const TuneSpace& space,
                                                     const CandidateOptions& options,
                                                     Jobs& jobs,
                                                     LeftOut& left_out);

}  // namespace stepsim
