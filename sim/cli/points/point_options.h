#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/cli/options.h"
#include "sim/points/point_runner.h"

namespace stepsim {

/// --threads, --resume and --shard: how the points of a study are computed.
void add_point_options(OptionParser& parser);

/// The runner that these options, and the request, ask for. `command`: "sweep".
///
/// Raises InputError: an option is wrong, the file of --resume belongs to another study or is in
/// use, or there are outputs beside --shard; EnvironmentFault: the file cannot be written.
[[nodiscard]] PointRunner point_runner(const OptionParser& parser,
                                       const std::string& command,
                                       const Scenario& scenario);

/// What a command answers that computed one shard: how many points are where, and what to do next.
[[nodiscard]] Answer shard_answer(const PointRunner& runner,
                                  std::size_t points,
                                  const Outputs& outputs);

}  // namespace stepsim
