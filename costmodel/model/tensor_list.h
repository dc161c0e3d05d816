#pragma once

#include <optional>
#include <string>
#include <vector>

#include "costmodel/model/transformer.h"

namespace stepsim {

/// The parameters of a model that have gradients.
struct TensorList {
  std::vector<TensorBlock> tensors;
  std::vector<Parameter> frozen;  ///< Those that have none.
  std::optional<Dtype> dtype;     ///< Of most elements of the gradients, where the list says.
};

/// Reads a CSV file with one parameter tensor a row, in registration order: columns name, shape
/// (as 512x256x3x3), and the relative work forward and backward of each tensor's op. Without the
/// last two, every matrix or kernel (two sizes or more) counts the same, and vectors nothing: the
/// layers of most networks take about the same time. `requires_grad` and `dtype` ("torch.bfloat16")
/// may be there, too. Frozen parameters have no gradient and are in no bucket; their work goes to
/// the parameter before them. Each type of gradients has buckets of its own. Raises InputError with
/// line and column: other columns, a file that is no table, as a config.json or a safetensors file,
/// with what to write instead.
[[nodiscard]] TensorList read_tensor_list(const std::string& path);

/// Returns the weight that read_tensor_list() gives a tensor whose work is not stated.
[[nodiscard]] std::int64_t assumed_work(const std::vector<std::int64_t>& shape);

/// Returns a model that is a chain of these tensors, as the profiles of recorded models hold it.
/// Raises FieldError: there are none, or a size is not positive.
[[nodiscard]] TransformerConfig tensor_chain(const std::string& name,
                                             std::vector<TensorBlock> tensors,
                                             Dtype dtype = Dtype::F32,
                                             std::vector<Parameter> frozen = {});

}  // namespace stepsim
