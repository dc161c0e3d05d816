#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "calibrate/cpu/buffer.h"
#include "costmodel/model/transformer.h"

namespace stepsim::cpu {

/// Weights, gradients and AdamW's moments, each kind in one block; parameters start on cache lines.
class ParameterStore {
 public:
  explicit ParameterStore(const std::vector<Parameter>& parameters);

  [[nodiscard]] std::size_t size() const { return elements_.size(); }
  [[nodiscard]] std::int64_t elements(std::size_t p) const { return elements_[p]; }
  [[nodiscard]] float* weights(std::size_t p) { return weights_.data() + offset_[p]; }
  [[nodiscard]] float* gradient(std::size_t p) { return gradients_.data() + offset_[p]; }
  [[nodiscard]] const float* gradient(std::size_t p) const {
    return gradients_.data() + offset_[p];
  }

  void zero_gradients();
  void optimizer_step();  ///< AdamW over all parameters.

 private:
  std::vector<std::int64_t> elements_;
  std::vector<std::size_t> offset_;
  std::size_t total_ = 0;
  std::int64_t updates_ = 0;
  Buffer weights_;
  Buffer gradients_;
  Buffer moment1_;
  Buffer moment2_;
};

}  // namespace stepsim::cpu
