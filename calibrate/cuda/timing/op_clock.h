#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "calibrate/cuda/device/device.h"
#include "calibrate/cuda/timing/stream_hold.h"
#include "calibrate/training/op_timer.h"

namespace stepsim::cuda {

/// Measures the device's time of every op of a step, or of chunks of ops as a whole.
///
/// The stream is held at the start of each chunk until the host has put all its launches in, so
/// that a launch that is slower than its kernel adds to no op's time. A chunk has as many ops as
/// surely fit into CUDA's queue with their events (launch_queue.h): one that did not would block
/// the host, which could not release it. An op with more launches than the queue holds is a chunk
/// of its own, which is not held. An event behind every op costs a little: scaled() removes that
/// with the times of whole chunks, which have no events inside.
class OpClock : public OpTimer {
 public:
  enum class Marks { Ops, Chunks };

  /// `launches`: [op] The most launches of each op (most_launches()). `at_work` is called whenever
  /// a chunk has been released, which the device then works on.
  OpClock(
      const Stream& stream, std::vector<int> launches, std::function<void()> at_work = [] {});

  /// Prepares for steps of other ops.
  void resize(std::vector<int> launches);
  /// Holds the stream for half as many launches at a time from here on, for a queue that is shorter
  /// than CUDA's usual one.
  void halve_chunks();
  /// Prepares for the next step.
  void start(Marks marks);
  void op_begin(std::size_t op) override;
  void op_done(std::size_t op) override;

  /// Whether a chunk of the step went on before all its launches were in: then its times hold
  /// launches. The device must be done.
  [[nodiscard]] bool expired() const { return hold_.expired(); }
  /// Seconds of each op of a step that ran with Marks::Ops; the device must be done. The first op
  /// builds the batch on the host and copies it to the device.
  [[nodiscard]] std::vector<double> op_seconds() const;
  /// Seconds of each chunk of the ops behind the first.
  [[nodiscard]] std::vector<double> chunk_seconds() const;

  /// Scales the times of the ops in each chunk by one factor, so that they sum to the chunk's time.
  [[nodiscard]] std::vector<double> scaled(std::vector<double> ops,
                                           const std::vector<double>& chunks) const;

 private:
  /// Ops in a row that the stream is held for.
  struct Chunk {
    std::size_t first = 0;
    int queued = 0;  ///< Its launches and events, and those of the hold.
  };

  void divide();
  [[nodiscard]] std::size_t ops() const { return launches_.size(); }
  /// Of an op behind the first.
  [[nodiscard]] std::size_t chunk_of(std::size_t op) const { return chunk_of_[op]; }
  [[nodiscard]] bool begins_chunk(std::size_t op) const {
    return op > 0 && chunks_[chunk_of(op)].first == op;
  }

  const Stream& stream_;
  std::vector<int> launches_;  ///< [op]
  std::function<void()> at_work_;
  int most_;  ///< Launches and events of a chunk with more than one op.
  std::vector<Chunk> chunks_;
  std::vector<std::size_t> chunk_of_;  ///< [op]
  Marks marks_ = Marks::Ops;
  Event collate_begin_;
  std::vector<Event> begins_;  ///< [chunk]
  std::vector<Event> ends_;    ///< [op]
  StreamHold hold_;            ///< [chunk]
};

}  // namespace stepsim::cuda
