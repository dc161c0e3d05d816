#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sim/ask/request.h"
#include "sim/points/point_runner.h"

namespace stepsim {

/// The runner that PointOptions, and the request, ask for.
///
/// Raises InputError: an option is wrong, the file of --resume belongs to another study or is in
/// use, or there are outputs beside --shard; EnvironmentFault: the file cannot be written.
[[nodiscard]] PointRunner point_runner(const Request& request, const Scenario& scenario);

/// The axes of --over and of the request. Raises InputError as parse_sweep_axis().
[[nodiscard]] std::vector<SweepAxis> asked_axes(const Request& request,
                                                const std::vector<std::string>& over);

/// Raises InputError where an output of the question is a file that some value of an axis names.
void keep_axis_files(const Request& request,
                     const Scenario& scenario,
                     std::span<const SweepAxis> axes);

/// What a command answers that computed one shard: how many points are where, and what to do next.
[[nodiscard]] Answer shard_answer(const PointRunner& runner, std::size_t points);

}  // namespace stepsim
