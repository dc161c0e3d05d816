#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "calibrate/import/recorded/recorded_run.h"
#include "costmodel/compute/shape_cost.h"

namespace stepsim {

/// Recorded steps without those in which a rank compiled.
struct SteadyCompiled {
  std::vector<RecordedRun> runs;
  std::optional<ShapeCost> cost;   ///< What a graph costs; nothing where none was compiled.
  std::vector<std::string> notes;  ///< What was found.
};

/// Takes out the steps in which torch.compile made graphs: all ranks' rows of them, since the
/// others waited.
///
/// A row is one of these where the recorder marked it (StepRecord::compiled_graphs). In a record
/// without marks, a step tens of times as long as others of its size is taken for one: of a model
/// in torch.compile's wrapper any, else those behind the warm-up that also take half a second
/// longer (on a GPU first steps take long for other reasons).
///
/// The cost is what a forward and a backward of such a row take beyond others of its size, in the
/// mean; the wait for a rank that still compiled its forward is not the backward's. Which shapes
/// need a graph is what torch.compile was told (`dynamic`), else whichever of its modes explains
/// most of the recorded steps, "automatic" where several do.
[[nodiscard]] SteadyCompiled without_compiles(std::vector<RecordedRun> runs);

}  // namespace stepsim
