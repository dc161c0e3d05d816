#include "costmodel/io/json_numbers.h"

#include <cmath>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"

namespace stepsim {

double finite(double value) {
  if (!std::isfinite(value)) {
    throw std::domain_error("JSON holds finite numbers only");
  }
  return value;
}

Json numbers_json(const std::vector<double>& values) {
  return mapped(values, finite);
}

Json range_json(const std::pair<double, double>& range) {
  return numbers_json({range.first, range.second});
}

}  // namespace stepsim
