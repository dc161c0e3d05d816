#include "calibrate/cpu/parameter_store.h"

#include <cstring>

#include "calibrate/cpu/adamw.h"

namespace stepsim::cpu {

ParameterStore::ParameterStore(const std::vector<Parameter>& parameters) {
  constexpr std::size_t kLine = 16;  // Floats in a cache line.
  for (const Parameter& parameter : parameters) {
    elements_.push_back(parameter.elements());
    offset_.push_back(total_);
    total_ += (static_cast<std::size_t>(parameter.elements()) + kLine - 1) / kLine * kLine;
  }
  weights_.reserve(total_);
  gradients_.reserve(total_);
  moment1_.reserve(total_);
  moment2_.reserve(total_);
}

void ParameterStore::zero_gradients() {
  for (std::size_t p = 0; p < size(); ++p) {
    std::memset(gradient(p), 0, static_cast<std::size_t>(elements_[p]) * sizeof(float));
  }
}

void ParameterStore::optimizer_step() {
  const AdamW options;
  ++updates_;
  for (std::size_t p = 0; p < size(); ++p) {
    adamw_update(options,
                 weights(p),
                 moment1_.data() + offset_[p],
                 moment2_.data() + offset_[p],
                 gradient(p),
                 elements_[p],
                 updates_);
  }
}

}  // namespace stepsim::cpu
