// A decoder of 3.4 billion parameters whose gradients are reduced after the backward.
#include "tests/published/predicted.h"
#include "tests/published/validation.h"

namespace stepsim::published {

Validation lm3b_sync() {
  Validation result;
  result.title = "3.4 billion parameters on two RTX PRO 6000: all-reduces after the backward";
  result.source =
      "EnzoDing-rgb/cs336-assignment2-systems, reports: all-reduce 30 us + bytes / 36 GB/s; 393 to "
      "398 ms for 291 of them, 428 ms for one";
  result.unit = "ms";
  result.variants = {"line alone", "with copies at 1792 GB/s"};
  result.proves =
      "A sweep of one collective prices hundreds in a row, and what one big all-reduce takes "
      "longer is mostly the copies into and out of its buffer.";
  result.cannot = "Overlap: nothing runs beside these all-reduces.";
  constexpr const char* kScenario = "lm3b_2gpu.toml";
  constexpr double kRest = 154 + 296 + 274;
  const Overrides free_copies = {"times.copy_bandwidth=1000000 GB/s"};
  const Overrides one = {"ddp.bucket_rule=single", "ddp.gradient_as_bucket_view=false"};
  const Overrides one_free = {one[0], one[1], free_copies[0]};
  // These intervals are of the all-reduces alone, so that the rest of the step is exact here.
  const auto interval = [&](Overrides overrides) {
    overrides.emplace_back("times.error=0");
    const auto [low, high] = predicted_interval(kScenario, overrides);
    return std::pair(low - kRest, high - kRest);
  };
  result.interval_of = "its last";
  result.figures = {
      {"291 all-reduces",
       (393.0 + 398) / 2,
       {predicted_ms(kScenario, free_copies) - kRest, {}},
       interval(free_copies)},
      {"one all-reduce",
       428,
       {predicted_ms(kScenario, one_free) - kRest, predicted_ms(kScenario, one) - kRest},
       interval(one)}};
  return result;
}

}  // namespace stepsim::published
