#pragma once

#include <string>

#include "costmodel/io/json_file.h"
#include "costmodel/terminal/screen.h"
#include "sim/scenario/scenario.h"
#include "sim/study/best_buckets.h"

namespace stepsim {

/// The three choices, what each gains, what to set, and the next command.
[[nodiscard]] std::string best_buckets_text(const Scenario& scenario,
                                            const BestBuckets& best,
                                            const Screen& screen);
[[nodiscard]] Json best_buckets_json(const Scenario& scenario, const BestBuckets& best);
[[nodiscard]] std::string best_buckets_csv(const BestBuckets& best);

}  // namespace stepsim
