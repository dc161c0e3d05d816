#pragma once

#include <tuple>

#include "sim/points/prediction_members.h"
#include "sim/study/sweep.h"

namespace stepsim {

/// For exact_json.h.
auto members(Is<SweepPoint> auto& value) {
  auto& [labels,
         prediction,
         ranks,
         buckets,
         last_bucket_ms,
         picture,
         not_priced,
         op_source,
         collective_source] = value;
  return std::tie(labels,
                  prediction,
                  ranks,
                  buckets,
                  last_bucket_ms,
                  picture,
                  not_priced,
                  op_source,
                  collective_source);
}

}  // namespace stepsim
