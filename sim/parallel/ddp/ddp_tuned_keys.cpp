#include <fmt/format.h>

#include "costmodel/base/parse_units.h"
#include "sim/parallel/ddp/ddp.h"

namespace stepsim {
namespace {

std::vector<std::string> caps_of(const ParallelJob& job) {
  constexpr double kMib = 0x1p20;
  double gradients = 0;
  for (const BucketParameter& parameter : bucket_parameters(job.model)) {
    gradients += static_cast<double>(parameter.bytes);
  }
  std::vector<std::string> values = {exact_bytes(job.ddp.bucket_cap), "25 MiB"};
  for (double mib = 1; mib <= 2048; mib *= 2) {
    values.push_back(fmt::format("{} MiB", mib));
    if (mib * kMib > gradients) {
      break;  // A single bucket.
    }
  }
  return values;
}

}  // namespace

std::vector<TunedKey> Ddp::tuned_keys(const ParallelJob& job) const {
  if (job.ranks == 1) {
    return {};
  }
  const bool view = job.ddp.gradient_as_bucket_view;
  std::vector<TunedKey> keys = {
      {"ddp.zero_stage", {std::to_string(job.ddp.zero_stage), "0", "1"}},
      {"ddp.gradient_as_bucket_view", {view ? "true" : "false", view ? "false" : "true"}}};
  if (job.ddp.bucket_rule == BucketRule::PyTorch && job.ddp.bucket_caps.empty()) {
    keys.push_back({"ddp.bucket_cap", caps_of(job)});
  }
  return keys;
}

}  // namespace stepsim
