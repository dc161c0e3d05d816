#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "costmodel/base/progress_callback.h"
#include "sim/points/point_runner.h"
#include "sim/predict/prediction.h"
#include "sim/study/recommendation.h"
#include "sim/study/tune/candidates.h"
#include "sim/study/tune/tune_space.h"

namespace stepsim {

/// The most finalists that a search names.
inline constexpr std::size_t kMostFinalists = 8;

/// What one point comes to when it is priced in full.
struct TunePrice {
  std::string refused;  ///< Why it cannot be; else empty.
  bool out_of_memory = false;
  bool unconfirmed = false;  ///< See Prediction::unconfirmed.
  double step_ms = 0;  ///< The mean steady step, as are the tokens; without noise unless drawn.
  double low90_ms = 0;
  double high90_ms = 0;
  double useful_tokens = 0;
  double memory_mib = 0;               ///< Peak.
  std::vector<double> paired_step_ms;  ///< [draw] Prediction::paired_step_ms; empty: no noise.
  std::vector<Note> notes;             ///< Prediction::notes

  [[nodiscard]] double useful_tokens_per_s() const {
    return step_ms > 0 ? 1e3 * useful_tokens / step_ms : 0;
  }
};

struct TuneOptions {
  TuneLimits limits;
  double within = 0.01;          ///< The search ends when nothing can be faster by more than this.
  std::size_t most_priced = 0;   ///< Points priced in full at most; 0: no limit.
  std::size_t most_front = 256;  ///< Of them, for the front alone.
  bool draws = true;             ///< False: nothing is drawn with noise.
  bool exhaustive = false;       ///< Prices all points that the limits and the memory leave.
  int threads = 0;               ///< Of the bounds; 0: one a core.
  ProgressCallback on_progress = {};
};

/// A point that was priced in full.
struct TunedPoint {
  std::size_t number = 0;  ///< In the space.
  TuneChoice choice;
  double bound_tokens_per_s = 0;  ///< It cannot be faster than this.
  double displacement = 0;        ///< TrainingEffects::displacement.
  double left_out = 0;            ///< WorkBound::left_out.
  double samples = 0;             ///< Per step, over all ranks.
  TunePrice price;                ///< Without noise.
  TunePrice drawn;                ///< With noise, for finalists alone.
  Gain gain;                      ///< Of the first over this one, for finalists alone.
};

/// A policy of the scenario as it stands, for comparison.
struct TuneReference {
  std::string policy;
  TunePrice price;
  double left_out = 0;        ///< WorkBound::left_out.
  bool meets_limits = false;  ///< Whether it may be taken at all.
  Gain gain;                  ///< Of the first finalist over it.
};

/// What a search found. Each point of the space is left out for a reason, priced, bounded or open.
struct TuneResult : LeftOut {
  std::vector<Setting> overrides;  ///< Of the scenario, which all points have.
  std::size_t points = 0;
  std::size_t priced = 0;   ///< In full.
  std::size_t bounded = 0;  ///< They cannot be faster than the best by more than `certificate`.
  std::size_t close = 0;    ///< Of those bounded: their bounds are within the finalists' range.
  std::size_t open = 0;     ///< Neither priced nor bounded: the search was ended before.
  double certificate = 0;   ///< Nothing in the space is faster than the first finalist by more.
  double open_gain = 0;     ///< What an open point could gain at most.
  /// The fastest first: those that are nearly as fast, or the first three. What changes less of the
  /// scenario and is slower by less than kSmallestGain comes before it (`simplified`). Empty: none
  /// fits into memory.
  std::vector<TunedPoint> finalists;
  bool simplified = false;      ///< The first finalist changes less than the second, the fastest.
  std::vector<TunedPoint> all;  ///< All that were priced and can run, the fastest first.
  /// Whatever point of the space one takes, one of these leaves out no more of an epoch and is as
  /// good up to TuneOptions::within, in speed and in memory as a share of it and in order as a
  /// share of an epoch; but for `front_open` points that were not priced.
  std::vector<TunedPoint> front;
  std::size_t front_priced = 0;  ///< Of those priced: for the front alone.
  std::size_t front_open = 0;
  std::vector<TuneReference> references;
  /// How much faster than the best the fastest finalist of a draw is: in the draw that is the 95th
  /// of a hundred.
  double regret95 = 0;
  std::size_t alike = 0;  ///< Points that come to the same as a finalist, and are left out.
};

/// Returns the fastest of the scenario's own policies, of those that meet the limits if there are
/// any; null where none can run.
[[nodiscard]] const TuneReference* best_reference(const TuneResult& result);

/// Whether to change anything: what the scenario has does not run or meet the limits, or the best
/// finalist is faster for certain.
[[nodiscard]] bool is_better(const TuneResult& result);

/// Searches the space best first. Points are priced in the order of their bounds, sixteen at a
/// time, until the next bound is not more than `within` above the fastest found. What remains
/// cannot be faster than that, which is the certificate. Then those are priced which could be on
/// the front. Changes of the scenario that gain less than kSmallestGain all together are taken back
/// from the fastest setting where the rest is still faster than the scenario for certain. The
/// certificate holds for steps without noise; the finalists are then drawn with
/// noise, under the same errors.
///
/// Raises InputError: no point is left that could run if it had the memory.
[[nodiscard]] TuneResult tune(Jobs& jobs,
                              const TuneSpace& space,
                              const TuneOptions& options,
                              PointRunner& runner);

}  // namespace stepsim
