#pragma once

#include <string>

#include "costmodel/io/json_file.h"
#include "costmodel/terminal/screen.h"
#include "sim/scenario/scenario.h"
#include "sim/study/tune/tune.h"

namespace stepsim {

/// Formats one sentence: "Use bucketing with …: 151417 useful tokens/s, …".
[[nodiscard]] std::string tune_headline(const TuneSpace& space, const TuneResult& result);
[[nodiscard]] std::string tune_text(const Scenario& scenario,
                                    const TuneSpace& space,
                                    const TuneResult& result,
                                    const Screen& screen = {});
/// Returns {"format": "stepsim-tune/1", …}: the space, what became of its points, the certificate,
/// the finalists and the front.
[[nodiscard]] Json tune_json(const Scenario& scenario,
                             const TuneSpace& space,
                             const TuneResult& result);
/// One row a finalist or point of the front.
[[nodiscard]] std::string tune_csv(const TuneSpace& space, const TuneResult& result);

}  // namespace stepsim
