#include "sim/predict/bucket_lists.h"

namespace stepsim {

BucketLists bucket_lists(const Scenario& scenario) {
  return scenario.parallel->buckets(parallel_job(scenario));
}

}  // namespace stepsim
