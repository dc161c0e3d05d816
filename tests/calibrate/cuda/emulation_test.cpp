#include <cstring>
#include <numeric>
#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>

#include "tests/calibrate/cuda/emulation/device_code.h"

// The device emulated on the host: barriers, shuffles, shared memory, memory of garbage.

namespace stepsim::cuda {
namespace {

constexpr unsigned kAllLanes = 0xFFFFFFFF;

__global__ void index_kernel(int* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = static_cast<int>(i) + static_cast<int>(gridDim.x) * 1000;
}

/// Every thread reads what its mirror wrote before the barrier, twice over one shared array.
__global__ void mirror_kernel(int* out) {
  __shared__ int values[64];
  for (int round = 0; round < 2; ++round) {
    values[threadIdx.x] = static_cast<int>(threadIdx.x) * (round + 1);
    __syncthreads();
    out[64 * round + threadIdx.x] = values[63 - threadIdx.x];
    __syncthreads();
  }
}

__global__ void mirror_without_barrier_kernel(int* out) {
  __shared__ int values[64];
  for (int round = 0; round < 2; ++round) {
    __syncthreads();
    values[threadIdx.x] = static_cast<int>(threadIdx.x) * (round + 1);
    out[64 * round + threadIdx.x] = values[63 - threadIdx.x];
  }
}

__global__ void warp_sum_kernel(float* out) {
  auto sum = static_cast<float>(threadIdx.x);
  for (unsigned mask = 16; mask > 0; mask /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, mask);
  }
  out[threadIdx.x] = sum;
}

__global__ void shift_down_kernel(double* out) {
  out[threadIdx.x] = __shfl_down_sync(kAllLanes, static_cast<double>(threadIdx.x), 3U);
}

__global__ void early_return_kernel(float* out) {
  if (threadIdx.x == 5) {
    return;
  }
  out[threadIdx.x] = __shfl_xor_sync(kAllLanes, 1.0F, 1);
}

/// Threads that end do not hold up a barrier.
__global__ void half_ends_kernel(int* out) {
  if (threadIdx.x >= 32) {
    return;
  }
  __syncthreads();
  out[threadIdx.x] = 1;
}

}  // namespace

TEST_CASE("the emulated device runs every thread of every block") {
  const Stream stream;
  std::vector<int> out(7 * 96);
  launch(index_kernel, 7, 96, stream, out.data());
  for (std::size_t i = 0; i < out.size(); ++i) {
    CHECK(out[i] == static_cast<int>(i) + 7000);
  }
}

TEST_CASE("the emulated device waits at barriers, and shows that one lacks") {
  const Stream stream;
  std::vector<int> out(128);
  const auto mirrored = [&out] {
    int right = 0;
    for (int i = 0; i < 64; ++i) {
      right += out[static_cast<std::size_t>(i)] == 63 - i ? 1 : 0;
      right += out[static_cast<std::size_t>(64 + i)] == 2 * (63 - i) ? 1 : 0;
    }
    return right;
  };
  launch(mirror_kernel, 1, 64, stream, out.data());
  CHECK(mirrored() == 128);
  launch(mirror_without_barrier_kernel, 1, 64, stream, out.data());
  CHECK(mirrored() < 128);
  std::vector<int> ones(32);
  launch(half_ends_kernel, 1, 64, stream, ones.data());
  CHECK(std::accumulate(ones.begin(), ones.end(), 0) == 32);
}

TEST_CASE("the emulated device exchanges values in a warp, of all lanes or not at all") {
  const Stream stream;
  std::vector<float> sums(64);
  launch(warp_sum_kernel, 3, 64, stream, sums.data());
  CHECK(sums[0] == 496.0F);
  CHECK(sums[31] == 496.0F);
  CHECK(sums[32] == 496.0F + 32 * 32);
  std::vector<double> shifted(32);
  launch(shift_down_kernel, 1, 32, stream, shifted.data());
  CHECK(shifted[0] == 3.0);
  CHECK(shifted[28] == 31.0);
  CHECK(shifted[29] == 29.0);
  CHECK_THROWS_AS(launch(early_return_kernel, 1, 32, stream, sums.data()), std::logic_error);
  launch(warp_sum_kernel, 1, 64, stream, sums.data());
  CHECK(sums[0] == 496.0F);
}

TEST_CASE("the emulated device's memory starts as garbage and grows") {
  const Stream stream;
  DeviceBuffer buffer(100);
  CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256 == 0);
  CHECK(buffer.as<unsigned char>()[99] == 0xCD);
  set_zero(stream, buffer.data(), 100);
  buffer.reserve(50);
  CHECK(buffer.as<unsigned char>()[99] == 0);
  buffer.reserve(101);
  CHECK(buffer.bytes() == 101);
  CHECK(buffer.as<unsigned char>()[0] == 0xCD);
  const Event from;
  const Event to;
  from.record(stream);
  to.record(stream);
  CHECK(seconds_between(from, to) >= 0);
}

}  // namespace stepsim::cuda
