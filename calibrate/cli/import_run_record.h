#pragma once

#include <string>
#include <vector>

namespace stepsim {

/// stepcal import run-record: a profile of recorded training steps.
int import_run_record_command(const std::vector<std::string>& arguments);

}  // namespace stepsim
