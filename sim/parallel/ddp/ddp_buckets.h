#pragma once

#include <cstdint>
#include <vector>

#include "costmodel/model/transformer.h"
#include "sim/parallel/ddp/ddp_options.h"
#include "sim/parallel/trained_model.h"

namespace stepsim {

/// The gradient buckets of a model.
///
/// With ddp.bucket_caps both lists are filled to its limits, the initial one in order of
/// registration; the largest limit is the cap.
/// Source: _BucketCapacityConfig in torch/nn/parallel/distributed.py, Reducer::rebuild_buckets and
/// compute_bucket_assignment_by_size in torch/csrc/distributed/c10d/reducer.cpp, PyTorch 2.12 or
/// later, read in public copies. The Python reducer, which takes no such list, is not simulated.
[[nodiscard]] BucketLists ddp_buckets(const TransformerConfig& model, const DdpOptions& ddp);

/// The limits of the buckets in turn, in bytes; the last one holds for all others.
[[nodiscard]] std::vector<std::int64_t> bucket_limits(const DdpOptions& ddp);

/// The first synchronised iteration that reduces rebuilt buckets, counted from 1; 0: none does.
[[nodiscard]] int first_rebuilt(const DdpOptions& ddp);

}  // namespace stepsim
