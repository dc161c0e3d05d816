#pragma once

#include <string>
#include <utility>
#include <vector>

#include "costmodel/terminal/screen.h"
#include "sim/batching/varlen_epoch.h"

namespace stepsim {

/// A policy's name and how its batches fit.
using NamedVarlenUse = std::pair<std::string, VarlenUse>;

/// How the batches of one epoch fit into the slots of a varlen call, one row a policy; empty
/// without one.
[[nodiscard]] std::string varlen_text(const std::vector<NamedVarlenUse>& uses,
                                      const Screen& screen = {});

}  // namespace stepsim
