#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "costmodel/model/bucket_assignment.h"
#include "costmodel/model/transformer.h"

namespace stepsim {

/// The model as those see it who communicate its gradients and parameters.
struct TrainedModel {
  std::vector<BucketParameter> parameters;
  std::vector<std::vector<std::int64_t>> shapes;  ///< [parameter] its sizes.
  std::vector<std::vector<int>> completes;        ///< [backward op] gradients it completes.
  // What is gathered together where parameters are sharded.
  std::vector<int> forward_unit;        ///< [forward op] its unit.
  std::vector<int> backward_unit;       ///< [backward op] likewise.
  std::vector<std::vector<int>> units;  ///< [unit] parameters; unit 0 is the root.
  std::vector<int> unit_parent;         ///< [unit] the unit around it; empty: all in the root.
  std::vector<std::string> unit_names;  ///< [unit] its name; the root's is "root".
  int loss_ops = 0;  ///< The first ops of the backward, which are outside the root: the loss.
  std::int64_t element_bytes = 4;          ///< Bytes of one element of a parameter.
  std::vector<std::int64_t> buffer_bytes;  ///< [dtype] bytes of the buffers of that dtype.
  std::vector<std::string> labels;         ///< Names of the ops, for traces.
  std::int32_t copy_labels =
      -1;  ///< Where those of copies around gathers begin; -1: there are none.

  [[nodiscard]] std::int64_t elements(int parameter) const;
  [[nodiscard]] std::int64_t total_elements() const;
  [[nodiscard]] std::int64_t total_bytes() const;
  /// The unit around another; the root's is itself.
  [[nodiscard]] int parent_of(int unit) const {
    return unit_parent.empty() ? 0 : unit_parent[static_cast<std::size_t>(unit)];
  }
};

/// The gradient buckets of a model, in launch order.
struct BucketLists {
  std::vector<Bucket> initial;  ///< The buckets of the first iteration.
  /// The buckets from the second iteration on. They equal the initial ones with
  /// find_unused_parameters, since DDP does not rebuild its buckets then.
  std::vector<Bucket> rebuilt;
};

/// Describes a configuration. `ops`: those of its step, with or without layers that
/// are computed again in the backward. The labels are the names of the forward ops, then those of
/// the backward ops. It has no units.
[[nodiscard]] TrainedModel trained_model(const TransformerConfig& config,
                                         const StepOps& ops,
                                         const std::vector<std::int64_t>& buffer_bytes);

}  // namespace stepsim
