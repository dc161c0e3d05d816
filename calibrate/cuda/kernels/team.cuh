#pragma once

#include <cstdint>
#include <cstring>

#include "calibrate/cuda/kernels/device_code.cuh"

/// Kernels over rows: a team of threads has a row, a warp when it is short, else a whole block.
namespace stepsim::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xFFFFFFFF;
constexpr int kLeastBlock = 128;
constexpr int kMaxThreads = 512;

struct Team {
  int rank;  ///< The place of this thread, below size.
  int size;
  std::int64_t first_row;
  std::int64_t row_step;
};

/// Returns this thread's team; teams of `size` threads divide the block.
__device__ inline Team team_of(int size) {
  const int teams = static_cast<int>(blockDim.x) / size;
  const int thread = static_cast<int>(threadIdx.x);
  return {thread % size,
          size,
          static_cast<std::int64_t>(blockIdx.x) * teams + thread / size,
          static_cast<std::int64_t>(gridDim.x) * teams};
}

/// The value of the lane whose number differs in the bits of `mask`.
template <typename T>
__device__ T from_lane_xor(const T& value, int mask) {
  constexpr int kWords = sizeof(T) / sizeof(unsigned);
  unsigned words[kWords];
  std::memcpy(words, &value, sizeof(T));
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    words[i] = __shfl_xor_sync(kAllLanes, words[i], mask);
  }
  T result;
  std::memcpy(&result, words, sizeof(T));
  return result;
}

/// Combines a value of every thread; all get the result. All threads of the team must call it.
template <typename T, typename Combine>
__device__ T reduce(const Team& team, T value, const Combine& combine) {
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    value = combine(value, from_lane_xor(value, mask));
  }
  if (team.size == kWarp) {
    return value;
  }
  __shared__ T parts[kMaxThreads / kWarp];
  __syncthreads();  // Every thread has read the result of the call before.
  if (threadIdx.x % kWarp == 0) {
    parts[threadIdx.x / kWarp] = value;
  }
  __syncthreads();
  value = parts[0];
  for (int warp = 1; warp < team.size / kWarp; ++warp) {
    value = combine(value, parts[warp]);
  }
  return value;
}

__device__ inline float reduce_sum(const Team& team, float value) {
  return reduce(team, value, [](float a, float b) { return a + b; });
}

/// Threads for a row of so many packs: a warp for up to four packs a thread, then whole blocks.
inline int team_size(std::int64_t packs) {
  if (packs <= 4 * kWarp) {
    return kWarp;
  }
  int size = kLeastBlock;
  while (size < kMaxThreads && packs > 8 * size) {
    size *= 2;
  }
  return size;
}

/// Launches a kernel whose first parameter is the size of its teams, each with a row at a time.
template <typename... Parameters, typename... Arguments>
void launch_rows(void (*kernel)(int, Parameters...),
                 const Stream& stream,
                 std::int64_t rows,
                 std::int64_t packs,
                 Arguments... arguments) {
  const int size = team_size(packs);
  const int threads = std::max(size, kLeastBlock);
  const std::int64_t teams = threads / size;
  launch(kernel, (rows + teams - 1) / teams, threads, stream, size, arguments...);
}

}  // namespace stepsim::cuda
