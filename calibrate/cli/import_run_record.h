#pragma once

#include <string>
#include <vector>

namespace stepsim {

/// Runs `stepcal import run-record`, which makes a profile of recorded training steps.
int import_run_record_command(const std::vector<std::string>& arguments);

}  // namespace stepsim
