#pragma once

#include <string>
#include <vector>

#include "costmodel/io/json_file.h"
#include "costmodel/terminal/screen.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/scenario.h"
#include "sim/study/tune/tune.h"

namespace stepsim {

/// Formats the answer: "Use bucketing: batch_size 12: 151417 useful tokens/s, …", or "Nothing to
/// gain here, at most 0.6 %: keep …" where the fastest setting is not faster than the scenario's
/// own for certain; or that none fits.
[[nodiscard]] std::string tune_headline(const TuneSpace& space, const TuneResult& result);
/// `needs`: training_needs() of the answer's setting, said below it; `training`:
/// training_plans_text() of it.
[[nodiscard]] std::string tune_text(const Scenario& scenario,
                                    const TuneSpace& space,
                                    const TuneResult& result,
                                    const Screen& screen = {},
                                    const std::vector<std::string>& needs = {},
                                    const std::string& training = {});
/// Returns {"format": "stepsim-tune/1", …}: the space, what became of its points, the certificate,
/// the finalists and the front.
[[nodiscard]] Json tune_json(const Scenario& scenario,
                             const TuneSpace& space,
                             const TuneResult& result);
/// Returns tune_json() with what the page draws besides: "counts": [[points, what became of them],
/// …], "certificate_words", and "points_priced": those of all priced points that it has room for.
[[nodiscard]] Json tune_page_json(const Scenario& scenario,
                                  const TuneSpace& space,
                                  const TuneResult& result);
/// A policy of the scenario as it stands, like a point of tune_json(). `prediction`: with its steps
/// and its effects on training.
[[nodiscard]] Json tune_own_json(const Prediction& prediction, int warmup_steps);
/// One row a finalist or point of the front.
[[nodiscard]] std::string tune_csv(const TuneSpace& space, const TuneResult& result);

}  // namespace stepsim
