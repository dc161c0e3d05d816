#pragma once

#include <string>
#include <vector>

namespace stepsim {

/// Runs `stepcal import kineto`, which reads traces of PyTorch's profiler, one for each rank.
int import_kineto_command(const std::vector<std::string>& arguments);

}  // namespace stepsim
