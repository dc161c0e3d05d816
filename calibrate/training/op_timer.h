#pragma once

#include <cstddef>

namespace stepsim {

/// Hears when the trainer begins and ends each op, in the order of Trainer::ops(). On a GPU the
/// trainer only puts work into a stream, so that the calls mark places in that stream. A timer that
/// goes by the ends alone finds the wait for a bucket in the bucket's copy-out.
class OpTimer {
 public:
  virtual ~OpTimer() = default;
  virtual void op_begin(std::size_t /*op*/) {}
  virtual void op_done(std::size_t op) = 0;
};

}  // namespace stepsim
