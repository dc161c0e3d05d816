#pragma once

#include <span>
#include <string>
#include <vector>

#include "costmodel/batch_shape.h"
#include "costmodel/json_file.h"
#include "costmodel/transformer.h"

namespace stepsim {

/// Where measurements come from: one rank of a group of processes that measure together, so that
/// every time includes what the neighbours take (memory bandwidth, shared cores).
class Backend {
 public:
  virtual ~Backend() = default;

  /// The ops of one training step in execution order: collate, zero gradients, forward, backward
  /// with the gradient copies where DDP does them, copies out, optimizer.
  [[nodiscard]] virtual const std::vector<Op>& ops() const = 0;

  /// Runs one step on random data of these lengths and times each op where it runs in the step, so
  /// that it finds its inputs where a real step leaves them. Seconds, in the order of ops().
  [[nodiscard]] virtual std::vector<double> time_step(std::span<const std::int64_t> lengths) = 0;

  /// One all-reduce of fp32 from the last rank's arrival to the end on this rank, seconds.
  [[nodiscard]] virtual double time_all_reduce(Bytes bytes) = 0;

  /// Waits until every rank is here.
  virtual void barrier() = 0;

  /// Device, library versions, threads.
  [[nodiscard]] virtual Json description() const = 0;
};

}  // namespace stepsim
