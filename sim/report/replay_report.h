#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "costmodel/io/json_file.h"
#include "costmodel/terminal/screen.h"
#include "sim/replay/launch_replay.h"
#include "sim/replay/pipeline_replay.h"

namespace stepsim {

/// Errors of replayed against measured steps, as fractions of the measured ones.
struct ReplayError {
  double mean_absolute = 0;
  double worst = 0;  ///< Largest absolute one.
  double bias = 0;   ///< Mean with its sign; below zero the replay is early.
};

/// One step of a pipeline job.
struct ReplayedStep {
  std::int32_t number = 0;
  Duration measured{0};
  Duration replayed{0};
  Duration balanced{0};  ///< Replayed with every micro-batch at its stage's mean.
};

struct PipelineReplay {
  std::string path;
  std::int32_t replicas = 0;
  std::int32_t stages = 0;
  std::int64_t rows = 0;
  std::vector<ReplayedStep> steps;
  std::vector<CutStep> cut;  ///< Steps that were not replayed.
};

/// What the text of a pipeline replay shows of each step.
struct StepColumns {
  bool all_steps = false;  ///< Else the worst few.
  bool balanced = false;
};

/// Errors over the ranks with a measured step that is not cut, and over the steps; zeros when there
/// are none.
[[nodiscard]] ReplayError replay_error(const LaunchReplay& replay);
[[nodiscard]] ReplayError replay_error(const PipelineReplay& replay);

/// Step by rank, the error, and the collectives.
[[nodiscard]] std::string replay_text(const LaunchReplay& replay, const Screen& screen = {});
/// Mean step, the error, what imbalance costs, and steps.
[[nodiscard]] std::string replay_text(const PipelineReplay& replay,
                                      const StepColumns& columns,
                                      const Screen& screen = {});

[[nodiscard]] Json replay_json(const LaunchReplay& replay);
[[nodiscard]] Json replay_json(const PipelineReplay& replay);

/// One row a rank or a step.
[[nodiscard]] std::string replay_csv(const LaunchReplay& replay);
[[nodiscard]] std::string replay_csv(const PipelineReplay& replay);

}  // namespace stepsim
