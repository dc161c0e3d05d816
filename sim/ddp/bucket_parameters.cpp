#include "sim/ddp/bucket_assignment.h"

namespace stepsim {

std::vector<BucketParameter> bucket_parameters(const TransformerConfig& config) {
  std::vector<BucketParameter> result;
  for (const Parameter& parameter : parameters(config)) {
    result.push_back(
        {parameter.bytes().value(), std::string(name_of(parameter.dtype)), parameter.sparse});
  }
  return result;
}

}  // namespace stepsim
