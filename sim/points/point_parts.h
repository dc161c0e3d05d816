#pragma once

#include <string>
#include <vector>

#include "sim/points/point_store.h"

namespace stepsim {

/// Reads the files that shards of one study were computed into.
///
/// Raises InputError: a file is no file of points, or of another study than the first one; two hold
/// the same shard, or shards of different counts; or shards are missing, which it names with the
/// command that computes the first of them.
[[nodiscard]] std::vector<PointFile> read_point_parts(const std::vector<std::string>& paths);

}  // namespace stepsim
