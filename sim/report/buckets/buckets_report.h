#pragma once

#include <string>
#include <vector>

#include "costmodel/io/json_file.h"
#include "costmodel/model/bucket_cases.h"
#include "costmodel/terminal/screen.h"
#include "sim/parallel/ddp/ddp_program.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

// The buckets that DDP makes of a scenario's model: `lists` is what bucket_lists() returns.
[[nodiscard]] std::string buckets_text(const Scenario& scenario,
                                       const BucketLists& lists,
                                       const Screen& screen);
[[nodiscard]] Json buckets_json(const Scenario& scenario, const BucketLists& lists);
/// The rebuilt ones.
[[nodiscard]] std::string buckets_csv(const Scenario& scenario, const BucketLists& lists);

// The buckets of lists of parameters, by the name of each list.
[[nodiscard]] std::string bucket_cases_text(const std::vector<BucketCase>& cases);
[[nodiscard]] Json bucket_cases_json(const std::vector<BucketCase>& cases);

}  // namespace stepsim
