#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sim/parallel/ddp/ddp_options.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/setting.h"

namespace stepsim {

/// One way to tell DDP where buckets end, priced over all steps of a scenario.
struct BucketChoice {
  /// The limits in MiB, as bucket_cap_mb (one) or bucket_cap_mb_list takes them.
  std::vector<std::string> mib;
  DdpOptions ddp;           ///< The scenario's, with these limits.
  std::size_t buckets = 0;  ///< From the rebuild on.
  Prediction prediction;
};

/// "bucket_cap_mb=50", "bucket_cap_mb_list=[1, 60, 45.5]": arguments of DistributedDataParallel.
/// The newest one's default is "bucket_cap_mb=None": a stated cap is that of the first bucket, too.
[[nodiscard]] std::string python_argument(const BucketChoice& choice);
/// Returns the choice as lines of [ddp] in a scenario: "torch = …", "bucket_caps = […]".
[[nodiscard]] std::string toml_lines(const BucketChoice& choice);
/// Returns the settings that make the choice in a scenario of these options.
[[nodiscard]] std::vector<Setting> choice_settings(const BucketChoice& choice,
                                                   const DdpOptions& of_scenario);

}  // namespace stepsim
