#pragma once

#include "sim/points/prediction_members.h"
#include "sim/study/sweep.h"

namespace stepsim {

STEPSIM_MEMBERS(SweepPoint,
                place,
                prediction,
                ranks,
                buckets,
                last_bucket_ms,
                picture,
                not_priced,
                op_source,
                collective_source)

}  // namespace stepsim
