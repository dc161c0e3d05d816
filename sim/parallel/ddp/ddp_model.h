#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "costmodel/model/bucket_assignment.h"
#include "costmodel/model/transformer.h"

namespace stepsim {

/// The model as DDP's reducer sees it.
struct DdpModel {
  std::vector<BucketParameter> parameters;
  std::vector<std::vector<std::int64_t>> shapes;  ///< [parameter] its sizes.
  std::vector<std::vector<int>> completes;        ///< [backward op] gradients it completes.
  std::vector<int> forward_unit;                  ///< [forward op] unit of fully sharded training.
  std::vector<int> backward_unit;                 ///< [backward op] likewise.
  std::vector<std::vector<int>> units;            ///< [unit] parameters; unit 0 is the root.
  std::int64_t element_bytes = 4;                 ///< Bytes of one element of a parameter.
  std::vector<std::int64_t> buffer_bytes;         ///< [dtype] bytes of the buffers of that dtype.
  std::vector<std::string> labels;                ///< Names of the ops, for traces.

  [[nodiscard]] std::int64_t elements(int parameter) const;
  [[nodiscard]] std::int64_t total_elements() const;
  [[nodiscard]] std::int64_t total_bytes() const;
};

/// Describes a configuration as DDP sees it. `ops`: those of its step, with or without layers that
/// are computed again in the backward. The labels are the names of the forward ops, then those of
/// the backward ops. Fully sharded training has one unit a layer; all other parameters
/// belong to the root unit.
[[nodiscard]] DdpModel ddp_model(const TransformerConfig& config,
                                 const StepOps& ops,
                                 const std::vector<std::int64_t>& buffer_bytes);

}  // namespace stepsim
