#pragma once

#include <string>
#include <utility>
#include <vector>

#include "costmodel/io/json_file.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// A policy that may be used, with the share of the draws in which it is the fastest of them.
struct Choice {
  std::string policy;
  double useful_tokens_per_s = 0;
  double first_share = 0;
};

/// Which policy to use, what that gains, and how sure it is.
///
/// A draw pairs one run of each policy under the profile's errors (Prediction::draws). The drift of
/// the machine is the same for all policies, so it is divided out. All other errors are taken as
/// independent between policies; where their batches are alike they are not, and the truth is surer
/// than stated.
struct Recommendation {
  /// Policies on the scenario's own data that fit into memory, fastest first; empty: none does.
  std::vector<Choice> choices;
  double gain = 0;  ///< Useful tokens/s of the first over the second, less 1.
  std::pair<double, double> gain_interval;  ///< 90 % of the draws; both 0 without draws.
  bool drawn = false;                       ///< Whether there are draws: shares and interval hold.
};

/// A policy on data of its own is a reference case: other work, so not a choice.
[[nodiscard]] bool is_reference(const Scenario& scenario, const std::string& policy);

/// Useful tokens/s of each draw, the machine's drift divided out; ascending.
[[nodiscard]] std::vector<double> drawn_speeds(const Prediction& prediction);

[[nodiscard]] Recommendation recommend(const Scenario& scenario,
                                       const std::vector<Prediction>& predictions);

/// "Use bucketing: 151417 useful tokens/s, +6.7 % over …; …." in one sentence and line.
[[nodiscard]] std::string recommendation_text(const Recommendation& recommendation);
/// The same of predictions.
[[nodiscard]] std::string recommendation_text(const Scenario& scenario,
                                              const std::vector<Prediction>& predictions);
/// The prediction of the first choice; null: there is none.
[[nodiscard]] const Prediction* recommended(const Scenario& scenario,
                                            const std::vector<Prediction>& predictions);
/// {"policy", "gain", "gain_interval90", "choices": [{"policy", "first_share", …}]}
[[nodiscard]] Json recommendation_json(const Recommendation& recommendation);

}  // namespace stepsim
