#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "costmodel/io/json_file.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// A policy that can be recommended.
struct Choice {
  std::string policy;
  double useful_tokens_per_s = 0;
  double first_share = 0;  ///< The share of the draws in which it is the fastest choice.
  bool alike = false;      ///< Less than kSmallestGain slower than the fastest choice; it, too.
};

/// Which policy to use, what that gains, and how certain it is.
///
/// A draw pairs one run of each policy under the profile's errors (Prediction::draws). The
/// machine's drift is common to all policies and is divided out. All other errors are taken to be
/// independent between policies. Policies with similar batches share some of them, so that the
/// recommendation is more certain than stated.
struct Recommendation {
  /// Policies on the scenario's own data that fit into memory, fastest first; empty: none does, or
  /// there are none. What is kept comes before all that are alike.
  std::vector<Choice> choices;
  bool only_references = false;  ///< True: no policy is on the scenario's own data.
  double gain = 0;               ///< Useful tokens/s of the first over the second, less 1.
  std::pair<double, double> gain_interval;  ///< Holds 90 % of the draws; both 0 without draws.
  bool unconfirmed = false;                 ///< See Prediction::unconfirmed; of any of them.
  bool drawn = false;  ///< True: there are draws, so that the shares and the interval hold.
  /// The gain of the first over the fastest choice that is not alike; 0 where all are alike.
  double clear_gain = 0;
  std::pair<double, double> clear_interval;  ///< Holds 90 % of the draws.

  /// How many choices are alike: at least 1 where there are any.
  [[nodiscard]] std::size_t alike() const;
  /// Whether no policy gains anything that a run could show over another.
  [[nodiscard]] bool is_flat() const { return choices.size() > 1 && alike() == choices.size(); }
  /// The useful tokens/s of the fastest choice over those of one, less 1.
  [[nodiscard]] double gain_of_fastest(const Choice& choice) const;
  /// The share of the draws in which one of the alike is the fastest choice.
  [[nodiscard]] double alike_share() const;
};

/// What one prediction gains over another.
struct Gain {
  double gain = 0;  ///< Useful tokens/s of the first over the second, less 1.
  /// Holds 90 % of the draws, and the gain; the gain itself without draws.
  std::pair<double, double> interval;
  double faster_share = 0;   ///< The share of the draws in which the first is faster; ties half.
  bool unconfirmed = false;  ///< See Prediction::unconfirmed; of any of the two.
  /// The first is faster by kSmallestGain at least, and in nine of ten draws.
  [[nodiscard]] bool is_certain() const;
};

/// Two live runs of one setting differ by more than this (repeatability, tests/live/RESULTS.md), so
/// that nobody could see a smaller gain.
inline constexpr double kSmallestGain = 0.01;

/// Returns what a speed gains over another, as a fraction: 0 where one of them has none, since its
/// steps take no time.
[[nodiscard]] double gain_over(double first, double second);

/// Returns "97 % likely", or "more than 99 % likely" where the number of draws cannot tell it from
/// 100 %; "by the profile's own errors 97 % likely" where no steps confirm its costs.
[[nodiscard]] std::string likelihood_text(double share, bool unconfirmed);
/// Returns "90 % interval +1.2 to +3.4 %, 97 % likely to be faster". `what`: said of the other one,
/// "slower".
[[nodiscard]] std::string certainty_text(const Gain& gain, const char* what = "faster");

/// Returns how an answer begins that recommends what is there, since `fastest`, what the fastest
/// choice gains over it, is not certain: "Nothing to gain here", "Nothing to gain here, at most
/// 0.6 %" or, where the interval leaves room for more, "Nothing certain to gain here, at most
/// 8.4 %". The most is the end of the interval.
[[nodiscard]] std::string nothing_to_gain_text(const Gain& fastest);

/// Pairs the draws (Prediction::paired_step_ms): what the profile has wrong is wrong in both
/// predictions by the same factors, as for one policy at two bucket sizes.
[[nodiscard]] Gain paired_gain(const Prediction& first, const Prediction& second);

/// Takes all errors of the two but the machine's drift to be independent, as for two policies.
[[nodiscard]] Gain unpaired_gain(const Prediction& first, const Prediction& second);

/// True for a policy on data of its own, unless the scenario says otherwise. It is a reference case
/// that does other work, and so cannot be chosen.
[[nodiscard]] bool is_reference(const Scenario& scenario, const std::string& policy);

/// Returns the useful tokens/s of each draw, with the machine's drift divided out, ascending.
[[nodiscard]] std::vector<double> drawn_speeds(const Prediction& prediction);

/// Ranks the policies and states the gain of the best one.
///
/// Args:
///     kept: The policy that runs already, which comes first where no other gains anything; empty:
///         none does.
[[nodiscard]] Recommendation recommend(const Scenario& scenario,
                                       const std::vector<Prediction>& predictions,
                                       const std::string& kept = "");

/// Formats one sentence on one line: "Use bucketing: 151417 useful tokens/s, +6.7 % over …; ….", or
/// "Nothing to gain here: …".
[[nodiscard]] std::string recommendation_text(const Recommendation& recommendation);
/// Formats the recommendation that follows from these predictions.
[[nodiscard]] std::string recommendation_text(const Scenario& scenario,
                                              const std::vector<Prediction>& predictions,
                                              const std::string& kept = "");
/// Returns the prediction of the first choice; null when there is none.
[[nodiscard]] const Prediction* recommended(const Scenario& scenario,
                                            const std::vector<Prediction>& predictions,
                                            const std::string& kept = "");
/// What a training loop must do for this policy's batches beside taking them, one sentence each:
/// ranks with different numbers of steps or samples, samples that are lost. Empty: nothing, or the
/// epoch was not counted.
[[nodiscard]] std::vector<std::string> training_needs(const Scenario& scenario,
                                                      const Prediction& prediction);
/// Returns {"policy", "gain", "gain_interval90", "nothing_to_gain", "choices": [{"policy",
/// "first_share", "alike", …}]}.
[[nodiscard]] Json recommendation_json(const Recommendation& recommendation);

}  // namespace stepsim
