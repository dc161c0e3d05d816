#pragma once

#include <cstddef>
#include <vector>

#include "calibrate/cuda/device/device.h"
#include "calibrate/cuda/timing/stream_hold.h"
#include "calibrate/training/op_timer.h"

namespace stepsim::cuda {

/// Measures the device's time of every op of a step, or of chunks of ops as a whole.
///
/// The stream is held at the start of each chunk until the host has put all its launches in, so
/// that a launch that is slower than its kernel adds to no op's time. An event behind every op
/// costs a little: scaled() removes that with the times of whole chunks, which have no events
/// inside.
class OpClock : public OpTimer {
 public:
  enum class Marks { Ops, Chunks };

  OpClock(const Stream& stream, std::size_t ops);

  /// Prepares for steps of another number of ops.
  void resize(std::size_t ops);
  /// Holds the stream for half as many ops at a time from here on: a chunk that does not fit into
  /// the driver's queue blocks the host, which then cannot release it.
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
  /// The chunk of an op behind the first.
  [[nodiscard]] std::size_t chunk_of(std::size_t op) const { return (op - 1) / chunk_; }
  [[nodiscard]] bool begins_chunk(std::size_t op) const { return op > 0 && (op - 1) % chunk_ == 0; }

  const Stream& stream_;
  std::size_t ops_ = 0;
  /// Ops of a chunk. Its launches and events must fit into the driver's queue of about a thousand:
  /// an op has up to four launches and an event.
  std::size_t chunk_ = 128;
  Marks marks_ = Marks::Ops;
  Event collate_begin_;
  std::vector<Event> begins_;  ///< [chunk]
  std::vector<Event> ends_;    ///< [op]
  StreamHold hold_;            ///< [chunk]
};

}  // namespace stepsim::cuda
