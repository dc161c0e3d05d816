#pragma once

#include <cstdint>

#include "calibrate/cuda/device/device.h"
/// The project's own kernels. A call launches one or two kernels in stream order and returns at
/// once. Arrays are F32, Bf16 or F16; the kernels compute in fp32.
namespace stepsim::cuda {

// ---- filling: fill.cu

/// Fills `out` with normal numbers of mean 0 and the given standard deviation; a seed gives the
/// same numbers on every device, up to roundings. Timed kernels work on these and never on zeros,
/// which draw less power and so run faster.
void fill_normal(
    const Stream& stream, Array out, std::int64_t count, float deviation, std::uint64_t seed);

// ---- measures of bandwidth

/// out = factor * a, whose dtypes may differ: elementwise.cu
void scaled_copy(const Stream& stream, Array out, ConstArray a, float factor, std::int64_t count);

/// sums[row] = the sum of a row of `width` elements of x: reduction.cu
void row_sums(
    const Stream& stream, float* sums, ConstArray x, std::int64_t rows, std::int64_t width);

// ---- what measuring needs: measuring.cu

/// Two words of a HostBuffer that a held stream and the host share.
struct HoldFlags {
  std::uint32_t released = 0;  ///< Not 0: the host lets the stream go on.
  std::uint32_t expired = 0;   ///< Not 0: the stream went on by itself.
};
/// Holds the stream until it is released or `longest` seconds have passed. Work queues up behind
/// the hold, so that launches add nothing to the measured time (StreamHold).
void hold_stream(const Stream& stream, volatile HoldFlags* flags, double longest);
/// Launches a kernel of one block that does nothing: the shortest time that a kernel can take.
void launch_nothing(const Stream& stream);
/// Stands in for a collective of NCCL on a single card: keeps `channels` blocks of 512 threads
/// resident. The blocks first spin for `wait` seconds, as if their peers were late, and then move
/// memory of `buffer` for `transfer` seconds at `bytes_per_second`, or as fast as they can where
/// that is less; 0 moves nothing. A byte that is read and written counts once. A buffer that is
/// moved holds at least 128 KiB for each channel.
void stand_in_collective(const Stream& stream,
                         int channels,
                         double wait,
                         double transfer,
                         void* buffer,
                         std::int64_t buffer_bytes,
                         double bytes_per_second);

}  // namespace stepsim::cuda
