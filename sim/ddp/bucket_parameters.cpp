#include "costmodel/base/mapped.h"
#include "sim/ddp/bucket_assignment.h"

namespace stepsim {

std::vector<BucketParameter> bucket_parameters(const TransformerConfig& config) {
  return mapped(parameters(config), [&](const Parameter& parameter) {
    return BucketParameter{
        parameter.bytes().value(), std::string(name_of(parameter.dtype)), parameter.sparse};
  });
}

}  // namespace stepsim
