#pragma once

#include <string>
#include <vector>

namespace stepsim {

/// `stepcal import kineto`: traces of PyTorch's profiler, one a rank.
int import_kineto_command(const std::vector<std::string>& arguments);

}  // namespace stepsim
