#include "calibrate/cuda/kernels/device_code.cuh"
#include "calibrate/cuda/kernels/kernels.h"
#include "costmodel/base/input_error.h"

namespace stepsim::cuda {
namespace {

constexpr int kCollectiveThreads = 512;
constexpr int kWordsEach = 8;
constexpr std::int64_t kWordsARound = kCollectiveThreads * kWordsEach;
constexpr double kBytesARound = kWordsARound * sizeof(uint4);
constexpr unsigned kNap = 200;  ///< Nanoseconds between looks at the clock.

__global__ void hold(volatile HoldFlags* flags, unsigned long long longest) {
  const unsigned long long begin = device_nanoseconds();
  while (flags->released == 0) {
    if (device_nanoseconds() - begin >= longest) {
      flags->expired = 1;
      return;
    }
    __nanosleep(kNap);
  }
}

__global__ void nothing() {}

/// What a stand-in for a collective does; times in nanoseconds from the start of each block.
struct Transfer {
  unsigned long long wait;
  unsigned long long end;
  bool copies;
  double round_time;    ///< Least time of one round of copies.
  std::int64_t rounds;  ///< Until a block is at the start of its part of the buffer again.
};

/// One round: every thread copies kWordsEach words of 16 bytes.
__device__ void copy_words(uint4* to, const uint4* from) {
  uint4 words[kWordsEach];
#pragma unroll
  for (int k = 0; k < kWordsEach; ++k) {
    words[k] = from[k * kCollectiveThreads + static_cast<int>(threadIdx.x)];
  }
#pragma unroll
  for (int k = 0; k < kWordsEach; ++k) {
    to[k * kCollectiveThreads + static_cast<int>(threadIdx.x)] = words[k];
  }
}

/// Waits until round `round` is due; false when the time is over.
__device__ bool wait_for_round(const Transfer& transfer,
                               unsigned long long begin,
                               std::int64_t round) {
  const double due =
      static_cast<double>(transfer.wait) + static_cast<double>(round) * transfer.round_time;
  for (;;) {
    const unsigned long long spent = device_nanoseconds() - begin;
    if (spent >= transfer.end) {
      return false;
    }
    if (transfer.copies && static_cast<double>(spent) >= due) {
      return true;
    }
  }
}

/// A block copies its own part of the first half of the buffer to the second, round and round,
/// never ahead of its rate; one thread watches the clock, the others wait for it.
__global__ void __launch_bounds__(kCollectiveThreads)
    collective(uint4* buffer, std::int64_t words, Transfer transfer) {
  __shared__ bool more;
  const std::int64_t first = blockIdx.x * transfer.rounds * kWordsARound;
  const unsigned long long begin = device_nanoseconds();
  for (std::int64_t round = 0;; ++round) {
    if (threadIdx.x == 0) {
      more = wait_for_round(transfer, begin, round);
    }
    __syncthreads();
    if (!more) {
      return;
    }
    const std::int64_t at = first + round % transfer.rounds * kWordsARound;
    copy_words(buffer + words / 2 + at, buffer + at);
    __syncthreads();
  }
}

unsigned long long nanoseconds(double seconds) {
  return static_cast<unsigned long long>(std::max(0.0, seconds) * 1e9);
}

}  // namespace

void hold_stream(const Stream& stream, volatile HoldFlags* flags, double longest) {
  if (launches_queue()) {  // Else nobody could release it before the kernel ends.
    launch(hold, 1, 1, stream, flags, nanoseconds(longest));
  }
}

void launch_nothing(const Stream& stream) {
  launch(nothing, 1, 1, stream);
}

void stand_in_collective(const Stream& stream,
                         int channels,
                         double wait,
                         double transfer,
                         void* buffer,
                         std::int64_t buffer_bytes,
                         double bytes_per_second) {
  if (channels < 1) {
    throw InputError("a collective needs at least one channel, not " + std::to_string(channels));
  }
  const bool copies = bytes_per_second > 0;
  const std::int64_t words = buffer_bytes / static_cast<std::int64_t>(sizeof(uint4));
  const std::int64_t rounds = words / 2 / channels / kWordsARound;
  if (copies && rounds < 1) {
    throw InputError("a collective of " + std::to_string(channels) +
                     " channels needs a larger buffer than " + std::to_string(buffer_bytes) +
                     " bytes");
  }
  const Transfer plan{nanoseconds(wait),
                      nanoseconds(wait) + nanoseconds(transfer),
                      copies,
                      copies ? kBytesARound * channels / bytes_per_second * 1e9 : 0.0,
                      rounds};
  launch(
      collective, channels, kCollectiveThreads, stream, static_cast<uint4*>(buffer), words, plan);
}

}  // namespace stepsim::cuda
