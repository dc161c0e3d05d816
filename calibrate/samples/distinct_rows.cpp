#include "calibrate/samples/distinct_rows.h"

namespace stepsim {
namespace {

constexpr std::size_t kFewRows = 1024;

}  // namespace

DistinctRows::DistinctRows(std::size_t features, std::size_t most)
    : features_(features), few_(most < kFewRows) {
  numbers_.reserve(most);
}

void DistinctRows::add(std::span<const double> row) {
  bool is_new = few_;
  std::size_t number = distinct_;
  if (!few_) {
    bytes_.assign(reinterpret_cast<const char*>(row.data()), row.size_bytes());
    const auto [known, added] = known_.try_emplace(bytes_, distinct_);
    is_new = added;
    number = known->second;
  }
  if (is_new) {
    values_.insert(values_.end(), row.begin(), row.end());
    ++distinct_;
  }
  numbers_.push_back(number);
}

std::vector<double> DistinctRows::times(std::span<const double> coefficients) const {
  std::vector<std::size_t> used;  // Of a fit's features most are not in it.
  for (std::size_t j = 0; j < features_; ++j) {
    if (coefficients[j] != 0) {
      used.push_back(j);
    }
  }
  std::vector<double> result(distinct_);
  for (std::size_t number = 0; number < distinct_; ++number) {
    for (const std::size_t j : used) {
      result[number] += coefficients[j] * values_[number * features_ + j];
    }
  }
  return result;
}

}  // namespace stepsim
